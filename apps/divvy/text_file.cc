#include "text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace divvy::app {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

// A file descriptor that closes itself.
class OpenFile {
 public:
  explicit OpenFile(int fd) : fd_(fd) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

tl::unexpected<Error> FailWithErrno(std::string_view verb, std::string_view path, int error) {
  ErrorCode code = ErrorCode::kUnavailable;
  if (error == ENOENT || error == ENOTDIR) code = ErrorCode::kNotFound;
  if (error == EACCES || error == EPERM || error == EROFS) code = ErrorCode::kPermissionDenied;
  if (error == EISDIR) code = ErrorCode::kInvalidArgument;
  return Fail(code, fmt::format("cannot {} {}: {}", verb, path, std::strerror(error)));
}

// 0, or the errno that stopped it.
int WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(fd, text.data(), text.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// Writes `temporary` in full and renames it to `path`; 0 or errno.
int WriteAndRename(const std::string& temporary, const std::string& path, std::string_view text,
                   mode_t mode, bool keep_mode) {
  const OpenFile file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (file.fd() < 0) return errno;
  int error = WriteAll(file.fd(), text);
  if (error == 0 && keep_mode && ::fchmod(file.fd(), mode) != 0) error = errno;
  // Before the rename, or a crash could leave the new name on an empty file.
  if (error == 0 && ::fsync(file.fd()) != 0) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) ::unlink(temporary.c_str());
  return error;
}

}  // namespace

Result<std::string> ReadText(const std::string& path) {
  const std::string_view name = NameOfInput(path);
  const OpenFile file(path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) return FailWithErrno("read", name, errno);
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file.fd(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return FailWithErrno("read", name, errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<std::size_t>(count));
    if (text.size() > kMaxBytes) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} is over {} MiB large", name, kMaxBytes >> 20));
    }
  }
}

std::string_view NameOfInput(std::string_view path) {
  return path == "-" ? "standard input" : path;
}

Result<void> SaveText(const std::string& path, std::string_view text) {
  std::string target = path;
  mode_t mode = 0666;
  struct stat present{};
  const bool exists = ::stat(path.c_str(), &present) == 0;
  if (exists && !S_ISREG(present.st_mode)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("cannot write {}: it is not a regular file", path));
  }
  if (exists) {
    mode = present.st_mode & 07777;
    std::error_code error;
    const auto followed = std::filesystem::canonical(path, error);
    if (!error) target = followed.string();
  }
  const std::string temporary = fmt::format("{}.{}.tmp", target, ::getpid());
  const int error = WriteAndRename(temporary, target, text, mode, exists);
  if (error != 0) return FailWithErrno("write", path, error);
  return {};
}

Result<void> CheckWritable(std::string_view option, const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: is a folder; name a file in it", option, path));
  }
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} {}: is no file that can be written anew", option, path));
  }
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (!error && std::filesystem::is_directory(folder, error)) {
    if (::access(folder.c_str(), W_OK) == 0) return {};
    error = std::error_code(errno, std::generic_category());
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: cannot write to {}: {}", option, path, folder.string(),
                          error ? error.message() : "there is no such folder"));
}

Result<void> MakeWritableFolder(std::string_view option, const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && !std::filesystem::is_directory(path, error) && !error) {
    error = std::make_error_code(std::errc::not_a_directory);
  }
  if (!error && ::access(path.c_str(), W_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (!error) return {};
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} {}: cannot write to it: {}", option, path, error.message()));
}

}  // namespace divvy::app
