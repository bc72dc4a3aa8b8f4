#include "worker_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "base/text_safety.h"
#include "run_library.h"

namespace divvy::app {
namespace {

// A file of ours: beside this program, installed or just built.
[[nodiscard]] Result<std::string> FindBeside(const std::vector<std::string>& places,
                                             const std::string& what, const std::string& option) {
  std::error_code error;
  const std::filesystem::path beside =
      std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  std::string looked;
  for (const std::string& place : places) {
    const std::string path = (beside / place).lexically_normal();
    if (std::filesystem::exists(path, error)) return path;
    looked += (looked.empty() ? "" : ", ") + path;
  }
  return Fail(ErrorCode::kNotFound,
              fmt::format("{} is not beside this program: looked for {}; name it with {}", what,
                          looked, option));
}

}  // namespace

Result<std::string> FindWorkerProgram(const std::string& given) {
  auto found = given.empty() ? FindBeside({"divvy-worker", "../divvy-worker/divvy-worker",
                                           "../libexec/divvy/divvy-worker"},
                                          "divvy-worker", "--worker")
                             : Result<std::string>(given);
  if (!found) return found;
  std::error_code error;
  if (!std::filesystem::is_regular_file(*found, error) || access(found->c_str(), X_OK) != 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--worker: {} is not a program", Quoted(*found)));
  }
  return found;
}

Result<std::string> FindEngine(const std::string& engine, const std::string& folder) {
  if (engine != "torch") return engine;
  if (!folder.empty()) return folder + "/libdivvy_engine_torch.so";
  return FindBeside({"libdivvy_engine_torch.so", "../lib/divvy/libdivvy_engine_torch.so",
                     "../../engines/torch/libdivvy_engine_torch.so"},
                    "the engine torch, which is built where libtorch is,", "--engines");
}

Result<Sharing> JoinMps(const std::string& gpu, const std::string& nvml) {
  RunOptions options;
  options.latency = true;
  options.gpu = gpu;
  // For jobs of `divvy run` that join the daemon; without it they are held back by markers.
  auto sharing = ShareGpu(options, nvml, FindGateLibrary("").value_or(""));
  if (!sharing) return sharing;
  // What clients of a daemon get, and only they.
  if (sharing->environment.contains("CUDA_MPS_CLIENT_PRIORITY")) return sharing;
  return Fail(ErrorCode::kFailedPrecondition,
              fmt::format("--on mps: there is no MPS here ({})", sharing->line));
}

}  // namespace divvy::app
