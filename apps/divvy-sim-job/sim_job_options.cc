#include "sim_job_options.h"

#include <charconv>
#include <string_view>
#include <utility>

namespace divvy::tests {
namespace {

template <typename T>
bool ToNumber(std::string_view text, T& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size() && number >= 0;
}

template <typename T, std::size_t kSize>
bool ToChoice(std::string_view text, const std::pair<std::string_view, T> (&choices)[kSize],
              T& value) {
  for (const auto& [word, choice] : choices) {
    if (text != word) continue;
    value = choice;
    return true;
  }
  return false;
}

constexpr std::pair<std::string_view, Lookup> kLookups[] = {{"getproc", Lookup::kByVersion},
                                                            {"getproc-v1", Lookup::kByFirstVersion},
                                                            {"dlsym", Lookup::kByName},
                                                            {"linked", Lookup::kLinked}};
constexpr std::pair<std::string_view, JobStream> kStreams[] = {{"default", JobStream::kDefault},
                                                               {"own", JobStream::kOwn},
                                                               {"ptds", JobStream::kPerThread},
                                                               {"pool", JobStream::kOfPool}};
constexpr std::pair<std::string_view, JobLaunch> kLaunches[] = {
    {"plain", JobLaunch::kPlain}, {"ex", JobLaunch::kEx}, {"cooperative", JobLaunch::kCooperative}};
constexpr std::pair<std::string_view, JobSync> kSyncs[] = {
    {"stream", JobSync::kStream}, {"event", JobSync::kEvent}, {"ctx", JobSync::kContext},
    {"query", JobSync::kQuery},   {"memcpy", JobSync::kCopy}, {"query-event", JobSync::kQueryEvent},
    {"host", JobSync::kHost}};

bool SetFlag(std::string_view name, JobOptions& options) {
  if (name == "--marked") return options.marked = true;
  if (name == "--fork-child") return options.fork_child = true;
  if (name == "--nccl") return options.nccl = true;
  if (name == "--ptds") {
    options.stream = JobStream::kPerThread;
    return true;
  }
  return false;
}

bool SetValue(std::string_view name, std::string_view value, JobOptions& options) {
  if (name == "--lookup") return ToChoice(value, kLookups, options.lookup);
  if (name == "--stream") return ToChoice(value, kStreams, options.stream);
  if (name == "--launch") return ToChoice(value, kLaunches, options.launch);
  if (name == "--sync") return ToChoice(value, kSyncs, options.sync);
  if (name == "--kernels") return ToNumber(value, options.kernels);
  if (name == "--us") return ToNumber(value, options.us);
  if (name == "--blocks") return ToNumber(value, options.blocks);
  if (name == "--block-threads") return ToNumber(value, options.threads_per_block);
  if (name == "--rate") return ToNumber(value, options.rate);
  if (name == "--requests" || name == "--steps") return ToNumber(value, options.count);
  if (name == "--secs") return ToNumber(value, options.secs);
  if (name == "--think-us") return ToNumber(value, options.think_us);
  if (name == "--alloc") return ToNumber(value, options.alloc);
  if (name == "--threads") return ToNumber(value, options.threads);
  if (name == "--gpus") return ToNumber(value, options.gpus);
  if (name == "--waits") return ToNumber(value, options.waits);
  if (name == "--seed") return ToNumber(value, options.seed);
  if (name == "--graph") {
    options.graph = value == "1";
    return value == "0" || value == "1";
  }
  return false;
}

}  // namespace

const char* JobUsage() {
  return "usage: divvy-sim-job infer|train [--kernels N] [--us D] [--blocks B] [--block-threads "
         "T]\n"
         "  [--graph 0|1] [--rate R] [--requests N | --steps N] [--secs S] [--think-us U]\n"
         "  [--lookup getproc|getproc-v1|dlsym|linked] [--stream default|own|ptds|pool]\n"
         "  [--launch plain|ex|cooperative] [--sync "
         "stream|event|ctx|query|query-event|memcpy|host]\n"
         "  [--marked] [--waits W] [--alloc BYTES] [--threads T] [--gpus G] [--fork-child] "
         "[--nccl] "
         "[--seed S]\n";
}

std::optional<JobOptions> ParseJobOptions(int argc, char** argv, std::string& problem) {
  JobOptions options;
  const std::string_view kind = argc > 1 ? argv[1] : "";
  if (kind != "infer" && kind != "train") {
    problem = "the first word is infer or train";
    return std::nullopt;
  }
  options.inference = kind == "infer";
  for (int i = 2; i < argc; ++i) {
    if (SetFlag(argv[i], options)) continue;
    if (i + 1 >= argc || !SetValue(argv[i], argv[i + 1], options)) {
      problem = std::string("don't understand ") + argv[i];
      return std::nullopt;
    }
    ++i;
  }
  if (options.count == 0 && options.secs == 0) options.secs = 1;
  if (options.threads < 1 || options.kernels < 1 || options.blocks < 1 || options.gpus < 1 ||
      options.waits < 1) {
    problem = "threads, kernels, blocks, gpus and waits begin at 1";
    return std::nullopt;
  }
  if (options.graph && options.stream == JobStream::kDefault) {
    problem = "the default stream can't be captured: a graph needs --stream own or ptds";
    return std::nullopt;
  }
  return options;
}

}  // namespace divvy::tests
