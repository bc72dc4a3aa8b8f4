#include "advise_input.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "gpu/catalogue.h"

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
  const auto failed = [&](int error) {
    return Fail(
        error == EACCES || error == EPERM ? ErrorCode::kPermissionDenied : ErrorCode::kUnavailable,
        fmt::format("cannot add to {}: {}", path, strerror(error)));
  };
  std::error_code error;
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd < 0) return failed(errno);
  // The heading stands once, also when two begin at a time.
  struct stat info{};
  int wrong = flock(fd, LOCK_EX) != 0 || fstat(fd, &info) != 0 ? errno : 0;
  std::string text = info.st_size == 0 ? workload::CollocationsHeader() : "";
  text += workload::CollocationLines(set);
  // One write: after a crash the set is there or is not.
  if (wrong == 0 && write(fd, text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    wrong = errno == 0 ? ENOSPC : errno;
  }
  if (wrong == 0 && fsync(fd) != 0) wrong = errno;
  close(fd);
  if (wrong != 0) return failed(wrong);
  return {};
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
