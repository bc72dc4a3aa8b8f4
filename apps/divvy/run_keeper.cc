#include "run_keeper.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "control_stop.h"
#include "device/mps.h"
#include "run_boards.h"
#include "run_home.h"
#include "run_processes.h"

namespace divvy::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProbe = "get_server_list";
// A daemon under load may miss a question; starting it anew costs every job its GPU.
constexpr int kMostMissed = 3;
// A daemon that dies soon, so many times in a row, will not do.
constexpr int kMostSoon = 3;
constexpr auto kPause = std::chrono::milliseconds(10);

void Pause() { poll(nullptr, 0, static_cast<int>(kPause.count())); }

class MpsKeeper {
 public:
  // `lock` is that of the home, and outlives this. `gate` may be empty.
  MpsKeeper(const HeldFile& lock, MpsHome home, std::string program, std::string devices,
            const std::string& gate)
      : lock_(lock),
        home_(std::move(home)),
        devices_(std::move(devices)),
        gate_variables_(GateVariables(gate, devices_)),
        control_(std::move(program), {home_.pipe, home_.log}),
        users_(open(home_.users.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                    S_IRUSR | S_IWUSR)) {}
  MpsKeeper(const MpsKeeper&) = delete;
  MpsKeeper& operator=(const MpsKeeper&) = delete;
  ~MpsKeeper() {
    if (users_ >= 0) close(users_);
  }

  // Until there are no users any more, or a signal asks it to end.
  void Run() {
    // Servers whose daemon died come to us, to be reaped.
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (const auto renewed = Renew(); !renewed) Fail(renewed.error().message);
    Clock::time_point next_probe = Clock::now() + pace_.probe;
    Clock::time_point last_use = Clock::now();
    while (!stop_.SleepUntil(Clock::now() + pace_.tick)) {
      Reap();
      if (daemon_ == 0 && !failed_) Revive();
      if (!failed_ && Clock::now() >= next_probe) {
        Probe();
        next_probe = Clock::now() + pace_.probe;
      }
      if (HasUsers()) {
        last_use = Clock::now();
        continue;
      }
      const bool over = failed_ || Clock::now() - last_use >= pace_.grace;
      // Somebody has removed the home: nobody can come any more, and another may stand in its
      // place.
      if (over && !lock_.IsAt(home_.keeper)) return EndOurs();
      if (over && EndUnused()) return;
    }
    Fail("its keeper was told to end");
    EndDaemon();
    static_cast<void>(EndUnused());
  }

 private:
  // The server learns from the last which board is its GPU's: it may be on none itself yet.
  static std::map<std::string, std::string> GateVariables(const std::string& gate,
                                                          const std::string& gpu) {
    if (gate.empty()) return {};
    return {{"LD_PRELOAD", gate}, {"DIVVY_CLASS", "server"}, {"DIVVY_GPU_UUID", gpu}};
  }

  // By the file that users of this home hold, be it removed since.
  bool HasUsers() const {
    if (flock(users_, LOCK_EX | LOCK_NB) != 0) return true;
    flock(users_, LOCK_UN);
    return false;
  }

  void Reap() {
    while (true) {
      const pid_t child = waitpid(-1, nullptr, WNOHANG);
      if (child <= 0) return;
      if (child == daemon_) daemon_ = 0;
    }
  }

  // Those who wait for the daemon, and those whose daemon it was, read it.
  void Fail(std::string why) {
    failed_ = true;
    Say({DaemonState::Kind::kFailed, std::move(why)});
  }

  void Say(const DaemonState& state) const {
    const auto written = WriteState(home_, state);
    if (!written) fmt::print(stderr, "{}\n", written.error().message);
    fmt::print(stderr, "{}\n", state.text);
  }

  // Starts a daemon where there is none, or none any more.
  Result<void> Renew() {
    KillDaemon();
    // What a killed one leaves would keep the next from starting.
    std::error_code error;
    std::filesystem::remove_all(home_.pipe, error);
    std::filesystem::create_directory(home_.pipe, error);
    const auto daemon = control_.Start(devices_, gate_variables_);
    if (!daemon) return divvy::Fail(daemon.error());
    daemon_ = *daemon;
    if (auto answers = AwaitAnswer(); !answers) {
      KillDaemon();
      return answers;
    }
    begun_ = Clock::now();
    missed_ = 0;
    Say({DaemonState::Kind::kReady, std::to_string(daemon_)});
    return {};
  }

  Result<void> AwaitAnswer() {
    const Clock::time_point end = Clock::now() + pace_.beginning;
    std::string last;
    while (Clock::now() < end && !stop_.Heard()) {
      const auto answer = control_.Ask(kProbe, pace_.answer);
      if (answer) return {};
      last = answer.error().message;
      Reap();
      if (daemon_ == 0) {
        const std::string words = control_.LastWords();
        return divvy::Fail(ErrorCode::kUnavailable,
                           fmt::format("nvidia-cuda-mps-control ended as soon as it was started{}",
                                       words.empty() ? "" : ": " + words));
      }
      Pause();
    }
    return divvy::Fail(ErrorCode::kUnavailable, std::move(last));
  }

  void Revive() {
    soon_ = Clock::now() - begun_ < pace_.soon ? soon_ + 1 : 0;
    Retry();
  }

  // One that was ready before may be killed again before it is.
  void Retry() {
    std::string why;
    for (; soon_ < kMostSoon && !stop_.Heard(); ++soon_) {
      const auto renewed = Renew();
      if (renewed) return;
      why = ": " + renewed.error().message;
    }
    KillMps(home_.pipe);
    Fail(fmt::format("it died {} times in a row soon after its start{}", soon_, why));
  }

  void Probe() {
    const auto answer = control_.Ask(kProbe, pace_.answer);
    missed_ = answer ? 0 : missed_ + 1;
    if (missed_ < kMostMissed) return;
    fmt::print(stderr, "{}\n", answer.error().message);
    soon_ = 0;
    Retry();
  }

  // Under the lock that those who come must take, so that nobody joins what ends.
  bool EndUnused() {
    const auto lock = HeldFile::TryLock(home_.lock, false);
    if (!lock || !lock->IsAt(home_.lock) || HasUsers()) return false;
    EndDaemon();
    RemoveHome(home_);
    ClearBoards(BoardDirectory());
    return true;
  }

  void EndDaemon() {
    Reap();
    if (daemon_ != 0) {
      const bool asked = control_.Ask("quit", pace_.answer).has_value();
      if (!(asked && AwaitEnd()) && daemon_ != 0) {
        kill(daemon_, SIGTERM);
        static_cast<void>(AwaitEnd());
      }
    }
    KillDaemon();
  }

  // Whatever others that go by our path do.
  void EndOurs() {
    for (const int signal : {SIGTERM, SIGKILL}) {
      Reap();
      if (daemon_ == 0) return;
      kill(daemon_, signal);
      static_cast<void>(AwaitEnd());
    }
  }

  bool AwaitEnd() {
    const Clock::time_point end = Clock::now() + pace_.answer;
    while (Clock::now() < end) {
      Reap();
      if (daemon_ == 0) return true;
      Pause();
    }
    return false;
  }

  // With its servers, and with those of a daemon whose keeper was killed.
  void KillDaemon() {
    if (daemon_ != 0) kill(daemon_, SIGKILL);
    KillMps(home_.pipe);
    static_cast<void>(AwaitEnd());
    daemon_ = 0;
  }

  const HeldFile& lock_;
  MpsHome home_;
  std::string devices_;
  std::map<std::string, std::string> gate_variables_;
  device::MpsControl control_;
  int users_;
  MpsPace pace_ = MpsPace::FromEnvironment();
  StopSignal stop_;
  pid_t daemon_ = 0;  // 0 when there is none.
  bool failed_ = false;
  int missed_ = 0;
  int soon_ = 0;
  Clock::time_point begun_;
};

struct KeeperWords {
  std::string dir;
  std::string program;
  std::string devices;
  std::string gate;
};

void Run(const KeeperWords& words, Invocation& invocation) {
  const MpsHome home(words.dir);
  const auto lock = HeldFile::TryLock(kKeeperLockFd);
  if (!lock || !lock->IsAt(home.keeper)) {
    return Complain(invocation, {ErrorCode::kInvalidArgument,
                                 fmt::format("{} is started by 'divvy run', not by hand: {}/keeper "
                                             "is not locked",
                                             kKeeperCommand, words.dir)});
  }
  fcntl(kKeeperLockFd, F_SETFD, FD_CLOEXEC);
  if (chdir("/") != 0) errno = 0;  // It only would pin a folder of the user's.
  MpsKeeper(*lock, home, words.program, words.devices, words.gate).Run();
}

}  // namespace

void AddKeeperCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(kKeeperCommand, "Keep an MPS daemon");
  command->group("");  // Not for users: no help shows it.
  const auto words = std::make_shared<KeeperWords>();
  command->add_option("DIR", words->dir)->required();
  command->add_option("PROGRAM", words->program)->required();
  command->add_option("DEVICES", words->devices)->required();
  command->add_option("GATE", words->gate);
  command->callback([words, &invocation] { Run(*words, invocation); });
}

}  // namespace divvy::app
