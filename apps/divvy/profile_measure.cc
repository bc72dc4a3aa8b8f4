#include "profile_measure.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string_view>

#include "base/hash.h"
#include "base/number.h"
#include "base/text_safety.h"
#include "engine/service_times.h"
#include "profile_measure_run.h"
#include "worker_command.h"

namespace divvy::app {
namespace {

[[nodiscard]] tl::unexpected<Error> WrongMeasure(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

Result<std::uint64_t> HashOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Fail(ErrorCode::kNotFound, fmt::format("there is no file {}", Quoted(path)));
  std::uint64_t hash = kHashOfNothing;
  std::array<char, 1 << 16> buffer;
  while (file.read(buffer.data(), buffer.size()) || file.gcount() > 0) {
    hash = HashOf({buffer.data(), static_cast<std::size_t>(file.gcount())}, hash);
  }
  return hash;
}

bool IsUrl(std::string_view text) { return text.find("://") != std::string_view::npos; }

// Exactly one of the ways to say what is measured.
Result<void> CheckOneSource(const MeasureOptions& options) {
  const int ways = (options.source.empty() ? 0 : 1) + (options.synthetic.empty() ? 0 : 1) +
                   (options.command.empty() ? 0 : 1);
  if (ways > 1) {
    return WrongMeasure(
        "measure one thing: a model's file or a server's URL, --synthetic or --command");
  }
  if (ways == 0 && options.engine.empty()) {
    return WrongMeasure(
        "say what to measure: a TorchScript file, http://host:port of a server, --synthetic "
        "LATENCIES or --command PROGRAM; or one of the commands import, check, show");
  }
  return {};
}

Result<MeasureSource> UrlSource(const MeasureOptions& options) {
  auto url = client::ParseUrl(options.source);
  if (!url) return Fail(url.error());
  if (url->grpc || url->tls) {
    return WrongMeasure(fmt::format(
        "{}: measured are servers that speak plain HTTP, http://host:port", options.source));
  }
  if (options.name.empty()) {
    return WrongMeasure("--model: say which model of the server to measure");
  }
  MeasureSource source{.model = options.name, .identity = options.source};
  source.url = std::move(*url);
  return source;
}

Result<MeasureSource> CommandSource(const MeasureOptions& options) {
  MeasureSource source{.model = options.name.empty() ? "model" : options.name,
                       .places_itself = true,
                       .identity = options.command};
  // What we add to the words of a worker comes after the user's own.
  source.command = {"/bin/sh", "-c", options.command + " \"$@\"", "sh"};
  return source;
}

Result<MeasureSource> WorkerSource(const MeasureOptions& options) {
  const bool synthetic = !options.synthetic.empty();
  const std::string stem = std::filesystem::path(options.source).stem().string();
  MeasureSource source{.model = !options.name.empty() ? options.name
                                : synthetic           ? "synthetic"
                                : stem.empty()        ? "model"
                                                      : stem};
  const auto program = FindWorkerProgram(options.worker);
  if (!program) return Fail(program.error());
  const std::string named = options.engine.empty() ? "torch" : options.engine;
  const auto engine =
      synthetic ? Result<std::string>("synthetic") : FindEngine(named, options.engines);
  if (!engine) return Fail(engine.error());
  source.command = {*program, "--model", source.model, "--engine", *engine};
  auto& words = source.command;
  source.identity = synthetic ? "synthetic " + options.synthetic : *engine;
  if (!options.source.empty()) {
    const auto hash = HashOfFile(options.source);
    if (!hash) return Fail(hash.error());
    source.identity = fmt::format("{} {:016x} by {}", options.source, *hash, *engine);
    words.insert(words.end(), {"--artifact", options.source});
  }
  std::vector<std::string> inputs = options.inputs;
  std::vector<std::string> outputs = options.outputs;
  if (synthetic) {
    if (const auto table = engine::LatencyTable::Parse(options.synthetic); !table) {
      return WrongMeasure("--synthetic: " + table.error().message);
    }
    words.insert(words.end(), {"--latency-us", options.synthetic});
    if (inputs.empty()) inputs = {"input:FP32:16"};
    if (outputs.empty()) outputs = {"output:FP32:1"};
  } else if (inputs.empty()) {
    return WrongMeasure("--input: say what the model takes, without the batch: x:FP32:3,224,224");
  }
  for (const std::string& input : inputs) words.insert(words.end(), {"--input", input});
  for (const std::string& output : outputs) words.insert(words.end(), {"--output", output});
  // Nothing else is asked for here, and recording every batch takes a GPU the longest time of all.
  if (!synthetic && named == "torch") words.insert(words.end(), {"--option", "warmup=powers"});
  for (const std::string& option : options.engine_options) {
    words.insert(words.end(), {"--option", option});
  }
  return source;
}

void MeasureModel(Invocation& invocation, MeasureOptions& options) {
  options.place.nvml = invocation.nvml;
  if (auto measured = RunMeasurement(options); !measured) Complain(invocation, measured.error());
}

constexpr const char* kMeasureFooter = R"(
Measures how long batches of a model take on parts of a GPU, as the server's router sees it: workers
are started on each part and get one batch after the other. Batches 1, 2, 4 .. that lie on a
straight line between measured ones are left out, as a profile answers them by that line.
A batch at which a worker fails twice, or dies, is left out, and larger ones with it.
  --on mig   one idle MIG instance of each size; processes of one share it by MPS
  --on mps   shares of the SMs as MIG's sizes have them; a daemon is started if there is none.
             Caches and memory are shared by all: --crowded measures with all of them at work
  --on gpu   the whole GPU
  --on cpu   cores of this machine, as many as the parts of --gpu-kind would get
With --save the points are kept in FILE.partial meanwhile, and a second run goes on where it stopped.
docs/design/profile.md says how and why.

Examples:
  divvy profile resnet50.pt --input x:FP32:3,224,224 --save resnet50.csv
  divvy profile --synthetic 1:900,64:12000 --on cpu -o csv
  divvy profile http://127.0.0.1:8000 --model bert --partitions 7g --gpu-kind a100-80gb
  divvy profile --command "python3 server.py" --model mine --partitions 60sm,132sm)";

void AddSourceOptions(CLI::App& profile, MeasureOptions& options) {
  profile.add_option("MODEL", options.source,
                     "What to measure: a TorchScript file, or the URL of a KServe v2 server");
  profile.add_option("--model", options.name, "The model's name; default: the file's")
      ->type_name("NAME");
  profile
      .add_option("--input", options.inputs,
                  "What the model takes, without the batch: x:FP32:3,224,224; again for each")
      ->type_name("NAME:TYPE:DIMS")
      ->allow_extra_args(false);
  profile.add_option("--output-tensor", options.outputs, "What it gives, likewise")
      ->type_name("NAME:TYPE:DIMS")
      ->allow_extra_args(false);
  profile
      .add_option("--synthetic", options.synthetic,
                  "No model, but one that takes this long: microseconds by items, 1:900,8:3100")
      ->type_name("LIST");
  profile
      .add_option("--command", options.command,
                  "A program that serves the model: started with --listen unix:PATH behind it")
      ->type_name("PROGRAM");
  profile.add_option("--engine", options.engine, "What runs the file: torch, or a library")
      ->type_name("ENGINE");
  profile.add_option("--option", options.engine_options, "For the engine; again for each")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
}

void AddPlaceOptions(CLI::App& profile, MeasureOptions& options) {
  profile.add_option("--on", options.place.on, "What partitions are")
      ->check(CLI::IsMember({"auto", "cpu", "mps", "mig", "gpu"}))
      ->capture_default_str();
  profile.add_option("--gpu", options.place.gpu, "Which GPU: an index, or a UUID's beginning");
  profile
      .add_option("--gpu-kind", options.place.kind,
                  "Whose sizes to take where no GPU is asked, such as h200")
      ->type_name("KIND");
  profile.add_option("--partitions", options.place.partitions, "Only these: 16sm,3g,7g.141gb")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false);
  profile.add_flag("--crowded", options.place.crowded,
                   "With MPS: while as many partitions of the size as the GPU holds work too");
  profile.add_option("--processes", options.processes, "Processes at once on a partition: 1,2,4")
      ->type_name("LIST")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Range(1, 48));
  profile.add_option("--worker", options.worker, "divvy-worker, if it is not beside divvy");
  profile.add_option("--engines", options.engines, "Folder of engine libraries");
}

void AddPaceOptions(CLI::App& profile, MeasureOptions& options) {
  profile.add_option("--max-batch", options.max_batch, "The largest batch")
      ->check(CLI::Range(1, 65536))
      ->capture_default_str();
  profile.add_flag("--all-points", options.all_points, "Leave no batch out");
  profile
      .add_option("--precision", options.precision_percent,
                  "A point ends when its mean is known so well, in percent with 95 % confidence")
      ->type_name("PERCENT")
      ->check(NumberIn({0.01, 50.0}))
      ->capture_default_str();
  profile.add_option("--point-limit", options.point_limit_s, "At the latest after so many seconds")
      ->type_name("SECONDS")
      ->check(NumberIn({0.01, 3600.0}))
      ->capture_default_str();
  profile.add_option("--save", options.save, "Profile file to write")->type_name("FILE");
  profile.add_flag("--restart", options.restart, "Begin anew, whatever FILE.partial has");
  profile.add_option("-o,--output", options.format, "What goes to standard output")
      ->check(CLI::IsMember({"table", "json", "csv"}))
      ->capture_default_str();
}

}  // namespace

Result<MeasureSource> FindSource(const MeasureOptions& options) {
  if (auto fine = CheckOneSource(options); !fine) return Fail(fine.error());
  if (!options.name.empty() && !IsName(options.name)) {
    return WrongMeasure(fmt::format("--model: {} is no name", Quoted(options.name)));
  }
  if (std::set<int>(options.processes.begin(), options.processes.end()).size() !=
      options.processes.size()) {
    return WrongMeasure(
        fmt::format("--processes: {} has a number twice", fmt::join(options.processes, ",")));
  }
  if (IsUrl(options.source)) return UrlSource(options);
  return options.command.empty() ? WorkerSource(options) : CommandSource(options);
}

Result<std::map<std::string, kserve::Shape>> InputShapes(const std::vector<std::string>& inputs) {
  std::map<std::string, kserve::Shape> shapes;
  for (const std::string& input : inputs) {
    const std::size_t last = input.rfind(':');
    const std::size_t middle = last == 0 ? std::string::npos : input.rfind(':', last - 1);
    if (last == std::string::npos || middle == std::string::npos) {
      return WrongMeasure(fmt::format("--input: {} is not NAME:TYPE:DIMS, such as x:FP32:3,224,224",
                                      Quoted(input)));
    }
    kserve::Shape& shape = shapes[input.substr(0, middle)];
    std::string_view dims = std::string_view(input).substr(last + 1);
    while (!dims.empty()) {
      const std::size_t comma = std::min(dims.find(','), dims.size());
      const auto dim = ParseInteger(dims.substr(0, comma));
      if (!dim || *dim < 1) {
        return WrongMeasure(
            fmt::format("--input: {}: dimensions are whole numbers from 1", Quoted(input)));
      }
      shape.push_back(*dim);
      dims.remove_prefix(std::min(comma + 1, dims.size()));
    }
  }
  return shapes;
}

void AddMeasure(CLI::App& profile, Invocation& invocation) {
  auto options = std::make_shared<MeasureOptions>();  // Shared with the callback.
  AddSourceOptions(profile, *options);
  AddPlaceOptions(profile, *options);
  AddPaceOptions(profile, *options);
  profile.footer(kMeasureFooter);
  profile.callback([&profile, &invocation, options] {
    if (profile.get_subcommands().empty()) MeasureModel(invocation, *options);
  });
}

}  // namespace divvy::app
