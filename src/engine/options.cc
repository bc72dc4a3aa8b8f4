#include "engine/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "engine/plugin.h"
#include "engine/service_times.h"
#include "engine/synthetic.h"

namespace divvy::engine {
namespace {

constexpr std::string_view kHelp =
    R"(divvy-worker: runs one model, one batch at a time, and serves it over HTTP (KServe v2)

usage: divvy-worker --listen ADDRESS --model NAME --engine ENGINE [options]

  --listen ADDRESS       unix:/path, or host:port
  --model NAME           what the model is called
  --engine ENGINE        synthetic, or the path of an engine's library (divvy_engine.h)
  --artifact FILE        the model's file
  --max-batch N          items of the largest batch (default 1); 0: no batch dimension
  --input NAME:TYPE:DIMS an input, without the batch dimension, e.g. image:FP32:3,224,224;
                         -1 is any size, no DIMS one value an item; again for each input
  --output NAME:TYPE:DIMS
                         an output, in the same way
  --device DEVICE        cpu (default), cuda:0, ...
  --threads N            threads to compute with; 0 (default): the engine's choice
  --option KEY=VALUE     for the engine; again for each
  --describe             print the model's metadata as JSON and exit
  --parent-fd FD         exit when the other end of this pipe or socket closes
  --help                 this text

A synthetic model takes time and computes nothing:
  --latency-us LIST      microseconds of a batch of 1, 2, .. items: 900,1400,1850; or of the counts
                         given, 1:900,8:3100, with straight lines between (default: no time)
  --spread SIGMA         times vary: deviation of their logarithm (default 0); the mean stays
  --seed N               of the variation (default 1)

SIGTERM answers what has come, then exits with 0. Exit statuses: 0 done, 1 failed, 2 usage.
)";

constexpr std::array<std::string_view, 15> kFlags = {
    "--listen", "--model",  "--engine",   "--artifact",  "--max-batch",
    "--input",  "--output", "--device",   "--threads",   "--option",
    "--spread", "--seed",   "--describe", "--parent-fd", "--latency-us"};
constexpr int kMostBatch = 65536;

tl::unexpected<Error> Refuse(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<int> Whole(std::string_view flag, std::string_view value, IntRange range) {
  const std::optional<int> number = ParseInteger(value);
  if (!number || *number < range.least || *number > range.most) {
    return Refuse(fmt::format("{} {}: must be {}", flag, Quoted(value), Describe(range)));
  }
  return *number;
}

// "x:FP32:3,224,224". The name may have colons of its own.
Result<kserve::TensorMetadata> ParseTensor(std::string_view flag, std::string_view value) {
  const auto refuse = [&](std::string_view why) {
    return Refuse(fmt::format("{} {}: {}; write NAME:TYPE:DIMS, such as x:FP32:3,224,224", flag,
                              Quoted(value), why));
  };
  const std::size_t last = value.rfind(':');
  if (last == std::string_view::npos || last == 0) return refuse("type and dimensions are missing");
  const std::size_t middle = value.rfind(':', last - 1);
  if (middle == std::string_view::npos) return refuse("type or dimensions are missing");
  const std::string_view name = value.substr(0, middle);
  const auto type = kserve::ParseDataType(value.substr(middle + 1, last - middle - 1));
  if (!IsName(name)) return refuse("the name is none");
  if (!type) return refuse("there is no such type");
  kserve::TensorMetadata tensor{.name = std::string(name), .type = *type, .shape = {}};
  std::string_view dims = value.substr(last + 1);
  while (!dims.empty()) {
    const std::size_t comma = std::min(dims.find(','), dims.size());
    const std::optional<int> dim = ParseInteger(dims.substr(0, comma));
    if (!dim || *dim < -1 || *dim == 0) return refuse("dimensions are from 1, or -1");
    tensor.shape.push_back(*dim);
    if (comma + 1 == dims.size()) return refuse("a dimension is missing at the end");
    dims.remove_prefix(std::min(comma + 1, dims.size()));
  }
  return tensor;
}

Result<void> AddTensor(std::vector<kserve::TensorMetadata>& to, std::string_view flag,
                       std::string_view value) {
  Result<kserve::TensorMetadata> tensor = ParseTensor(flag, value);
  if (!tensor) return Fail(tensor.error());
  for (const kserve::TensorMetadata& other : to) {
    if (other.name == tensor->name) {
      return Refuse(fmt::format("{} {}: '{}' is declared twice", flag, Quoted(value), other.name));
    }
  }
  to.push_back(std::move(*tensor));
  return {};
}

Result<void> SetNumber(Options& options, std::string_view flag, std::string_view value) {
  if (flag == "--spread") {
    const std::optional<double> spread = ParseReal(value);
    if (!spread || *spread < 0 || *spread > 2) {
      return Refuse(
          fmt::format("--spread {}: must be {}", Quoted(value), Describe(RealRange{0, 2})));
    }
    options.spread = *spread;
    return {};
  }
  if (flag == "--seed") {
    const std::optional<std::uint64_t> seed = ParseUnsigned(value);
    if (!seed) return Refuse(fmt::format("--seed {}: must be a whole number", Quoted(value)));
    options.seed = *seed;
    return {};
  }
  const bool batch = flag == "--max-batch";
  const Result<int> number = Whole(flag, value, {0, batch ? kMostBatch : 1 << 20});
  if (!number) return Fail(number.error());
  if (batch) {
    options.config.max_batch = *number;
  } else if (flag == "--threads") {
    options.config.threads = *number;
  } else {
    options.parent_fd = *number;
  }
  return {};
}

Result<void> Set(Options& options, std::string_view flag, std::string_view value) {
  EngineConfig& config = options.config;
  const std::array<std::pair<std::string_view, std::string*>, 6> texts = {{
      {"--listen", &options.listen},
      {"--model", &config.model},
      {"--engine", &options.engine},
      {"--artifact", &config.artifact},
      {"--device", &config.device},
      {"--latency-us", &options.latency_us},
  }};
  for (const auto& [name, text] : texts) {
    if (flag != name) continue;
    *text = value;
    return {};
  }
  if (flag == "--input") return AddTensor(config.inputs, flag, value);
  if (flag == "--output") return AddTensor(config.outputs, flag, value);
  if (flag == "--option") {
    const std::size_t equals = value.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      return Refuse(fmt::format("--option {}: write KEY=VALUE", Quoted(value)));
    }
    config.options[std::string(value.substr(0, equals))] = value.substr(equals + 1);
    return {};
  }
  return SetNumber(options, flag, value);
}

Result<void> CheckWhole(const Options& options) {
  if (!IsName(options.config.model)) {
    return Refuse(fmt::format("--model {}: must be a name", Quoted(options.config.model)));
  }
  if (options.engine.empty())
    return Refuse("--engine is missing: synthetic, or an engine's library");
  if (options.listen.empty() && !options.describe) {
    return Refuse("--listen is missing: unix:/path or host:port");
  }
  return {};
}

}  // namespace

std::string_view HelpText() { return kHelp; }

Result<Options> ParseOptions(std::span<const std::string_view> words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view flag = words[i];
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      return options;
    }
    if (std::find(kFlags.begin(), kFlags.end(), flag) == kFlags.end()) {
      return Refuse(fmt::format("{} is no option of divvy-worker{}; see --help", Quoted(flag),
                                DidYouMean(flag, kFlags)));
    }
    if (flag == "--describe") {
      options.describe = true;
      continue;
    }
    if (i + 1 == words.size()) return Refuse(fmt::format("{} needs a value; see --help", flag));
    if (auto set = Set(options, flag, words[++i]); !set) return Fail(set.error());
  }
  if (auto whole = CheckWhole(options); !whole) return Fail(whole.error());
  return options;
}

Result<Lane::MakeEngine> EngineMaker(const Options& options) {
  if (options.engine != "synthetic") {
    return
        [library = options.engine, config = options.config]() -> Result<std::unique_ptr<Engine>> {
          return PluginEngine::Make(library, config);
        };
  }
  Result<LatencyTable> table = LatencyTable::Parse(options.latency_us);
  if (!table) return Refuse(fmt::format("--latency-us: {}", table.error().message));
  return [config = options.config,
          times = ServiceTimes(std::move(*table), options.spread,
                               options.seed)]() -> Result<std::unique_ptr<Engine>> {
    return SyntheticEngine::Make(config, times);
  };
}

}  // namespace divvy::engine
