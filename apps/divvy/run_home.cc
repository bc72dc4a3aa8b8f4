#include "run_home.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/number.h"
#include "run_processes.h"
#include "text_file.h"

namespace divvy::app {
namespace {

constexpr std::string_view kReady = "ready ";
constexpr std::string_view kFailed = "failed ";
// What a folder that is being removed is called.
constexpr std::string_view kGone = "gone-";
// A busy machine may need this long to start a program, whatever the pace.
constexpr Duration kLeastAnswer = std::chrono::milliseconds(500);
constexpr Duration kLeastBeginning = std::chrono::seconds(2);

namespace fs = std::filesystem;

std::string BasePath() {
  const char* const runtime = std::getenv("XDG_RUNTIME_DIR");
  const bool set = runtime != nullptr && *runtime == '/';
  return set ? fmt::format("{}/divvy", runtime) : fmt::format("/tmp/divvy-{}", geteuid());
}

bool IsPrivate(const struct stat& status) {
  return S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & (S_IRWXG | S_IRWXO)) == 0;
}

void RemoveIfAbandoned(const MpsHome& home) {
  // Made, and nothing in it yet: who was about to go on finds it gone, and makes it again.
  if (rmdir(home.dir.c_str()) == 0) return;
  struct stat status{};
  if (stat(home.lock.c_str(), &status) != 0) return;
  const auto lock = HeldFile::TryLock(home.lock, false);
  if (!lock || !lock->IsAt(home.lock) || HasKeeper(home)) return;
  if (!HeldFile::TryLock(home.users, false)) return;
  KillMps(home.pipe);
  RemoveHome(home);
}

}  // namespace

MpsHome::MpsHome(std::string path)
    : dir(std::move(path)),
      lock(dir + "/lock"),
      users(dir + "/users"),
      keeper(dir + "/keeper"),
      state(dir + "/state"),
      pipe(dir + "/pipe"),
      log(dir + "/log") {}

std::optional<HeldFile> HeldFile::TryLock(const std::string& path, bool shared) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, S_IRUSR | S_IWUSR);
  if (fd < 0) return std::nullopt;
  HeldFile held(fd);
  if (flock(fd, (shared ? LOCK_SH : LOCK_EX) | LOCK_NB) == 0) return held;
  return std::nullopt;
}

std::optional<HeldFile> HeldFile::TryLock(int fd) {
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) return std::nullopt;
  return HeldFile(fd);
}

HeldFile::HeldFile(HeldFile&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

HeldFile& HeldFile::operator=(HeldFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

HeldFile::~HeldFile() {
  const int saved = errno;
  if (fd_ >= 0) close(fd_);
  errno = saved;
}

bool HeldFile::IsAt(const std::string& path) const {
  struct stat ours{};
  struct stat there{};
  return fstat(fd_, &ours) == 0 && stat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
         ours.st_ino == there.st_ino;
}

DaemonState ReadState(const MpsHome& home) {
  const auto text = ReadText(home.state);
  if (!text) return {};
  if (text->starts_with(kReady)) {
    return {DaemonState::Kind::kReady, text->substr(kReady.size())};
  }
  if (text->starts_with(kFailed)) {
    return {DaemonState::Kind::kFailed, text->substr(kFailed.size())};
  }
  return {};
}

Result<void> WriteState(const MpsHome& home, const DaemonState& state) {
  const bool ready = state.kind == DaemonState::Kind::kReady;
  return SaveText(home.state, fmt::format("{}{}", ready ? kReady : kFailed, state.text));
}

bool HasKeeper(const MpsHome& home) { return !HeldFile::TryLock(home.keeper, false); }

Result<void> MakePrivate(const std::string& dir) {
  if (mkdir(dir.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    return Fail(errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kPermissionDenied,
                fmt::format("cannot make {}: {}", dir, strerror(errno)));
  }
  struct stat status{};
  if (lstat(dir.c_str(), &status) != 0) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("{}: {}", dir, strerror(errno)));
  }
  if (!IsPrivate(status)) {
    return Fail(ErrorCode::kPermissionDenied,
                fmt::format("{} must be a folder of user {} that nobody else may enter (mode 0700)",
                            dir, geteuid()));
  }
  return {};
}

Result<std::string> MakeBase() {
  const std::string base = BasePath();
  auto made = MakePrivate(base);
  if (made) return base;
  if (made.error().code == ErrorCode::kNotFound) made.error().code = ErrorCode::kUnavailable;
  return Fail(made.error());
}

void RemoveHome(const MpsHome& home) {
  std::error_code error;
  // Out of the way first: nobody may find it half removed and take it for a living one.
  const fs::path base = fs::path(home.dir).parent_path();
  const fs::path gone = base / fmt::format("{}{}", kGone, getpid());
  fs::rename(home.dir, gone, error);
  fs::remove_all(error ? fs::path(home.dir) : gone, error);
  rmdir(base.c_str());
}

bool RemoveAbandoned() {
  const std::string base = BasePath();
  struct stat status{};
  if (lstat(base.c_str(), &status) != 0) return errno == ENOENT;
  if (!IsPrivate(status)) return true;  // Somebody else's: nothing of ours is in there.
  std::error_code error;
  fs::directory_iterator entry(base, error);
  for (const fs::directory_iterator end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename();
    std::error_code ignored;
    if (!fs::is_directory(entry->symlink_status(ignored))) continue;
    if (name.starts_with(kGone)) fs::remove_all(entry->path(), ignored);
    if (name.starts_with("mps-")) RemoveIfAbandoned(MpsHome(entry->path()));
  }
  return rmdir(base.c_str()) == 0 || errno == ENOENT;
}

MpsPace MpsPace::FromEnvironment() {
  const char* const text = std::getenv("DIVVY_MPS_PACE");
  const double scale = std::clamp(ParseReal(text == nullptr ? "1" : text).value_or(1), 0.01, 10.0);
  const auto scaled = [scale](double seconds) { return FromSeconds(seconds * scale); };
  return {.look = scaled(1),
          .tick = scaled(0.2),
          .grace = scaled(1),
          .probe = scaled(3),
          .answer = std::max(scaled(2), kLeastAnswer),
          .beginning = std::max(scaled(10), kLeastBeginning),
          .soon = scaled(5)};
}

}  // namespace divvy::app
