#include "collocate_jobs.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/text_safety.h"
#include "run_job.h"
#include "text_file.h"

namespace divvy::app {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPollMs = 50;
constexpr int kReadsAtOnce = 16;
constexpr std::size_t kMostLogged = 64 << 20;
constexpr Duration kMostReady = std::chrono::minutes(15);
constexpr Duration kMostStopping = std::chrono::seconds(10);
constexpr Duration kLeastMoment = std::chrono::milliseconds(500);
constexpr int kMostMoments = 240;
constexpr double kLeastSeconds = 1e-6;

TimePoint SteadyNow() {
  return TimePoint(std::chrono::duration_cast<Duration>(Clock::now().time_since_epoch()));
}

constexpr std::array kHeldSignals = {SIGINT, SIGTERM, SIGHUP, SIGCHLD};

sigset_t SignalsOfCollocate() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kHeldSignals) sigaddset(&signals, signal);
  return signals;
}

// Of a file that is there; empty if it is not.
std::string LastLine(const std::string& path) {
  auto text = ReadText(path);
  if (!text) return {};
  text->erase(text->find_last_not_of(" \r\n") + 1);
  return text->substr(text->find_last_of("\r\n") + 1).substr(0, 200);
}

// One job's process.
class Running {
 public:
  explicit Running(const TogetherJob& job) : job_(job) {}
  ~Running() {
    Signal(SIGKILL);
    // Also what the job has left behind, which is ours since it was orphaned.
    while (group_ > 0 && waitpid(-group_, nullptr, 0) > 0) {
    }
    for (const int fd : {output_, input_, log_}) {
      if (fd >= 0) close(fd);
    }
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  [[nodiscard]] Result<void> Start(const sigset_t& mask) {
    log_ = open(job_.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    std::array<int, 2> out{-1, -1};
    std::array<int, 2> in{-1, -1};
    const bool has_output = log_ >= 0 && pipe2(out.data(), O_CLOEXEC) == 0;
    output_ = out[0];
    if (!has_output || pipe2(in.data(), O_CLOEXEC) != 0) {
      const int error = errno;
      if (has_output) close(out[1]);
      return Failed(fmt::format("cannot be started: {}: {}", job_.log, strerror(error)));
    }
    input_ = in[1];
    fcntl(output_, F_SETFL, O_NONBLOCK);
    const StartedJob started = StartJob({.command = job_.command,
                                         .environment = job_.environment,
                                         .inherited_fd = job_.inherited_fd,
                                         .directory = job_.directory,
                                         .streams = {in[0], out[1], log_},
                                         .own_group = true},
                                        mask);
    pid_ = started.pid;
    close(out[1]);
    close(in[0]);
    // The child may not have come so far yet.
    if (pid_ > 0) setpgid(pid_, pid_);
    group_ = pid_;
    if (started.error != 0) {
      return Failed(
          fmt::format("cannot run {}: {}", Quoted(job_.command.front()), strerror(started.error)));
    }
    began_ = SteadyNow();
    // Nobody has a line for it: end of input, as from /dev/null.
    if (!job_.waits) close(std::exchange(input_, -1));
    started_ = job_.start_mark.empty();
    ready_ = started_ && !job_.ready;
    return {};
  }

  void Begin() {
    if (input_ < 0) return;
    began_ = SteadyNow();
    const ssize_t told = write(input_, "\n", 1);
    static_cast<void>(told);  // Who has closed it does not wait.
    close(std::exchange(input_, -1));
  }

  void Read() {
    std::array<char, 1 << 14> bytes{};
    heard_ = SteadyNow();
    // So much at a time: whoever prints as fast as we read must not keep us from the clock.
    for (int i = 0; i < kReadsAtOnce && output_ >= 0; ++i) {
      const ssize_t got = read(output_, bytes.data(), bytes.size());
      if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
      if (got <= 0) {
        close(std::exchange(output_, -1));
        Hear(lines_.Rest());
        return;
      }
      std::string text(bytes.data(), static_cast<std::size_t>(got));
      const std::size_t job_from = started_ ? 0 : LookForStart(text);
      logged_ += text.size();
      if (log_ >= 0 && logged_ <= kMostLogged) {
        const ssize_t kept = write(log_, text.data(), text.size());
        static_cast<void>(kept);  // A full disk is no reason to measure something else.
      }
      const std::string_view said = std::string_view(text).substr(job_from);
      for (const std::string& line : lines_.Take(said)) Hear(line);
    }
  }

  // Looks whether it, or what it has left behind, has ended.
  void Reap() {
    int status = 0;
    rusage usage{};
    while (group_ > 0) {
      const pid_t child = wait4(-group_, &status, WNOHANG, &usage);
      if (child < 0 && errno == ECHILD) group_ = -1;
      if (child <= 0) return;
      Count(usage);
      if (child != pid_) continue;
      pid_ = -1;
      ended_ = SteadyNow();
      status_ = status;
      Read();
    }
  }

  void Signal(int number) const {
    if (group_ > 0) kill(-group_, number);
  }

  // Of its end before anybody asked for it.
  [[nodiscard]] Result<void> CheckEnd() const {
    if (!ended_ || status_ == 0) return {};
    return Failed(WIFSIGNALED(status_)
                      ? fmt::format("was ended by signal {} ({})", WTERMSIG(status_),
                                    strsignal(WTERMSIG(status_)))
                      : fmt::format("ended with exit status {}", WEXITSTATUS(status_)));
  }

  // What it did; jobs that go on are measured in `from` to `to`.
  [[nodiscard]] Result<measure::JobFigures> Figures(TimePoint from, TimePoint to, bool by_itself) {
    // Never none at all: speeds are ratios of it.
    if (by_itself && ended_) figures_.seconds = std::max(Seconds(*ended_ - began_), kLeastSeconds);
    if (job_.progress) figures_.steps_per_s = steps_.Rate(from, to);
    if (job_.progress && !figures_.steps_per_s && !figures_.seconds) {
      return Failed(steps_.empty() ? "said nothing that its 'progress' matches"
                                   : "said its progress too seldom while it was measured: print it "
                                     "more often and unbuffered, or give `limit` more time");
    }
    if (job_.latency && !figures_.latency_ms) {
      return Failed("said nothing that its 'latency' matches");
    }
    return figures_;
  }

  [[nodiscard]] tl::unexpected<Error> Failed(const std::string& what) const {
    const std::string last = LastLine(job_.log);
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} {}; what it printed is in {}{}", job_.name, what, job_.log,
                            last.empty() ? "" : ", at last: " + Quoted(last)));
  }

  bool ready() const { return ready_; }
  bool running() const { return pid_ > 0; }
  // It, or a process that it started and left behind.
  bool has_processes() const { return group_ > 0; }
  int output() const { return output_; }
  const TogetherJob& job() const { return job_; }

 private:
  // Of a process that has ended, and those that it waited for.
  void Count(const rusage& usage) {
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    figures_.cpu_s = figures_.cpu_s.value_or(0) + seconds(usage.ru_utime) + seconds(usage.ru_stime);
    figures_.host_mib =
        std::max(figures_.host_mib.value_or(0), static_cast<double>(usage.ru_maxrss) / 1024);
  }

  // Takes the mark out of `text`, where it is whole: it is written at once, before all else.
  // Returns from where on the text is the job's.
  std::size_t LookForStart(std::string& text) {
    const std::string mark = job_.start_mark + "\n";
    const std::size_t at = text.find(mark);
    if (at == std::string::npos) return text.size();
    text.erase(at, mark.size());
    started_ = true;
    // Both may come with one look: then nobody knows what it took without the way to it.
    if (!ended_) began_ = heard_;
    ready_ = !job_.ready;
    return at;
  }

  void Hear(const std::string& line) {
    if (line.empty()) return;
    if (job_.ready && job_.ready->Matches(line)) ready_ = true;
    if (job_.progress) {
      if (const auto steps = job_.progress->Number(line)) steps_.Said(heard_, *steps);
    }
    if (job_.latency) {
      if (const auto ms = job_.latency->Number(line)) figures_.latency_ms = *ms;
    }
  }

  const TogetherJob& job_;
  pid_t pid_ = -1;
  pid_t group_ = -1;  // -1 when none of its processes is left.
  int output_ = -1;
  int input_ = -1;
  int log_ = -1;
  measure::LineSplitter lines_;
  measure::StepCount steps_;
  measure::JobFigures figures_;
  std::size_t logged_ = 0;
  bool started_ = false;  // It is the job that runs, not what leads to it.
  bool ready_ = false;
  TimePoint heard_{};  // What is being read came by then.
  TimePoint began_{};  // With its work: when started, or when told to.
  std::optional<TimePoint> ended_;
  int status_ = 0;
};

// Mean of what was seen over stretches of time, each by how long it was.
class GpuRecord {
 public:
  GpuRecord(device::UsageWatch* watch, Duration whole)
      : watch_(watch), moment_(std::max(kLeastMoment, whole / kMostMoments)) {}

  void Begin(TimePoint now) {
    begun_ = since_ = now;
    if (watch_ != nullptr) watch_->Begin();
  }

  void Look(TimePoint now) {
    if (watch_ == nullptr) return;
    watch_->Look();
    if (now - since_ >= moment_) Close(now);
    if (now - since_ == Duration(0)) watch_->Begin();
  }

  void End(TimePoint now, TogetherOutcome& outcome) {
    if (watch_ != nullptr && now > since_) Close(now);
    outcome.timeline = std::move(moments_);
    outcome.gpu.measured_s = Seconds(now - begun_);
    for (const auto field : {&measure::GpuFigures::busy, &measure::GpuFigures::sm_active,
                             &measure::GpuFigures::power_w}) {
      outcome.gpu.*field = Mean(outcome.timeline, field);
    }
    for (const GpuMoment& moment : outcome.timeline) {
      if (!moment.figures.memory_mib) continue;
      outcome.gpu.memory_mib =
          std::max(outcome.gpu.memory_mib.value_or(0), *moment.figures.memory_mib);
    }
  }

 private:
  void Close(TimePoint now) {
    const device::GpuUsage usage = watch_->End(now - since_);
    GpuMoment moment{
        .from_s = Seconds(since_ - begun_), .to_s = Seconds(now - begun_), .figures = {}};
    moment.figures.busy = usage.busy;
    moment.figures.sm_active = usage.sm_active;
    moment.figures.power_w = usage.power_w;
    if (const auto bytes = watch_->MemoryUsed()) {
      moment.figures.memory_mib = static_cast<double>(*bytes) / (1 << 20);
    }
    moments_.push_back(moment);
    since_ = now;
  }

  static std::optional<double> Mean(const std::vector<GpuMoment>& moments,
                                    std::optional<double> measure::GpuFigures::* field) {
    double sum = 0;
    double time = 0;
    for (const GpuMoment& moment : moments) {
      if (!(moment.figures.*field)) continue;
      sum += *(moment.figures.*field) * (moment.to_s - moment.from_s);
      time += moment.to_s - moment.from_s;
    }
    if (time <= 0) return {};
    return sum / time;
  }

  device::UsageWatch* watch_;
  Duration moment_;
  TimePoint begun_{};
  TimePoint since_{};
  std::vector<GpuMoment> moments_;
};

class Together {
 public:
  Together(const std::vector<TogetherJob>& jobs, const TogetherPace& pace,
           device::UsageWatch* watch, const std::function<void(std::string)>& tell)
      : pace_(pace), record_(watch, pace.limit), tell_(tell) {
    for (const TogetherJob& job : jobs) jobs_.push_back(std::make_unique<Running>(job));
    const sigset_t held = SignalsOfCollocate();
    // Jobs do not hold them back.
    sigprocmask(SIG_BLOCK, nullptr, &before_);
    for (const int signal : kHeldSignals) sigdelset(&before_, signal);
    signals_ = signalfd(-1, &held, SFD_NONBLOCK | SFD_CLOEXEC);
    Check(signals_ >= 0, "a file descriptor is to be had");
  }
  ~Together() { close(signals_); }
  Together(const Together&) = delete;
  Together& operator=(const Together&) = delete;

  [[nodiscard]] Result<TogetherOutcome> Run() {
    auto outcome = Measure();
    Stop();
    if (asked_to_end_) return Stopped();
    if (!outcome) return Fail(outcome.error());
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      auto figures = jobs_[i]->Figures(from_, to_, by_itself_[i]);
      if (!figures) return Fail(figures.error());
      outcome->jobs.push_back(*figures);
    }
    return outcome;
  }

 private:
  [[nodiscard]] Result<TogetherOutcome> Measure() {
    for (const auto& job : jobs_) {
      if (auto started = job->Start(before_); !started) return Fail(started.error());
    }
    const auto is_ready = [](const auto& job) { return job->ready(); };
    const TimePoint patience = SteadyNow() + kMostReady;
    while (!std::ranges::all_of(jobs_, is_ready)) {
      if (auto round = Round(); !round) return Fail(round.error());
      const auto late = std::ranges::find_if_not(jobs_, is_ready);
      if (late == jobs_.end()) break;
      if (!(*late)->running()) return (*late)->Failed("ended before it was ready");
      if (SteadyNow() > patience) {
        return (*late)->Failed(fmt::format("was not ready within {:.0f} s", Seconds(kMostReady)));
      }
    }
    for (const auto& job : jobs_) job->Begin();
    begun_ = SteadyNow();
    const bool going =
        std::ranges::any_of(jobs_, [](const auto& job) { return job->job().goes_on(); });
    from_ = going ? begun_ + pace_.warmup : begun_;
    to_ = begun_ + pace_.limit;
    return UntilTheEnd();
  }

  [[nodiscard]] Result<TogetherOutcome> UntilTheEnd() {
    bool recording = false;
    while (true) {
      const TimePoint now = SteadyNow();
      if (!recording && now >= from_) record_.Begin(now);
      if (recording) record_.Look(now);
      recording = recording || now >= from_;
      const bool none = std::ranges::none_of(jobs_, [](const auto& job) { return job->running(); });
      if (none || now >= to_) break;
      Tell(now);
      if (auto round = Round(); !round) return Fail(round.error());
    }
    to_ = std::min(to_, SteadyNow());
    TogetherOutcome outcome;
    if (recording) record_.End(to_, outcome);
    for (const auto& job : jobs_) {
      by_itself_.push_back(!job->running());
      if (job->running() && !job->job().goes_on()) {
        return job->Failed(
            fmt::format("has not ended within {:.3g} s; give it less to do, `limit` "
                        "more time, or say its `progress`",
                        Seconds(pace_.limit)));
      }
    }
    return outcome;
  }

  void Stop() {
    for (const auto& job : jobs_) job->Signal(SIGTERM);
    const auto has_processes = [](const auto& job) { return job->has_processes(); };
    const TimePoint patience = SteadyNow() + kMostStopping;
    while (std::ranges::any_of(jobs_, has_processes) && SteadyNow() < patience) Wait();
    for (const auto& job : jobs_) job->Signal(SIGKILL);
    while (std::ranges::any_of(jobs_, has_processes)) Wait();
  }

  // Waits a little, hears what came, and looks for ends.
  void Wait() {
    std::vector<pollfd> fds = {{signals_, POLLIN, 0}};
    for (const auto& job : jobs_) {
      if (job->output() >= 0) fds.push_back({job->output(), POLLIN, 0});
    }
    poll(fds.data(), fds.size(), kPollMs);
    signalfd_siginfo signal{};
    while (read(signals_, &signal, sizeof signal) == sizeof signal) {
      asked_to_end_ = asked_to_end_ || signal.ssi_signo != SIGCHLD;
    }
    for (const auto& job : jobs_) {
      job->Read();
      job->Reap();
    }
  }

  static tl::unexpected<Error> Stopped() {
    return Fail(ErrorCode::kAborted, "stopped by a signal; what was found before is kept");
  }

  [[nodiscard]] Result<void> Round() {
    Wait();
    if (asked_to_end_) return Stopped();
    for (const auto& job : jobs_) {
      if (auto end = job->CheckEnd(); !end) return end;
    }
    return {};
  }

  void Tell(TimePoint now) {
    if (tell_ == nullptr || now < next_word_) return;
    next_word_ = now + std::chrono::seconds(1);
    tell_(fmt::format("{:.0f} s of at most {:.0f} s", Seconds(now - begun_), Seconds(pace_.limit)));
  }

  TogetherPace pace_;
  GpuRecord record_;
  const std::function<void(std::string)>& tell_;
  std::vector<std::unique_ptr<Running>> jobs_;
  sigset_t before_{};
  int signals_ = -1;
  bool asked_to_end_ = false;
  TimePoint begun_{};
  TimePoint from_{};
  TimePoint to_{};
  TimePoint next_word_{};
  std::vector<bool> by_itself_;
};

}  // namespace

void HoldSignals() {
  // Who started us may ignore the ends of children; we would never hear of a job's.
  std::signal(SIGCHLD, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  // What jobs leave behind becomes ours: it is counted, and ended with them.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  const sigset_t held = SignalsOfCollocate();
  sigprocmask(SIG_BLOCK, &held, nullptr);
}

Result<TogetherOutcome> RunTogether(const std::vector<TogetherJob>& jobs, const TogetherPace& pace,
                                    device::UsageWatch* watch,
                                    const std::function<void(std::string)>& tell) {
  return Together(jobs, pace, watch, tell).Run();
}

}  // namespace divvy::app
