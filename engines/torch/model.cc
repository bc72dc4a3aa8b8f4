#include "model.h"

#include <ATen/Parallel.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

#include "graphs.h"

namespace divvy::torch_engine {
namespace {

struct TypePair {
  std::int32_t ours;
  at::ScalarType torch;
};
// Types that 1.13 knows; UINT16 to UINT64 are none of its own, and texts are no tensors.
constexpr std::array<TypePair, 10> kTypes = {{{DIVVY_BOOL, at::kBool},
                                              {DIVVY_UINT8, at::kByte},
                                              {DIVVY_INT8, at::kChar},
                                              {DIVVY_INT16, at::kShort},
                                              {DIVVY_INT32, at::kInt},
                                              {DIVVY_INT64, at::kLong},
                                              {DIVVY_FP16, at::kHalf},
                                              {DIVVY_BF16, at::kBFloat16},
                                              {DIVVY_FP32, at::kFloat},
                                              {DIVVY_FP64, at::kDouble}}};

at::ScalarType ToTorch(const Spec& spec) {
  for (const TypePair& pair : kTypes) {
    if (pair.ours == spec.type) return pair.torch;
  }
  throw BadInput("'" + spec.name + "' is of a type that libtorch has no tensors of: use BOOL, " +
                 "UINT8, INT8 to INT64, FP16, BF16, FP32 or FP64");
}

std::int32_t FromTorch(at::ScalarType type) {
  for (const TypePair& pair : kTypes) {
    if (pair.torch == type) return pair.ours;
  }
  throw std::runtime_error(std::string("the module answers with tensors of type ") +
                           c10::toString(type) + ", which have no name in KServe");
}

bool ReadSwitch(const std::string& key, const std::string& value) {
  if (value == "on") return true;
  if (value == "off") return false;
  throw BadInput("option " + key + "=" + value + ": must be on or off");
}

at::Device ReadDevice(const std::string& text) {
  try {
    return at::Device(text);
  } catch (const c10::Error&) {
    throw BadInput("'" + text + "' is no device: cpu, cuda:0, ...");
  }
}

// The tensors that forward returned: one, or a tuple or list of them.
std::vector<at::Tensor> ToTensors(const c10::IValue& value) {
  if (value.isTensor()) return {value.toTensor()};
  if (value.isTensorList()) return value.toTensorVector();
  if (!value.isTuple()) {
    throw std::runtime_error("forward returns a " + value.tagKind() +
                             "; it must be a tensor, or a tuple or list of tensors");
  }
  std::vector<at::Tensor> tensors;
  for (const c10::IValue& element : value.toTupleRef().elements()) {
    if (!element.isTensor()) {
      throw std::runtime_error("forward returns a tuple with a " + element.tagKind() + " in it");
    }
    tensors.push_back(element.toTensor());
  }
  return tensors;
}

bool IsArithmetic(const torch::jit::Node& node) {
  static constexpr std::array<std::string_view, 8> kKinds = {
      "aten::add", "aten::sub", "aten::rsub",      "aten::mul",
      "aten::div", "aten::neg", "aten::remainder", "aten::floor_divide"};
  return std::ranges::find(kKinds, std::string_view(node.kind().toQualString())) != kKinds.end();
}

// True for what tracing makes of a size, and of arithmetic with one.
bool IsOfSizes(const torch::jit::Value& value) {
  const torch::jit::Node& node = *value.node();
  if (node.kind() == c10::prim::NumToTensor) return true;
  return IsArithmetic(node) &&
         std::ranges::any_of(node.inputs(), [](const auto* input) { return IsOfSizes(*input); });
}

// Numbers that tracing wrote down as tensors in arithmetic with sizes belong to the host: loading
// to a GPU takes them along, and every use as a size would then wait for the GPU, which no CUDA
// graph can record. Others stay where they are: not every operator mixes devices.
void KeepNumbersOnHost(torch::jit::Block* block) {
  for (torch::jit::Node* const node : block->nodes()) {
    for (torch::jit::Block* const inner : node->blocks()) KeepNumbersOnHost(inner);
    if (node->kind() != c10::prim::Constant || !node->hasAttribute(c10::attr::value)) continue;
    if (node->kindOf(c10::attr::value) != torch::jit::AttributeKind::t) continue;
    const at::Tensor number = node->t(c10::attr::value);
    if (number.dim() != 0 || number.device().is_cpu()) continue;
    bool of_sizes = false;
    bool arithmetic = true;
    for (const torch::jit::Use& use : node->output()->uses()) {
      arithmetic = arithmetic && IsArithmetic(*use.user);
      of_sizes = of_sizes || (IsArithmetic(*use.user) && IsOfSizes(*use.user->output()));
    }
    if (!of_sizes || !arithmetic) continue;
    node->t_(c10::attr::value, number.cpu());
    node->output()->inferTypeFrom(node->t(c10::attr::value));
  }
}

// Graphs are recorded for each number of items up to here; beyond, for powers of two.
constexpr std::int64_t kAllSizes = 64;

// Batches to warm up with, the largest first, so that what it allocates does for the others too:
// powers of two and the largest, or `all`.
std::vector<std::int64_t> WarmUpSizes(int max_batch, bool all) {
  std::vector<std::int64_t> sizes = {std::max(max_batch, 1)};
  std::int64_t power = 1;
  while (power * 2 < sizes.front()) power *= 2;
  for (std::int64_t items = sizes.front() - 1; items >= 1; --items) {
    const bool is_power = items == power;
    if (is_power) power /= 2;
    if (is_power || (all && items <= kAllSizes)) sizes.push_back(items);
  }
  return sizes;
}

}  // namespace

void Settings::Set(const std::string& key, const std::string& value) {
  if (key == "optimize") {
    optimize = ReadSwitch(key, value);
  } else if (key == "graphs") {
    graphs = ReadSwitch(key, value);
  } else if (key == "warmup") {
    if (value != "all" && value != "powers") {
      throw BadInput("option warmup=" + value + ": must be all or powers");
    }
    warm_all = value == "all";
  } else if (key == "half") {
    half = ReadSwitch(key, value);
  } else if (key == "fusion") {
    fusion = ReadSwitch(key, value);
  } else {
    throw BadInput("option '" + key +
                   "' is unknown: there are optimize, graphs, warmup, half and fusion");
  }
}

Model::Model(Settings settings)
    : settings_(std::move(settings)), device_(ReadDevice(settings_.device)) {
  if (settings_.inputs.empty()) {
    throw BadInput(
        "TorchScript does not tell the shapes of its inputs: declare them with --input, "
        "in forward's order");
  }
  for (const Spec& spec : settings_.inputs) ToTorch(spec);
  for (const Spec& spec : settings_.outputs) ToTorch(spec);
  // A GPU's worker only copies: threads that spin between copies would take the cores of others.
  if (settings_.threads > 0 || !device_.is_cpu()) {
    at::set_num_threads(std::max(settings_.threads, 1));
  }
  Load();
  if (!device_.is_cpu()) {
    at::globalContext().setBenchmarkCuDNN(true);  // Shapes are few, and come again.
    graphs_ = std::make_unique<GraphCache>(
        device_, settings_.graphs,
        [this](const std::vector<at::Tensor>& inputs) { return Forward(inputs); });
  }
  WarmUp();
}

Model::~Model() = default;

void Model::Load() {
  if (!settings_.fusion) {
    torch::jit::FusionStrategy never;
    torch::jit::setFusionStrategy(never);
  }
  try {
    module_ = torch::jit::load(settings_.artifact, device_);
  } catch (const c10::Error& error) {
    const std::string why = error.what_without_backtrace();
    throw BadInput("cannot load " + settings_.artifact + ": " + why.substr(0, why.find('\n')));
  }
  for (const torch::jit::Module& part : module_.modules()) {
    for (const torch::jit::Method& method : part.get_methods()) {
      KeepNumbersOnHost(method.graph()->block());
    }
  }
  const c10::FunctionSchema& schema = module_.get_method("forward").function().getSchema();
  const std::size_t wanted = schema.arguments().size() - 1;  // Without self.
  std::size_t needed = 0;
  for (const c10::Argument& argument : schema.arguments()) needed += !argument.default_value();
  const std::size_t declared = settings_.inputs.size();
  if (declared > wanted || declared + 1 < needed) {
    throw BadInput("forward takes " + std::to_string(wanted) + " inputs, but " +
                   std::to_string(declared) + " are declared");
  }
  module_.eval();
  if (settings_.half) module_.to(at::kHalf);
  if (!settings_.optimize) return;
  module_ = torch::jit::freeze(module_);
  module_ = torch::jit::optimize_for_inference(module_);
}

void Model::WarmUp() {
  const bool all = graphs_ != nullptr && settings_.graphs && settings_.warm_all;
  for (const std::int64_t items : WarmUpSizes(settings_.max_batch, all)) {
    std::vector<at::Tensor> inputs;
    for (const Spec& spec : settings_.inputs) {
      inputs.push_back(at::zeros(ShapeOf(spec, items), ToTorch(spec)));
    }
    // Thrice: the first runs of a shape profile it, and the next compiles what they saw.
    for (int i = 0; i < 3; ++i) NameOutputs(Compute(inputs));
  }
}

void Model::NameOutputs(const std::vector<at::Tensor>& outputs) {
  const bool batched = settings_.max_batch > 0;
  if (settings_.outputs.empty()) {
    for (const at::Tensor& output : outputs) {
      std::vector<std::int64_t> dims = output.sizes().vec();
      if (batched && !dims.empty()) dims.erase(dims.begin());
      settings_.outputs.push_back({"output" + std::to_string(settings_.outputs.size()),
                                   FromTorch(output.scalar_type()), std::move(dims)});
    }
  }
  if (outputs.size() != settings_.outputs.size()) {
    throw BadInput("forward returns " + std::to_string(outputs.size()) + " tensors, but " +
                   std::to_string(settings_.outputs.size()) + " outputs are declared");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Spec& declared = settings_.outputs[i];
    if (FromTorch(outputs[i].scalar_type()) != declared.type) {
      throw BadInput("output '" + declared.name + "' is declared with another type than " +
                     c10::toString(outputs[i].scalar_type()) + ", which forward returns");
    }
  }
}

std::vector<std::int64_t> Model::ShapeOf(const Spec& spec, std::int64_t items) const {
  std::vector<std::int64_t> shape;
  if (settings_.max_batch > 0) shape.push_back(items);
  for (const std::int64_t dim : spec.dims) shape.push_back(dim == -1 ? 1 : dim);
  return shape;
}

std::vector<at::Tensor> Model::Forward(const std::vector<at::Tensor>& inputs) {
  const c10::InferenceMode inference;
  std::vector<c10::IValue> arguments(inputs.begin(), inputs.end());
  return ToTensors(module_.forward(std::move(arguments)));
}

std::vector<at::Tensor> Model::Compute(const std::vector<at::Tensor>& host) {
  const c10::InferenceMode inference;
  return graphs_ ? graphs_->Run(host) : Forward(host);
}

void Model::Run(const divvy_tensor* inputs, std::uint32_t count, divvy_sink& sink) {
  std::vector<at::Tensor> tensors;
  for (std::uint32_t i = 0; i < count; ++i) {
    const divvy_tensor& input = inputs[i];
    const at::IntArrayRef dims(input.dims, static_cast<std::size_t>(input.rank));
    const at::ScalarType type = ToTorch(settings_.inputs.at(i));
    const bool aligned = reinterpret_cast<std::uintptr_t>(input.data) % 64 == 0;
    if (aligned || graphs_) {
      // Only read, whatever from_blob's signature says; a GPU's inputs are staged anyway.
      tensors.push_back(at::from_blob(const_cast<void*>(input.data), dims, type));
    } else {
      // Vector code on the CPU wants aligned inputs; bytes behind a message's head rarely are.
      tensors.push_back(at::empty(dims, type));
      std::memcpy(tensors.back().data_ptr(), input.data, input.bytes);
    }
  }
  const std::vector<at::Tensor> outputs = Compute(tensors);
  if (outputs.size() != settings_.outputs.size()) {
    throw std::runtime_error("forward returned another number of tensors than before");
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor output = outputs[i].contiguous();
    const Spec& declared = settings_.outputs[i];
    void* const room = sink.output(&sink, declared.name.c_str(), FromTorch(output.scalar_type()),
                                   static_cast<std::int32_t>(output.dim()), output.sizes().data(),
                                   output.nbytes());
    if (room == nullptr) throw std::runtime_error("output '" + declared.name + "' was refused");
    std::memcpy(room, output.data_ptr(), output.nbytes());
  }
}

}  // namespace divvy::torch_engine
