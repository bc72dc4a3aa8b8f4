#include "run_mps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "device/mps.h"
#include "run_keeper.h"

namespace divvy::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kDaemonPauseMs = 10;
// Longer than a keeper takes to start a daemon or to end one.
constexpr auto kPatience = std::chrono::seconds(30);
// What marks or gates the run that we may be inside of: not for a keeper, which serves other runs
// as well, nor for its daemon, in which the gate reads them too.
constexpr std::array kVariablesOfARun = {
    "LD_PRELOAD",         "DIVVY_RUN_ID", "DIVVY_CLASS",  "DIVVY_SLO_US",  "DIVVY_PROTECT",
    "DIVVY_WEIGHT",       "DIVVY_NAME",   "DIVVY_REPORT", "DIVVY_OPS",     "DIVVY_LOG",
    "DIVVY_MEMORY_BYTES", "DIVVY_APART",  "DIVVY_MPS",    "DIVVY_GPU_UUID"};

[[nodiscard]] tl::unexpected<Error> Unavailable(std::string message) {
  return Fail(ErrorCode::kUnavailable, std::move(message));
}

void GiveItTime() { poll(nullptr, 0, kDaemonPauseMs); }

// Names of GPUs may hold slashes.
std::string FileName(std::string id) {
  for (char& c : id) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-';
    if (!plain) c = '_';
  }
  return id;
}

Result<MpsHome> HomeOf(const JobGpu& gpu) {
  auto base = MakeBase();
  if (!base) return Fail(base.error());
  return MpsHome(fmt::format("{}/mps-{}", *base, FileName(gpu.id)));
}

Result<MpsHome> MakeHome(const JobGpu& gpu) {
  auto made_home = HomeOf(gpu);
  if (!made_home) return made_home;
  MpsHome& home = *made_home;
  if (!device::FitsSocketNames(home.pipe)) {
    return Unavailable(
        fmt::format("{} is too long a path for the sockets of a daemon; set XDG_RUNTIME_DIR to a "
                    "shorter one",
                    home.pipe));
  }
  if (auto made = MakePrivate(home.dir); !made) return Fail(made.error());
  return made_home;
}

// The keeper inherits the lock that says that there is one: from the moment it is taken
// there is no gap in which another run would start a second.
bool StartKeeper(const MpsHome& home, const JobGpu& gpu, const std::string& program,
                 const std::string& gate) {
  const auto lock = HeldFile::TryLock(home.keeper, false);
  if (!lock) return false;
  std::error_code error;
  std::filesystem::create_directory(home.pipe, error);
  std::filesystem::create_directory(home.log, error);
  unlink(home.state.c_str());
  std::vector<std::string> words = {"divvy", kKeeperCommand, home.dir, program, gpu.id};
  // The gate finds its board by the GPU's UUID.
  if (!gate.empty() && gpu.has_uuid()) words.push_back(gate);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const std::string log = home.dir + "/keeper.log";
  const pid_t child = fork();
  if (child != 0) return child > 0;
  // A session of its own: what ends the run by way of the terminal must not end it.
  setsid();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  std::signal(SIGPIPE, SIG_DFL);
  for (const char* const variable : kVariablesOfARun) unsetenv(variable);
  const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  if (lock->fd() == kKeeperLockFd) {
    fcntl(kKeeperLockFd, F_SETFD, 0);
  } else {
    dup2(lock->fd(), kKeeperLockFd);
  }
  // Of whoever started the run, who may wait until everybody has closed it.
  close_range(kKeeperLockFd + 1, ~0U, 0);
  execv("/proc/self/exe", argv.data());
  _exit(127);
}

// Users hold the file together; a keeper that looks for them holds it alone, for a moment.
bool IsUsed(const MpsHome& home) {
  const int fd = open(home.users.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  const bool used = flock(fd, LOCK_SH | LOCK_NB) == 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
  close(fd);
  return used;
}

}  // namespace

void AwaitEndOfDaemon(const JobGpu& gpu) {
  const auto home = HomeOf(gpu);
  const Duration grace = MpsPace::FromEnvironment().grace;
  const Clock::time_point end = Clock::now() + 5 * grace;
  Clock::time_point unused = Clock::now();
  std::error_code error;
  while (home && std::filesystem::exists(home->dir, error) && Clock::now() < end) {
    // Its last users may be slow to end.
    if (!IsUsed(*home)) unused = Clock::now();
    if (Clock::now() - unused > 3 * grace / 2) return;
    GiveItTime();
  }
}

MpsUse::MpsUse(MpsHome home, const JobGpu& gpu, std::string program, std::string gate,
               HeldFile users)
    : home_(std::move(home)),
      gpu_(gpu),
      program_(std::move(program)),
      gate_(std::move(gate)),
      users_(std::move(users)) {}

Result<MpsUse> MpsUse::Begin(const JobGpu& gpu, std::string program, std::string gate) {
  const Clock::time_point end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    if (auto begun = TryBegin(gpu, program, gate)) return *std::move(begun);
    GiveItTime();
  }
  return Unavailable(
      fmt::format("another divvy has been starting or ending the daemon of {} for {} s", gpu.label,
                  kPatience.count()));
}

// Nothing when somebody else is at it and a second try may do.
std::optional<Result<MpsUse>> MpsUse::TryBegin(const JobGpu& gpu, const std::string& program,
                                               const std::string& gate) {
  auto home = MakeHome(gpu);
  if (!home) {
    // Removed between two of our steps by a keeper that ended?
    const ErrorCode code = home.error().code;
    if (code == ErrorCode::kNotFound || code == ErrorCode::kResourceExhausted) return std::nullopt;
    return Fail(home.error());
  }
  const auto lock = HeldFile::TryLock(home->lock, false);
  if (!lock && errno != EWOULDBLOCK && errno != ENOENT) {
    return Unavailable(fmt::format("cannot lock {}: {}", home->lock, strerror(errno)));
  }
  if (!lock || !lock->IsAt(home->lock)) return std::nullopt;
  auto users = HeldFile::TryLock(home->users, true);
  // A keeper that looks for users holds it for a moment.
  if (!users) return std::nullopt;
  MpsUse use(*std::move(home), gpu, program, gate, *std::move(users));
  if (!HasKeeper(use.home_)) {
    use.started_ = true;
    if (!StartKeeper(use.home_, gpu, program, gate)) {
      return Unavailable(fmt::format("cannot start a keeper: {}", strerror(errno)));
    }
  }
  if (auto ready = use.AwaitDaemon(); !ready) return Fail(ready.error());
  return use;
}

Result<void> MpsUse::AwaitDaemon() {
  const Clock::time_point end = Clock::now() + kPatience;
  while (Clock::now() < end) {
    // Before the state: a keeper that ends has said its last word.
    const bool kept = HasKeeper(home_);
    known_ = ReadState(home_);
    if (known_.kind == DaemonState::Kind::kReady) return {};
    if (known_.kind == DaemonState::Kind::kFailed) return Unavailable(known_.text);
    if (!kept) return Unavailable(fmt::format("its keeper ended; see {}/keeper.log", home_.dir));
    GiveItTime();
  }
  return Unavailable(fmt::format("it was not ready within {} s", kPatience.count()));
}

void MpsUse::StartKeeperIfGone() {
  const auto lock = HeldFile::TryLock(home_.lock, false);
  if (!lock || !lock->IsAt(home_.lock) || HasKeeper(home_)) return;
  StartKeeper(home_, gpu_, program_, gate_);
}

std::optional<std::string> MpsUse::LookAfter() {
  if (known_.kind == DaemonState::Kind::kFailed) return std::nullopt;
  StartKeeperIfGone();
  const DaemonState now = ReadState(home_);
  if (now.kind == DaemonState::Kind::kNone || now == known_) return std::nullopt;
  known_ = now;
  if (now.kind == DaemonState::Kind::kFailed) {
    return fmt::format("the MPS daemon of {} is gone and cannot be started again: {}", gpu_.label,
                       now.text);
  }
  return fmt::format(
      "the MPS daemon of {} had died or hung and was started anew; this job cannot move to the new "
      "one: start it again if its CUDA calls fail",
      gpu_.label);
}

}  // namespace divvy::app
