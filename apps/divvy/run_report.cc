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
    "divvy: no process of this job told of launches: none used CUDA behind the gate (a program "
    "that is statically linked, clears LD_PRELOAD or runs as another user has none), or those that "
    "did were killed, still run, or are in a run or container of their own";

// Of a pipe or a terminal nobody can say what others wrote there.
std::optional<off_t> SizeOf(int fd) {
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return status.st_size;
}

}  // namespace

Result<RunReport> RunReport::Begin(std::string where) {
  const int fd = where == "-" ? memfd_create("divvy-report", MFD_CLOEXEC)
                              : open(where.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  // A socket cannot be opened, and yet be what somebody wants written to: the job will see.
  if (fd < 0 && errno != ENXIO) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--report {}: cannot be written: {}", where, strerror(errno)));
  }
  return RunReport(std::move(where), fd);
}

RunReport::RunReport(std::string where, int fd)
    : where_(std::move(where)), fd_(fd), size_(SizeOf(fd)) {}

RunReport::RunReport(RunReport&& other) noexcept
    : where_(std::move(other.where_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

RunReport::~RunReport() {
  if (fd_ >= 0) close(fd_);
}

std::string RunReport::path() const {
  return where_ == "-" ? fmt::format("/proc/{}/fd/{}", getpid(), fd_) : where_;
}

// Where another file has taken its place, the job's processes wrote to that one.
bool RunReport::IsStillThere() const {
  struct stat opened{};
  struct stat named{};
  return where_ == "-" || (fstat(fd_, &opened) == 0 && stat(where_.c_str(), &named) == 0 &&
                           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino);
}

void RunReport::End(const JobEnd& end) const {
  if (size_ && SizeOf(fd_) == size_ && IsStillThere() && end.error.empty())
    dprintf(fd_, "%s\n", kNobody);
  if (where_ != "-") return;
  std::array<char, 4096> part{};
  off_t at = 0;
  for (ssize_t got = 0; (got = pread(fd_, part.data(), part.size(), at)) > 0; at += got)
    std::fwrite(part.data(), 1, static_cast<std::size_t>(got), stderr);
}

}  // namespace divvy::app
