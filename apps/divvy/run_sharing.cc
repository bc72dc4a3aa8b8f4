#include "run_sharing.h"

#include <fmt/format.h>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>
#include <vector>

#include "device/mps.h"
#include "run_gpu.h"

namespace divvy::app {
namespace {

constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY";
// Where CUDA looks for a daemon when nobody says where. A test, which cannot have that place for
// itself, names another.
constexpr const char* kDefaultPipe = "/tmp/nvidia-mps";
constexpr const char* kDefaultPipeVariable = "DIVVY_MPS_NODE_PIPE";
// A folder without a daemon: CUDA then does without MPS.
constexpr const char* kNoPipe = "/nonexistent";

const char* Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// What makes a client of MPS behave by its class, whosever the daemon is.
void AddClientSettings(const RunOptions& options, Sharing& sharing) {
  sharing.by_mps = true;
  sharing.environment["CUDA_MPS_CLIENT_PRIORITY"] = options.latency ? "0" : "1";
  // A client of MPS has two ways into the GPU unless it asks for more, and a program with many
  // streams then queues behind itself. Many more cost every kernel on the GPU a little, and a
  // waiting job's most of all.
  if (Variable("CUDA_DEVICE_MAX_CONNECTIONS") == nullptr) {
    sharing.environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "4";
  }
  if (options.sm_percent) {
    sharing.environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] = std::to_string(*options.sm_percent);
  }
}

void TakeTurns(const RunOptions& options, const std::string& why, Sharing& sharing) {
  sharing.line = "time slicing: " + why;
  sharing.why_not_mps = why;
  if (options.sm_percent) {
    sharing.line += fmt::format("; --sm-percent {} has no effect", *options.sm_percent);
  }
  if (options.asks_for_mps) sharing.line += "; --mps has no effect";
}

std::string PipeOfNode() {
  const char* const named = Variable(kDefaultPipeVariable);
  return named == nullptr ? kDefaultPipe : named;
}

// A daemon of the node's, started by its administrator. A second one beside it could not
// use a GPU in exclusive mode, and would only take turns with the first in any other.
bool HasDaemonOfNode(const std::string& program) {
  const std::string pipe = PipeOfNode();
  std::error_code error;
  if (!std::filesystem::is_socket(fmt::format("{}/control", pipe), error)) return false;
  const device::MpsControl control(program, {pipe, pipe});
  return control.Ask("get_server_list", MpsPace::FromEnvironment().answer).has_value();
}

void ChooseDevice(const JobGpu& gpu, Sharing& sharing) {
  sharing.environment["CUDA_VISIBLE_DEVICES"] = gpu.id;
  sharing.environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID";
}

// In a context of its own, whose time slices the gate makes long.
void StayApart(const RunOptions& options, const GpuChoice& choice, Sharing& sharing) {
  sharing.apart = true;
  // Else CUDA would join a daemon that happens to be there.
  sharing.environment[kPipeVariable] = kNoPipe;
  if (choice.gpu) ChooseDevice(*choice.gpu, sharing);
  if (!choice.why_none.empty()) return TakeTurns(options, choice.why_none, sharing);
  sharing.line =
      "time slices of its own, for which batch jobs are interrupted; MPS is left to them";
}

void UseMps(const RunOptions& options, const GpuChoice& choice, const std::string& gate,
            Sharing& sharing) {
  const char* const path = std::getenv("PATH");
  const auto program = device::FindMpsControl(path == nullptr ? "" : path);
  if (program && HasDaemonOfNode(*program)) {
    AddClientSettings(options, sharing);
    sharing.line = fmt::format("MPS (this node's daemon at {}, used as it is)", PipeOfNode());
    return;
  }
  // In exclusive mode either MPS' server has the GPU, with all jobs, or this one alone.
  const bool only_by_mps = program && choice.gpu && choice.gpu->exclusive;
  if (options.apart && !only_by_mps) return StayApart(options, choice, sharing);
  if (!program) return TakeTurns(options, "nvidia-cuda-mps-control is not on PATH", sharing);
  if (!choice.gpu) return TakeTurns(options, choice.why_none, sharing);
  auto use = MpsUse::Begin(*choice.gpu, *program, gate);
  if (!use) {
    return TakeTurns(options,
                     fmt::format("the MPS daemon of {} does not start: {}", choice.gpu->label,
                                 use.error().message),
                     sharing);
  }
  AddClientSettings(options, sharing);
  sharing.environment[kPipeVariable] = use->home().pipe;
  sharing.environment["CUDA_MPS_LOG_DIRECTORY"] = use->home().log;
  // The daemon has one device only, and counts it from 0.
  sharing.environment["CUDA_VISIBLE_DEVICES"] =
      choice.gpu->has_uuid() ? choice.gpu->id : std::string("0");
  if (!choice.gpu->has_uuid()) sharing.gpu_outside = choice.gpu->id;
  sharing.line = fmt::format("MPS (daemon of {} {})", choice.gpu->label,
                             use->started() ? "started" : "joined");
  if (options.apart) {
    sharing.line += fmt::format(
        ": {} is in compute mode exclusive-process, which has no room for time slices beside it",
        choice.gpu->label);
  }
  sharing.mps = *std::move(use);
}

constexpr std::string_view kFormer = "DIVVY_FORMER_";
constexpr std::string_view kSet = "DIVVY_SET_";

std::string ValueOf(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

}  // namespace

void LeaveOuterRun() {
  std::vector<std::string> names;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (text.starts_with(kSet) && equals != std::string_view::npos)
      names.emplace_back(text.substr(kSet.size(), equals - kSet.size()));
  }
  for (const std::string& name : names) {
    const std::string set = std::string(kSet) + name;
    const std::string former = std::string(kFormer) + name;
    if (ValueOf(set) == ValueOf(name)) {
      const std::string value = ValueOf(former);
      value.empty() ? unsetenv(name.c_str()) : setenv(name.c_str(), value.c_str(), 1);
    }
    unsetenv(set.c_str());
    unsetenv(former.c_str());
  }
}

std::map<std::string, std::optional<std::string>> WithFormerValues(const Sharing& sharing) {
  auto all = sharing.environment;
  for (const auto& [name, value] : sharing.environment) {
    const bool says_gpu = name == "CUDA_VISIBLE_DEVICES" || name == "CUDA_DEVICE_ORDER";
    if (says_gpu && (name == "CUDA_DEVICE_ORDER" || !sharing.gpu_outside)) continue;
    all[std::string(kSet) + name] = value;
    all[std::string(kFormer) + name] = says_gpu ? *sharing.gpu_outside : ValueOf(name);
  }
  return all;
}

Result<Sharing> ShareGpu(const RunOptions& options, const std::string& nvml,
                         const std::string& gate) {
  Sharing sharing;
  const char* const pipe = Variable(kPipeVariable);
  const bool no_mps_here = pipe != nullptr && std::string_view(pipe) == kNoPipe;
  const bool own = options.mps && pipe == nullptr;
  GpuChoice choice;
  if (own || !options.gpu.empty()) {
    auto chosen = ChooseGpu(options.gpu, std::getenv("CUDA_VISIBLE_DEVICES"), nvml);
    if (!chosen) return Fail(chosen.error());
    choice = *std::move(chosen);
  }
  if (choice.gpu && !options.gpu.empty()) ChooseDevice(*choice.gpu, sharing);
  if (options.apart && (!options.mps || no_mps_here)) {
    StayApart(options, choice, sharing);
  } else if (!options.mps) {
    TakeTurns(options, "--no-mps was given", sharing);
    // Else CUDA would join a daemon that happens to be there.
    sharing.environment[kPipeVariable] = kNoPipe;
  } else if (no_mps_here) {
    TakeTurns(options, fmt::format("MPS is switched off here ({}={})", kPipeVariable, pipe),
              sharing);
  } else if (pipe != nullptr) {
    AddClientSettings(options, sharing);
    sharing.line = fmt::format("MPS ({}={} was set already: used as it is)", kPipeVariable, pipe);
    std::error_code error;
    if (!std::filesystem::is_directory(pipe, error)) {
      sharing.line += "; there is no such folder now, and without a daemon there jobs take turns";
    }
  } else {
    UseMps(options, choice, gate, sharing);
  }
  if (!choice.unchecked.empty()) {
    sharing.line += fmt::format("; --gpu {} was not checked: {}", options.gpu, choice.unchecked);
  }
  if (!sharing.by_mps && choice.gpu && choice.gpu->exclusive) {
    sharing.line += fmt::format("; {} is in compute mode exclusive-process: nobody else can use it",
                                choice.gpu->label);
  }
  return sharing;
}

}  // namespace divvy::app
