#include "collocate_ways.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "collocate_meters.h"
#include "device/mps.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "run_gpu.h"
#include "run_options.h"
#include "run_sharing.h"
#include "run_watch.h"

namespace divvy::app {
namespace {

using workload::CollocatedJob;
using workload::SharingMode;

[[nodiscard]] Result<TogetherJob> Prepare(const CollocatedJob& job, const std::string& log) {
  TogetherJob prepared{.name = job.name,
                       .command = job.command,
                       .directory = job.directory,
                       .environment = {},
                       .ready = {},
                       .waits = job.waits,
                       .progress = {},
                       .latency = {},
                       .log = log};
  if (job.shell) prepared.command = {"/bin/sh", "-c", job.command.front()};
  // Else what Python prints comes in bursts, and says little of when it was so.
  prepared.environment["PYTHONUNBUFFERED"] = "1";
  for (const std::string& setting : job.environment) {
    const std::size_t equals = setting.find('=');
    prepared.environment[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  const auto read = [&](const std::string& text, std::optional<measure::LinePattern>& pattern,
                        const char* key, bool numbers) -> Result<void> {
    if (text.empty()) return {};
    auto parsed = measure::LinePattern::Parse(text, numbers);
    if (!parsed) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {}", key, parsed.error().message));
    }
    pattern = *std::move(parsed);
    return {};
  };
  if (auto done = read(job.ready, prepared.ready, "ready", false); !done) return Fail(done.error());
  if (auto done = read(job.progress, prepared.progress, "progress", true); !done) {
    return Fail(done.error());
  }
  if (auto done = read(job.latency, prepared.latency, "latency", true); !done) {
    return Fail(done.error());
  }
  return prepared;
}

// Plain processes; CUDA must not find an MPS daemon that happens to be there.
[[nodiscard]] Result<void> TakeTurns(const SharedGpu& gpu, PreparedWay& way) {
  RunOptions options;
  options.mps = false;
  options.gpu = gpu.wanted;
  auto sharing = ShareGpu(options, gpu.nvml, "");
  if (!sharing) return Fail(sharing.error());
  for (TogetherJob& job : way.jobs) {
    for (const auto& [name, value] : sharing->environment) job.environment[name] = value;
  }
  return {};
}

[[nodiscard]] Result<void> UseMps(const std::vector<measure::RunRow>& rows, const SharedGpu& gpu,
                                  PreparedWay& way) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    RunOptions options;
    options.latency = true;  // All alike: the usual priority.
    options.gpu = gpu.wanted;
    options.sm_percent = rows[i].share;
    // MPS as NVIDIA made it is what the gate is compared with.
    auto sharing = ShareGpu(options, gpu.nvml, "");
    if (!sharing) return Fail(sharing.error());
    if (!sharing->by_mps) {
      way.impossible = sharing->why_not_mps;
      return {};
    }
    for (const auto& [name, value] : sharing->environment) way.jobs[i].environment[name] = value;
    if (!sharing->mps) continue;
    way.jobs[i].inherited_fd = sharing->mps->share();
    way.daemons.push_back(*std::move(sharing->mps));
  }
  return {};
}

// The largest instances that the GPU is cut into, one for each job.
[[nodiscard]] Result<void> UseMig(const SharedGpu& gpu, PreparedWay& way) {
  const auto library = device::NvmlLibrary::Open(gpu.nvml);
  if (!library) {
    way.impossible = library.error().message;
    return {};
  }
  const auto node = device::ReadNode(**library);
  if (!node) {
    way.impossible = node.error().message;
    return {};
  }
  struct Instance {
    std::string uuid;
    int slices;
  };
  std::vector<Instance> instances;
  for (const device::GpuState& state : node->gpus) {
    if (!IsWanted(state, gpu.wanted)) continue;
    for (const device::GpuInstanceState& instance : state.instances) {
      if (instance.compute.empty()) continue;
      const auto& profile =
          state.model.profiles[static_cast<std::size_t>(instance.instance.profile)];
      instances.push_back({instance.compute.front().uuid, profile.compute_slices});
    }
  }
  if (instances.size() < way.jobs.size()) {
    way.impossible = fmt::format(
        "the GPU is cut into {} MIG instances and there are {} jobs; divvy apply cuts it",
        instances.size(), way.jobs.size());
    return {};
  }
  std::ranges::stable_sort(instances, std::ranges::greater(), &Instance::slices);
  for (std::size_t i = 0; i < way.jobs.size(); ++i) {
    way.jobs[i].environment["CUDA_VISIBLE_DEVICES"] = instances[i].uuid;
  }
  return {};
}

// Each through `divvy run`, as a user would. What that takes to start is not the job's time: a
// shell says when it is over and becomes the job.
void UseGate(const std::vector<CollocatedJob>& jobs, const SharedGpu& gpu,
             const std::string& run_id, PreparedWay& way) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error);
  for (std::size_t i = 0; i < way.jobs.size(); ++i) {
    const bool latency = jobs[i].job_class == workload::JobClass::kLatency;
    std::vector<std::string> words = {self,  "--nvml",  gpu.nvml,
                                      "run", "--class", latency ? "latency" : "batch"};
    if (!gpu.wanted.empty()) words.insert(words.end(), {"--gpu", gpu.wanted});
    if (!gpu.library.empty()) words.insert(words.end(), {"--library", gpu.library});
    way.jobs[i].start_mark = "divvy-start-" + run_id;
    words.insert(words.end(), {"--", "/bin/sh", "-c", "echo \"$1\"; shift; exec \"$@\"", "sh",
                               way.jobs[i].start_mark});
    words.insert(words.end(), way.jobs[i].command.begin(), way.jobs[i].command.end());
    way.jobs[i].command = std::move(words);
  }
}

}  // namespace

Result<std::vector<workload::SharingMode>> ModesOf(const std::vector<std::string>& words) {
  std::vector<std::string_view> names;
  for (const workload::SharingMode mode : workload::kSharingModes) {
    if (mode != workload::SharingMode::kOneByOne) names.push_back(NameOf(mode));
  }
  std::vector<workload::SharingMode> modes;
  for (const std::string& word : words) {
    const auto at = std::ranges::find(names, word);
    if (at == names.end()) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("--modes: {} is not {}{}", Quoted(word),
                                                           OneOf(names), DidYouMean(word, names)));
    }
    // In the names' order, after one-by-one.
    const workload::SharingMode mode =
        workload::kSharingModes[static_cast<std::size_t>(at - names.begin()) + 1];
    if (std::ranges::find(modes, mode) != modes.end()) {
      return Fail(ErrorCode::kInvalidArgument, fmt::format("--modes: {} stands there twice", word));
    }
    modes.push_back(mode);
  }
  if (modes.empty()) {
    modes = {workload::SharingMode::kTimeSlicing, workload::SharingMode::kMps,
             workload::SharingMode::kMig, workload::SharingMode::kGate};
  }
  return modes;
}

std::string NoteOnWay(const std::optional<workload::SharingMode>& mode) {
  const char* const path = std::getenv("PATH");
  if (mode != workload::SharingMode::kGate || device::FindMpsControl(path == nullptr ? "" : path)) {
    return {};
  }
  return " (without MPS, whose nvidia-cuda-mps-control is not on PATH: by turns)";
}

std::string PlainName(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '.';
    name += plain ? c : '_';
  }
  return name.substr(0, 100);
}

Result<void> CheckJobs(const std::vector<CollocatedJob>& jobs, std::string_view file_name) {
  for (const CollocatedJob& job : jobs) {
    std::string wrong;
    std::error_code error;
    if (job.command.empty()) {
      wrong = "has no 'command', so it cannot be run; `divvy advise` does without";
    } else if (!job.directory.empty() && !std::filesystem::is_directory(job.directory, error)) {
      wrong = fmt::format("directory: {} is no folder; it is to run there", Quoted(job.directory));
    } else if (auto prepared = Prepare(job, ""); !prepared) {
      wrong = prepared.error().message;
    }
    if (wrong.empty()) continue;
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}:{}: job {}: {}", file_name, job.line, job.name, wrong));
  }
  return {};
}

Result<PreparedWay> PrepareWay(const std::vector<measure::RunRow>& rows,
                               const std::vector<CollocatedJob>& jobs, const SharedGpu& gpu,
                               const std::string& logs, const std::string& run_id) {
  PreparedWay way;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    auto job = Prepare(jobs[i], fmt::format("{}/{}.{}.{}.log", logs, PlainName(rows[i].workload),
                                            i + 1, PlainName(jobs[i].name)));
    if (!job) return Fail(job.error());
    job->environment[kRunVariable] = MarkOfRun(run_id);
    way.jobs.push_back(*std::move(job));
  }
  const SharingMode mode = rows.front().mode.value_or(SharingMode::kOneByOne);
  if (mode == SharingMode::kMps || mode == SharingMode::kMpsShares || mode == SharingMode::kGate) {
    // Clients of the last workload were ended in the middle of their work, which MPS' makers call
    // unsafe. Jobs that joined its daemon within the second were once refused the GPU.
    const auto choice = ChooseGpu(gpu.wanted, std::getenv("CUDA_VISIBLE_DEVICES"), gpu.nvml);
    if (choice && choice->gpu) AwaitEndOfDaemon(*choice->gpu);
  }
  Result<void> done;
  switch (mode) {
    case SharingMode::kOneByOne:  // Alone.
    case SharingMode::kTimeSlicing:
      done = TakeTurns(gpu, way);
      break;
    case SharingMode::kMps:
    case SharingMode::kMpsShares:
      done = UseMps(rows, gpu, way);
      break;
    case SharingMode::kMig:
      done = UseMig(gpu, way);
      break;
    case SharingMode::kGate:
      UseGate(jobs, gpu, run_id, way);
      break;
  }
  if (!done) return Fail(done.error());
  return way;
}

}  // namespace divvy::app
