#include "commands.h"

#include <fmt/format.h>

#include <cstdio>
#include <map>
#include <memory>
#include <string>

#include "device/simulator/cuda_machine.h"
#include "device/simulator/faults.h"
#include "device/simulator/gpu_spec.h"
#include "device/simulator/operations.h"
#include "device/simulator/scenario.h"
#include "state_file.h"

namespace divvy::app {
namespace {

namespace sim = device::simulator;

// Prints what a command has to say, to standard output or standard error.
void Report(const Result<std::string>& outcome, ExitStatus& status) {
  if (outcome) {
    std::fputs((*outcome + "\n").c_str(), stdout);
    return;
  }
  std::fprintf(stderr, "divvy-nvml-sim: %s\n", outcome.error().message.c_str());
  status = ExitStatus::kFailed;
}

// Adds a command on a state file whose name goes to `path`. Options are filled
// while parsing and read when the command runs, after the function that declared
// them has returned: hence each command's action shares them with the parser.
CLI::App* AddCommand(CLI::App& app, const char* name, const char* text, std::string& path) {
  CLI::App* command = app.add_subcommand(name, text);
  command->add_option("FILE", path, "State file")->required()->option_text(" ");
  return command;
}

struct FileOptions {
  std::string path;
};

struct InitOptions : FileOptions {
  std::string gpus;
  bool force = false;
  bool needs_reset = false;
  device::nvml::ComputeMode compute_mode = device::nvml::kComputeDefault;
  bool cuda = false;
};

void AddInit(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<InitOptions>();
  CLI::App* command =
      AddCommand(app, "init", "Make a state file with GPUs fresh from the box", options->path);
  command
      ->add_option("--gpus", options->gpus,
                   "GPUs, e.g. H200-141GB+mig:2,A30-24GB (+mig: in MIG mode; :N: how many)")
      ->required()
      ->type_name("LIST");
  command->add_flag("--needs-reset", options->needs_reset,
                    "MIG mode changes wait for a reboot, as in a pass-through VM");
  static const std::map<std::string, device::nvml::ComputeMode> kModes = {
      {"default", device::nvml::kComputeDefault},
      {"exclusive-process", device::nvml::kComputeExclusiveProcess},
      {"prohibited", device::nvml::kComputeProhibited}};
  command->add_option("--compute-mode", options->compute_mode, "Which programs may use them")
      ->transform(CLI::CheckedTransformer(kModes).description(""))
      ->type_name("default|exclusive-process|prohibited");
  command->add_flag(
      "--cuda", options->cuda,
      "They are the simulated CUDA driver's: with DIVVY_CUDA_SIM set, NVML tells what "
      "programs do there");
  command->add_flag("--force", options->force, "Replace a file that exists");
  command->callback([options, &status] {
    auto state = sim::ParseGpuSpec(options->gpus);
    if (!state) return Report(Fail(state.error()), status);
    for (sim::Gpu& gpu : state->gpus) {
      gpu.needs_reset = options->needs_reset;
      gpu.compute_mode = options->compute_mode;
    }
    if (options->cuda) {
      if (const auto named = sim::NameAfterCuda(*state); !named) {
        return Report(Fail(named.error()), status);
      }
    }
    Report(MakeStateFile(options->path, *state, options->force), status);
  });
}

void AddShow(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<FileOptions>();
  CLI::App* command = AddCommand(app, "show", "Print GPUs, instances and processes", options->path);
  command->callback([options, &status] {
    const auto state = ReadStateFile(options->path);
    if (!state) return Report(Fail(state.error()), status);
    std::fputs(sim::Draw(*state).c_str(), stdout);
  });
}

struct CreateOptions : FileOptions {
  std::size_t gpu = 0;
  std::string profile;
  std::optional<int> start;
};

void AddCreate(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<CreateOptions>();
  CLI::App* command = AddCommand(
      app, "create", "Make a GPU instance with one compute instance over all of it", options->path);
  command->add_option("--gpu", options->gpu, "GPU (default 0)")->type_name("INDEX");
  command->add_option("--profile", options->profile, "E.g. 1g.18gb")->required()->type_name("NAME");
  command->add_option("--start", options->start, "First memory slice (default: lowest free)")
      ->type_name("SLICE");
  command->callback([options, &status] {
    Report(EditStateFile(options->path,
                         [&](sim::State& state) -> Result<std::string> {
                           const auto created = sim::CreateWhole(state, options->gpu,
                                                                 options->profile, options->start);
                           if (!created) return Fail(created.error());
                           return fmt::format("GPU {}: {} at {}, GPU instance {}, {}", options->gpu,
                                              options->profile, created->place.start, created->id,
                                              created->compute_instances.front().uuid);
                         }),
           status);
  });
}

struct StartOptions : FileOptions {
  sim::ProcessRequest request;
  std::uint64_t memory_bytes = 0;
};

void AddStart(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<StartOptions>();
  CLI::App* command =
      AddCommand(app, "start", "Pretend that a process runs on an instance or GPU", options->path);
  sim::ProcessRequest& request = options->request;
  command->add_option("--gpu", request.gpu, "GPU (default 0)")->type_name("INDEX");
  auto* id = command->add_option("--gi", request.gpu_instance, "GPU instance (default: whole GPU)")
                 ->type_name("ID");
  command->add_option("--start", request.start, "The GPU instance that begins at this memory slice")
      ->type_name("SLICE")
      ->excludes(id);
  command->add_option("--ci", request.compute_instance, "Compute instance (default: the only one)")
      ->type_name("ID");
  command->add_option("--pid", request.pid, "Process id (default: the first free from 1001)")
      ->type_name("PID");
  command->add_option("--name", request.name, "Name (default python)")->type_name("TEXT");
  command->add_option("--memory", options->memory_bytes, "GPU memory, e.g. 1GiB (default 0)")
      ->transform(CLI::AsSizeValue(false).description(""))
      ->type_name("SIZE");
  static const std::map<std::string, sim::ProcessKind> kKinds = {
      {"compute", sim::ProcessKind::kCompute},
      {"graphics", sim::ProcessKind::kGraphics},
      {"mps", sim::ProcessKind::kMps}};
  command->add_option("--kind", request.kind, "Which of NVML's lists it is in (default compute)")
      ->transform(CLI::CheckedTransformer(kKinds).description(""))
      ->type_name("compute|graphics|mps");
  command->callback([options, &status] {
    options->request.memory_mib = options->memory_bytes >> 20U;
    Report(EditStateFile(options->path,
                         [&](sim::State& state) -> Result<std::string> {
                           const auto started = sim::StartProcess(state, options->request);
                           if (!started) return Fail(started.error());
                           return fmt::format("pid {} on GPU {}", started->pid,
                                              options->request.gpu);
                         }),
           status);
  });
}

struct StopOptions : FileOptions {
  unsigned pid = 0;
};

void AddStop(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<StopOptions>();
  CLI::App* command = AddCommand(app, "stop", "End a process that `start` began", options->path);
  command->add_option("--pid", options->pid, "Process id")->required()->type_name("PID");
  command->callback([options, &status] {
    Report(EditStateFile(options->path,
                         [&](sim::State& state) -> Result<std::string> {
                           const auto stopped = sim::StopProcess(state, options->pid);
                           if (!stopped) return Fail(stopped.error());
                           return fmt::format("pid {} is gone", stopped->pid);
                         }),
           status);
  });
}

struct FaultsOptions : FileOptions {
  std::string rules;
  bool clear = false;
};

void AddFaults(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<FaultsOptions>();
  CLI::App* command =
      AddCommand(app, "faults", "Make NVML calls go wrong from now on", options->path);
  auto* rules = command->add_option(
      "RULES", options->rules,
      "FUNCTION@N=ACTION, several with ';' between. FUNCTION: an NVML function or *. N: the "
      "N-th such call of a process, or * for each. ACTION: an NVML error (IN_USE, 999), kill, "
      "kill-after, delay:50ms, or activation:IN_USE for nvmlDeviceSetMigMode");
  rules->option_text(" ");
  command->add_flag("--clear", options->clear, "Have no faults")->excludes(rules);
  command->callback([options, &status] {
    if (options->rules.empty() && !options->clear) {
      return Report(Fail(ErrorCode::kInvalidArgument, "faults needs RULES or --clear"), status);
    }
    if (const auto parsed = sim::FaultRules::Parse(options->rules); !parsed) {
      return Report(Fail(parsed.error()), status);
    }
    Report(EditStateFile(options->path,
                         [&](sim::State& state) -> Result<std::string> {
                           state.faults = options->rules;
                           return options->clear ? "faults: none" : "faults: " + state.faults;
                         }),
           status);
  });
}

void AddReboot(CLI::App& app, ExitStatus& status) {
  const auto options = std::make_shared<FileOptions>();
  CLI::App* command = AddCommand(
      app, "reboot", "Pending MIG modes come into force; instances and processes are gone",
      options->path);
  command->callback([options, &status] {
    Report(EditStateFile(options->path,
                         [](sim::State& state) -> Result<std::string> {
                           sim::Reboot(state);
                           return "rebooted";
                         }),
           status);
  });
}

}  // namespace

void AddCommands(CLI::App& app, ExitStatus& status) {
  AddInit(app, status);
  AddShow(app, status);
  AddCreate(app, status);
  AddStart(app, status);
  AddStop(app, status);
  AddFaults(app, status);
  AddReboot(app, status);
}

}  // namespace divvy::app
