#include "run_report.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

namespace divvy::app {
namespace {

constexpr const char* kNobody =
    "divvy: no process of this job used CUDA behind the gate: either it used none, or it is "
    "statically linked, clears LD_PRELOAD, or runs as another user";
constexpr const char* kNobodyToTell =
    "divvy: no process of this job told what it launched before it was killed";

long SizeOf(int fd) {
  struct stat status{};
  return fstat(fd, &status) == 0 ? static_cast<long>(status.st_size) : 0;
}

}  // namespace

Result<RunReport> RunReport::Begin(std::string where) {
  const int fd = where == "-" ? memfd_create("divvy-report", MFD_CLOEXEC)
                              : open(where.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--report {}: cannot be written: {}", where, strerror(errno)));
  }
  const long size = SizeOf(fd);
  return RunReport(std::move(where), fd, size);
}

RunReport::RunReport(RunReport&& other) noexcept
    : where_(std::move(other.where_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RunReport::~RunReport() {
  if (fd_ >= 0) close(fd_);
}

std::string RunReport::path() const {
  return where_ == "-" ? fmt::format("/proc/{}/fd/{}", getpid(), fd_) : where_;
}

void RunReport::End(const JobEnd& end) const {
  if (SizeOf(fd_) == size_ && end.error.empty())
    dprintf(fd_, "%s\n", end.signal == 0 ? kNobody : kNobodyToTell);
  if (where_ != "-") return;
  std::array<char, 4096> part{};
  long at = 0;
  for (ssize_t got = 0; (got = pread(fd_, part.data(), part.size(), at)) > 0; at += got)
    std::fwrite(part.data(), 1, static_cast<std::size_t>(got), stderr);
}

}  // namespace divvy::app
