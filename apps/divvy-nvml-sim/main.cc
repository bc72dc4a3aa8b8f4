#include <CLI/CLI.hpp>

#include "commands.h"

namespace {

constexpr const char* kFooter = R"(Examples:
  divvy-nvml-sim init node.json --gpus H200-141GB+mig:2
  divvy-nvml-sim create node.json --gpu 0 --profile 3g.71gb --start 4
  divvy-nvml-sim start node.json --gpu 0 --start 4 --pid 1234 --memory 1GiB
  divvy-nvml-sim faults node.json "nvmlGpuInstanceDestroy@1=IN_USE; *@20=kill"
  divvy-nvml-sim show node.json

Programs see these GPUs when they load the simulated libnvidia-ml.so.1 with
DIVVY_NVML_SIM_STATE=node.json in their environment.)";

}  // namespace

int main(int argc, char** argv) {
  using divvy::app::ExitStatus;
  ExitStatus status = ExitStatus::kOk;
  CLI::App app("Sets the scene for programs that use simulated GPUs.", "divvy-nvml-sim");
  app.require_subcommand(1);
  divvy::app::AddCommands(app, status);
  app.footer(kFooter);  // After the commands, which would inherit it.
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 prints help and errors itself; its own codes are not ours.
    return app.exit(error) == 0 ? static_cast<int>(ExitStatus::kOk)
                                : static_cast<int>(ExitStatus::kUsage);
  }
  return static_cast<int>(status);
}
