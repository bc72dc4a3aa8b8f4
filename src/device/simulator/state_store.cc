#include "device/simulator/state_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "device/simulator/state_json.h"

namespace divvy::device::simulator {
namespace {

constexpr mode_t kFileMode = 0666;  // Less the umask.

std::optional<std::string> ReadAll(int fd) {
  std::string text;
  char buffer[1 << 14];
  for (;;) {
    const ssize_t got = read(fd, buffer, sizeof buffer);
    if (got == 0) return text;
    if (got > 0) {
      text.append(buffer, static_cast<std::size_t>(got));
    } else if (errno != EINTR) {
      return std::nullopt;
    }
  }
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written > 0) {
      text.remove_prefix(static_cast<std::size_t>(written));
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

auto Unavailable(const std::string& path, const char* what) {
  return Fail(ErrorCode::kUnavailable,
              fmt::format("cannot {} {}: {}", what, path, std::strerror(errno)));
}

}  // namespace

StateLock::StateLock(const std::string& state_path) {
  const std::string path = state_path + ".lock";
  fd_ = FileDescriptor(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, kFileMode));
  if (!fd_.valid()) fd_ = FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd_.valid()) return;
  while (flock(fd_.get(), LOCK_EX) != 0 && errno == EINTR) {
  }
}

StateStore::StateStore(std::string path) : path_(std::move(path)) {}

bool StateStore::IsCurrent() const {
  struct stat now{};
  if (stat(path_.c_str(), &now) != 0) return false;
  return now.st_dev == read_at_.st_dev && now.st_ino == read_at_.st_ino &&
         now.st_size == read_at_.st_size && now.st_mtim.tv_sec == read_at_.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == read_at_.st_mtim.tv_nsec;
}

Result<State*> StateStore::Read() {
  if (state_ && IsCurrent()) return &*state_;
  state_.reset();
  FileDescriptor fd(open(path_.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid() && errno == ENOENT) {
    return Fail(ErrorCode::kNotFound, fmt::format("there is no state file {}", path_));
  }
  if (!fd.valid()) return Unavailable(path_, "open");
  // Before reading: a change by hand while we read is then seen next time.
  if (fstat(fd.get(), &read_at_) != 0) return Unavailable(path_, "read");
  const auto text = ReadAll(fd.get());
  if (!text) return Unavailable(path_, "read");
  auto state = ParseState(*text);
  if (!state) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("state file {}: {}", path_, state.error().message));
  }
  state_ = std::move(*state);
  read_from_ = std::move(fd);
  return &*state_;
}

Result<State*> StateStore::Write(State state) {
  // One name for all, since only the lock's holder writes: what a killed process
  // leaves behind is overwritten by the next.
  const std::string draft = path_ + ".new";
  FileDescriptor fd(open(draft.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kFileMode));
  if (!fd.valid()) return Unavailable(draft, "open");
  if (!WriteAll(fd.get(), FormatState(state)) || fstat(fd.get(), &read_at_) != 0) {
    return Unavailable(draft, "write");
  }
  if (std::rename(draft.c_str(), path_.c_str()) != 0) return Unavailable(path_, "replace");
  state_ = std::move(state);
  read_from_ = std::move(fd);
  return &*state_;
}

bool StateStore::Writable() const {
  return faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) == 0;
}

}  // namespace divvy::device::simulator
