#include "serve_sockets.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

namespace divvy::app {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFolderPrefix = "divvy-serve-";
constexpr std::string_view kFolderRandom = "XXXXXX";
constexpr int kFolderTries = 100;

std::string LockOf(const fs::path& folder) { return folder / "lock"; }

// A descriptor that has the lock of a folder; -1 when there is none to have.
int TakeLock(const fs::path& folder, int flags) {
  const int fd = open(LockOf(folder).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);
  if (fd < 0) return -1;
  struct stat here{};
  struct stat there{};
  // Whoever locks what another has just removed has nothing.
  const bool ours = flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &here) == 0 &&
                    lstat(LockOf(folder).c_str(), &there) == 0 && here.st_ino == there.st_ino;
  if (ours) return fd;
  close(fd);
  return -1;
}

void RemoveStale(const fs::path& base) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, error)) {
    const std::string name = entry.path().filename();
    struct stat status{};
    const bool mine = name.starts_with(kFolderPrefix) &&
                      name.size() == kFolderPrefix.size() + kFolderRandom.size() &&
                      lstat(entry.path().c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
                      status.st_uid == geteuid();
    if (!mine) continue;
    // One without a lock may belong to a server that is about to make it.
    const int lock = TakeLock(entry.path(), 0);
    if (lock < 0) continue;
    fs::remove_all(entry.path(), error);
    close(lock);
  }
}

}  // namespace

Result<SocketFolder> SocketFolder::Make() {
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  // The path of a socket has 107 bytes at most.
  constexpr std::size_t kMost = 60;
  const std::string_view given = runtime == nullptr ? "" : runtime;
  const std::string base(given.empty() || given.size() > kMost ? "/tmp" : given);
  RemoveStale(base);
  // Another server may take a folder for stale before its lock is taken, and remove it.
  for (int i = 0; i < kFolderTries; ++i) {
    std::string path = fmt::format("{}/{}{}", base, kFolderPrefix, kFolderRandom);
    if (mkdtemp(path.data()) == nullptr) break;
    const int lock = TakeLock(path, O_CREAT);
    if (lock >= 0) return SocketFolder(std::move(path), lock);
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  return Fail(ErrorCode::kUnavailable,
              fmt::format("no folder for sockets can be made in {}", base));
}

SocketFolder::SocketFolder(SocketFolder&& other) noexcept
    : path_(std::exchange(other.path_, "")), lock_(std::exchange(other.lock_, -1)) {}

SocketFolder::~SocketFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace divvy::app
