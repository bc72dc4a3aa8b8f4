#include "event_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <utility>

namespace divvy::app {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::array<int, 3> kFatalSignals = {SIGINT, SIGTERM, SIGHUP};

// A signal handler can reach nothing but globals. The name of the unfinished file,
// empty when there is none.
std::array<char, PATH_MAX> unfinished = {};

// Ends the program as the signal would have, so that whoever waits for it sees why.
extern "C" void OnFatalSignal(int signal) {
  if (unfinished[0] != '\0') ::unlink(unfinished.data());
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

[[nodiscard]] tl::unexpected<Error> CannotWrite(const std::string& path, int error) {
  ErrorCode code = ErrorCode::kUnavailable;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == EACCES || error == EPERM || error == EROFS) code = ErrorCode::kPermissionDenied;
  return Fail(code, fmt::format("cannot write {}: {}", path, std::strerror(error)));
}

}  // namespace

Result<std::unique_ptr<EventFile>> EventFile::Create(const std::string& path) {
  struct stat present{};
  if (::stat(path.c_str(), &present) == 0 && !S_ISREG(present.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot write {}: it is not a regular file", path));
  }
  const std::string temporary = fmt::format("{}.{}.tmp", path, ::getpid());
  if (temporary.size() >= unfinished.size()) return CannotWrite(path, ENAMETOOLONG);
  const int fd = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return CannotWrite(path, errno);
  return std::unique_ptr<EventFile>(new EventFile(path, temporary, fd));
}

EventFile::EventFile(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {
  buffer_.reserve(kBufferBytes + 4096);
  std::memcpy(unfinished.data(), temporary_.c_str(), temporary_.size() + 1);
  for (const int signal : kFatalSignals) std::signal(signal, OnFatalSignal);
}

EventFile::~EventFile() {
  if (fd_ >= 0) {
    ::close(fd_);
    ::unlink(temporary_.c_str());
  }
  unfinished[0] = '\0';
  for (const int signal : kFatalSignals) std::signal(signal, SIG_DFL);
}

void EventFile::Write(std::string_view line) {
  buffer_ += line;
  if (buffer_.size() >= kBufferBytes) Flush();
}

void EventFile::Flush() {
  std::string_view rest = buffer_;
  while (!rest.empty() && error_ == 0) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno != EINTR) error_ = errno;
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
  buffer_.clear();
}

Result<void> EventFile::Finish() {
  Flush();
  if (error_ == 0 && ::fsync(fd_) != 0) error_ = errno;
  if (error_ == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error_ = errno;
  if (error_ != 0) return CannotWrite(path_, error_);
  ::close(fd_);
  fd_ = -1;
  return {};
}

}  // namespace divvy::app
