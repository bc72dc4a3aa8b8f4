#include "advise_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "gpu/catalogue.h"
#include "text_file.h"

namespace divvy::app {

std::string OwnHistory() {
  if (const char* state = std::getenv("XDG_STATE_HOME"); state != nullptr && *state == '/') {
    return std::string(state) + "/divvy/collocations.csv";
  }
  const char* const home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return std::string(home) + "/.local/state/divvy/collocations.csv";
}

Result<void> AppendHistory(const std::string& path, const workload::MeasuredSet& set) {
  if (path.empty()) return {};
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  // Two that add at a time do so one after the other.
  const int lock = open((path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    const int number = errno;
    if (lock >= 0) close(lock);
    return Fail(ErrorCode::kPermissionDenied,
                fmt::format("cannot add to {}: {}", path, strerror(number)));
  }
  const auto added = [&]() -> Result<void> {
    auto text = ReadText(path);
    if (!text && text.error().code != ErrorCode::kNotFound) return Fail(text.error());
    std::string lines = workload::CollocationsHeader();
    if (text && !text->empty()) {
      text->erase(text->rfind('\n') + 1);
      const auto before = workload::ParseCollocations(*text, path);
      if (!before) return Fail(before.error());
      for (const workload::MeasuredSet& one : *before) lines += workload::CollocationLines(one);
    }
    lines += workload::CollocationLines(set);
    if (auto good = workload::ParseCollocations(lines, path); !good) return Fail(good.error());
    return SaveText(path, lines);
  }();
  close(lock);
  return added;
}

planner::AdviceRequest RequestFor(workload::JobsFile file, planner::InterferenceModels models) {
  planner::AdviceRequest request;
  const auto gpu = gpu::FindGpuModel(file.gpu);
  request.gpu = gpu ? *gpu : nullptr;
  request.gpu_name = file.gpu;
  request.memory_gib = file.gpu_memory_gib;
  request.power_w = file.gpu_power_w;
  request.jobs = std::move(file.jobs);
  request.models = std::move(models);
  return request;
}

}  // namespace divvy::app
