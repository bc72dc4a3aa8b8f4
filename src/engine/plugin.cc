#include "engine/plugin.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>

#include "base/text_safety.h"

namespace divvy::engine {
namespace {

using kserve::DataType;

constexpr std::size_t kErrorSize = 1024;
constexpr int kMostRank = 64;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 36;  // Of an output.

// In the order of DataType.
constexpr std::array<std::int32_t, 14> kNumbers = {
    DIVVY_BOOL,  DIVVY_UINT8, DIVVY_UINT16, DIVVY_UINT32, DIVVY_UINT64, DIVVY_INT8, DIVVY_INT16,
    DIVVY_INT32, DIVVY_INT64, DIVVY_FP16,   DIVVY_BF16,   DIVVY_FP32,   DIVVY_FP64, DIVVY_BYTES};

std::int32_t ToNumber(DataType type) { return kNumbers.at(static_cast<std::size_t>(type)); }

std::optional<DataType> ToType(std::int32_t number) {
  const auto* const found = std::find(kNumbers.begin(), kNumbers.end(), number);
  if (found == kNumbers.end()) return std::nullopt;
  return static_cast<DataType>(found - kNumbers.begin());
}

std::vector<divvy_tensor_spec> ToSpecs(const std::vector<kserve::TensorMetadata>& tensors) {
  std::vector<divvy_tensor_spec> specs;
  for (const kserve::TensorMetadata& tensor : tensors) {
    specs.push_back({.name = tensor.name.c_str(),
                     .type = ToNumber(tensor.type),
                     .rank = static_cast<std::int32_t>(tensor.shape.size()),
                     .dims = tensor.shape.data()});
  }
  return specs;
}

Result<std::vector<kserve::TensorMetadata>> FromSpecs(const divvy_tensor_spec* specs,
                                                      std::uint32_t count, int max_batch) {
  std::vector<kserve::TensorMetadata> tensors;
  for (std::uint32_t i = 0; i < count; ++i) {
    const divvy_tensor_spec& spec = specs[i];
    const std::optional<DataType> type = ToType(spec.type);
    if (spec.name == nullptr || !IsName(spec.name) || !type || spec.rank < 0 ||
        spec.rank > kMostRank) {
      return Fail(
          ErrorCode::kUnavailable,
          fmt::format("describes tensor {} with no name, an unknown type ({}) or a bad rank "
                      "({})",
                      i, spec.type, spec.rank));
    }
    tensors.push_back({.name = spec.name,
                       .type = *type,
                       .shape = WithBatch({spec.dims, spec.dims + spec.rank}, max_batch)});
  }
  return tensors;
}

// The C sink, with what it collects behind it.
struct Collector {
  divvy_sink sink;  // First: the engine hands back its address.
  const std::vector<kserve::TensorMetadata>& declared;
  std::vector<std::optional<Output>> outputs;
  std::string fault;
};

std::shared_ptr<char[]> TryAllocate(std::size_t bytes) {
  try {
    return AllocateBytes(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void* Take(Collector& to, const char* name, std::int32_t type, std::int32_t rank,
           const std::int64_t* dims, std::uint64_t bytes) {
  const std::string text = name == nullptr ? "" : name;
  const auto declared = std::find_if(to.declared.begin(), to.declared.end(),
                                     [&](const auto& output) { return output.name == text; });
  if (declared == to.declared.end()) {
    to.fault = fmt::format("handed out {}, which is no output of the model", Quoted(text));
    return nullptr;
  }
  std::optional<Output>& output =
      to.outputs[static_cast<std::size_t>(declared - to.declared.begin())];
  if (output || ToType(type) != declared->type || rank < 0 || rank > kMostRank) {
    to.fault =
        fmt::format("handed out '{}' twice, or with type {} or rank {}, which are not its own",
                    text, type, rank);
    return nullptr;
  }
  const kserve::Shape shape(dims, dims + rank);
  const Result<std::size_t> count = kserve::CountOf(shape);
  const std::size_t element = kserve::SizeOf(declared->type);
  if (!count || (element != 0 && (bytes % element != 0 || bytes / element != *count))) {
    to.fault = fmt::format("handed out '{}' with {} bytes, which are not what its shape says", text,
                           bytes);
    return nullptr;
  }
  const std::shared_ptr<char[]> room = bytes <= kMostBytes ? TryAllocate(bytes) : nullptr;
  if (!room) {
    to.fault = fmt::format("asked for {} bytes for '{}', more than there are", bytes, text);
    return nullptr;
  }
  output = Output{.tensor = {.name = text,
                             .type = declared->type,
                             .shape = shape,
                             .bytes = {room.get(), static_cast<std::size_t>(bytes)}},
                  .storage = room};
  return room.get();
}

void* TakeOutput(divvy_sink* sink, const char* name, std::int32_t type, std::int32_t rank,
                 const std::int64_t* dims, std::uint64_t bytes) {
  return Take(*reinterpret_cast<Collector*>(sink), name, type, rank, dims, bytes);
}

Error Failure(const std::string& library, int status, const char* error) {
  return {status == DIVVY_BAD_INPUT ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable,
          fmt::format("engine {}: {}", library, *error == 0 ? "gave no reason" : error)};
}

}  // namespace

Result<std::unique_ptr<PluginEngine>> PluginEngine::Make(const std::string& library,
                                                         const EngineConfig& config) {
  // Never closed: engines leave threads and exit handlers behind, whose code must stay.
  void* const handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("engine {}: {}", library, dlerror()));
  }
  const auto entry = reinterpret_cast<divvy_engine_entry>(dlsym(handle, "divvy_engine"));
  if (entry == nullptr) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: exports no function divvy_engine", library));
  }
  const divvy_engine_functions* const functions = entry();
  if (functions == nullptr || functions->abi != DIVVY_ENGINE_ABI) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("engine {}: speaks version {} of divvy_engine.h, this worker {}",
                            library, functions == nullptr ? 0 : functions->abi, DIVVY_ENGINE_ABI));
  }
  std::unique_ptr<PluginEngine> engine(new PluginEngine(library, *functions));
  if (auto created = engine->Create(config); !created) return Fail(created.error());
  if (auto described = engine->Describe(config); !described) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("engine {}: {}", library, described.error().message));
  }
  return engine;
}

PluginEngine::~PluginEngine() {
  if (instance_ != nullptr) functions_.destroy(instance_);
}

Result<void> PluginEngine::Create(const EngineConfig& config) {
  const std::vector<divvy_tensor_spec> inputs = ToSpecs(config.inputs);
  const std::vector<divvy_tensor_spec> outputs = ToSpecs(config.outputs);
  std::vector<divvy_option> options;
  for (const auto& [key, value] : config.options) {
    options.push_back({.key = key.c_str(), .value = value.c_str()});
  }
  const divvy_engine_config c_config = {.abi = DIVVY_ENGINE_ABI,
                                        .model = config.model.c_str(),
                                        .artifact = config.artifact.c_str(),
                                        .device = config.device.c_str(),
                                        .max_batch = config.max_batch,
                                        .threads = config.threads,
                                        .inputs = inputs.data(),
                                        .input_count = static_cast<std::uint32_t>(inputs.size()),
                                        .outputs = outputs.data(),
                                        .output_count = static_cast<std::uint32_t>(outputs.size()),
                                        .options = options.data(),
                                        .option_count = static_cast<std::uint32_t>(options.size())};
  char error[kErrorSize] = {};
  divvy_engine_instance* instance = nullptr;
  const int status = functions_.create(&c_config, &instance, error, sizeof error);
  error[kErrorSize - 1] = 0;
  if (status != DIVVY_OK) return Fail(Failure(library_, status, error));
  instance_ = instance;
  return {};
}

Result<void> PluginEngine::Describe(const EngineConfig& config) {
  const divvy_engine_description* const said = functions_.describe(instance_);
  if (said == nullptr || said->platform == nullptr || said->backend == nullptr ||
      said->input_count == 0 || said->output_count == 0) {
    return Fail(ErrorCode::kUnavailable, "does not describe its model");
  }
  const bool batches = config.max_batch > 0;
  if (said->max_batch > config.max_batch || (said->max_batch > 0) != batches) {
    return Fail(ErrorCode::kUnavailable,
                fmt::format("runs batches of {} items where {} were asked for", said->max_batch,
                            config.max_batch));
  }
  auto inputs = FromSpecs(said->inputs, said->input_count, said->max_batch);
  if (!inputs) return Fail(inputs.error());
  auto outputs = FromSpecs(said->outputs, said->output_count, said->max_batch);
  if (!outputs) return Fail(outputs.error());
  description_ = {.metadata = {.name = config.model,
                               .platform = said->platform,
                               .max_batch = said->max_batch,
                               .inputs = std::move(*inputs),
                               .outputs = std::move(*outputs)},
                  .backend = said->backend};
  return {};
}

Result<std::vector<Output>> PluginEngine::Run(std::span<const kserve::Tensor> inputs) {
  std::vector<divvy_tensor> tensors;
  for (const kserve::Tensor& input : inputs) {
    tensors.push_back({.name = input.name.c_str(),
                       .type = ToNumber(input.type),
                       .rank = static_cast<std::int32_t>(input.shape.size()),
                       .dims = input.shape.data(),
                       .data = input.bytes.data(),
                       .bytes = input.bytes.size()});
  }
  const std::vector<kserve::TensorMetadata>& declared = description_.metadata.outputs;
  Collector collector{
      .sink = {.output = &TakeOutput}, .declared = declared, .outputs = {}, .fault = {}};
  collector.outputs.resize(declared.size());
  char error[kErrorSize] = {};
  const int status =
      functions_.run(instance_, tensors.data(), static_cast<std::uint32_t>(tensors.size()),
                     &collector.sink, error, sizeof error);
  error[kErrorSize - 1] = 0;
  if (!collector.fault.empty()) {
    return Fail(Failure(library_, DIVVY_FAILED, collector.fault.c_str()));
  }
  if (status != DIVVY_OK) return Fail(Failure(library_, status, error));
  std::vector<Output> outputs;
  for (std::size_t i = 0; i < declared.size(); ++i) {
    std::optional<Output>& output = collector.outputs[i];
    if (!output) {
      return Fail(Failure(library_, DIVVY_FAILED,
                          fmt::format("did not hand out '{}'", declared[i].name).c_str()));
    }
    outputs.push_back(std::move(*output));
  }
  return outputs;
}

}  // namespace divvy::engine
