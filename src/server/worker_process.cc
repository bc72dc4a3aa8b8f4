#include "server/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>

#include "kserve/describe.h"
#include "net/target.h"

extern char** environ;

namespace divvy::server {
namespace {

constexpr Duration kPoll = std::chrono::milliseconds(20);
constexpr Duration kRemotePoll = std::chrono::milliseconds(500);
// One may be lost with a connection that the server has just closed, being idle.
constexpr int kMostMissed = 2;
// To answer whether it is ready, and what it is.
constexpr Duration kAnswer = std::chrono::seconds(5);
// Between looks at whether what it runs on is there again.
constexpr Duration kPlacePoll = std::chrono::milliseconds(100);
constexpr Duration kMostStart = std::chrono::minutes(5);
// After we could not connect for want of descriptors, memory or ports.
constexpr Duration kOursAgain = std::chrono::milliseconds(100);
constexpr Duration kLeastWait = std::chrono::milliseconds(50);
constexpr Duration kMostWait = std::chrono::seconds(10);
// Whoever has lasted so long begins with the shortest wait again.
constexpr Duration kLasted = std::chrono::seconds(30);
constexpr Duration kMostStop = std::chrono::seconds(10);
constexpr int kLifelineFd = 3;

std::string Describe(int status) {
  if (WIFSIGNALED(status)) {
    return fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  }
  return fmt::format("exit status {}", WEXITSTATUS(status));
}

}  // namespace

WorkerProcess::WorkerProcess(net::Loop& loop, WorkerSpec spec, Log& log, Events events)
    : loop_(loop), spec_(std::move(spec)), log_(log), events_(std::move(events)) {}

WorkerProcess::~WorkerProcess() {
  if (has_timer_) loop_.Cancel(timer_);
  Kill();
  if (pid_ > 0) waitpid(pid_, nullptr, 0);
  if (pidfd_ >= 0) {
    loop_.Forget(pidfd_);
    close(pidfd_);
  }
  if (lifeline_ >= 0) close(lifeline_);
  if (!spec_.socket.empty()) unlink(spec_.socket.c_str());
}

void WorkerProcess::Later(Duration wait, void (WorkerProcess::*next)()) {
  if (has_timer_) loop_.Cancel(timer_);
  has_timer_ = true;
  timer_ = loop_.At(loop_.now() + wait, [this, next] {
    has_timer_ = false;
    (this->*next)();
  });
}

void WorkerProcess::Start() {
  if (spec_.can_start && !spec_.can_start()) return Later(kPlacePoll, &WorkerProcess::Start);
  started_ = loop_.now();
  if (starts_++ > 0 && events_.restarted) events_.restarted();
  if (!spec_.url.empty()) return AskWhetherReady();
  Spawn();
}

void WorkerProcess::Spawn() {
  std::array<int, 2> pipe{};
  if (pipe2(pipe.data(), O_CLOEXEC) != 0) return Again("no pipe");
  std::vector<std::string> words = spec_.command;
  words.insert(words.end(),
               {"--listen", "unix:" + spec_.socket, "--parent-fd", std::to_string(kLifelineFd)});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text = *variable;
    const bool replaced = std::ranges::any_of(
        spec_.environment, [&](const auto& entry) { return text.starts_with(entry.first + "="); });
    if (!replaced) variables.emplace_back(text);
  }
  for (const auto& [name, value] : spec_.environment) variables.push_back(name + "=" + value);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, pipe[0], kLifelineFd);
  // It says there that it is ready, which we ask it ourselves.
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // Its own group: a ^C at the terminal is for the router, which lets it finish.
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigdefault(&attributes, &all);
  const int error = posix_spawnp(&pid_, arguments[0], &actions, &attributes, arguments.data(),
                                 environment.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  close(pipe[0]);
  if (error != 0) {
    close(pipe[1]);
    pid_ = -1;
    return Again(fmt::format("{}: {}", spec_.command[0], strerror(error)));
  }
  lifeline_ = pipe[1];
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  if (pidfd_ < 0) {
    Kill();
    waitpid(std::exchange(pid_, -1), nullptr, 0);
    close(std::exchange(lifeline_, -1));
    return Again("no descriptor is left to watch it");
  }
  loop_.Watch(pidfd_, EPOLLIN, [this](std::uint32_t) { Exited(); });
  control_.reset();
  Later(kPoll, &WorkerProcess::AskWhetherReady);
}

void WorkerProcess::Exited() {
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return;
  loop_.Forget(pidfd_);
  close(std::exchange(pidfd_, -1));
  close(std::exchange(lifeline_, -1));
  pid_ = -1;
  control_.reset();
  if (stopping_) {
    if (has_timer_) loop_.Cancel(timer_);
    has_timer_ = false;
    return;
  }
  if (std::exchange(up_, false)) events_.down();
  Again(Describe(status));
}

void WorkerProcess::Again(const std::string& why) {
  if (stopping_) return;
  const bool lasted = up_since_ != TimePoint{} && loop_.now() - up_since_ > kLasted;
  up_since_ = {};
  wait_ = lasted ? kLeastWait : std::clamp(2 * wait_, kLeastWait, kMostWait);
  log_.Warning("worker ended", {{"partition", spec_.name},
                                {"model", spec_.model},
                                {"why", why},
                                {"again_in", fmt::format("{:.0f}ms", Milliseconds(wait_))}});
  Later(wait_, &WorkerProcess::Start);
}

void WorkerProcess::Kill() {
  // With what it started: a shell does not pass signals on.
  if (pid_ > 0) kill(-pid_, SIGKILL);
}

void WorkerProcess::GiveUp(const std::string& why) {
  up_ = false;
  if (!spec_.url.empty()) {
    control_.reset();
    return Again(why);
  }
  log_.Warning("worker given up",
               {{"partition", spec_.name}, {"model", spec_.model}, {"why", why}});
  Kill();  // Exited starts it again.
}

void WorkerProcess::Stop() {
  stopping_ = true;
  up_ = false;
  if (has_timer_) loop_.Cancel(timer_);
  has_timer_ = false;
  control_.reset();
  if (pid_ <= 0) return;
  kill(-pid_, SIGTERM);
  Later(kMostStop, &WorkerProcess::Kill);
}

Result<net::Address> WorkerProcess::Where() const {
  if (spec_.address) return *spec_.address;
  return net::Address::Parse("unix:" + spec_.socket);
}

std::string WorkerProcess::Host() const {
  if (spec_.url.empty()) return "localhost";
  std::string_view host = spec_.url;
  if (const auto scheme = host.find("://"); scheme != std::string_view::npos) {
    host.remove_prefix(scheme + 3);
  }
  return std::string(host.substr(0, host.find('/')));
}

std::string WorkerProcess::Target(std::string_view what) const {
  std::string target = "/v2/models/" + net::EscapedPart(spec_.model);
  // Where "/v2/models/stats" is the statistics of all, this still is the model.
  if (what.empty() && spec_.model == "stats") return target + "/versions/1";
  return target.append(what);
}

void WorkerProcess::AskWhetherReady() {
  if (!up_ && loop_.now() - started_ > kMostStart) {
    log_.Warning("worker is not ready in time",
                 {{"partition", spec_.name}, {"model", spec_.model}});
    started_ = loop_.now();
    if (spec_.url.empty()) return Kill();
  }
  if (control_ == nullptr) {
    const auto address = Where();
    if (!address) return Again(address.error().message);
    control_ = std::make_unique<net::HttpClient>(loop_, *address, Host(), streams_);
  }
  Later(kAnswer, &WorkerProcess::TooLate);
  control_->Send({.method = "GET", .target = Target("/ready"), .headers = {}, .body = {}},
                 [this](Result<net::HttpResponse> response) {
                   if (!response) return Unanswered(response.error());
                   if (response->status == 200) return AskForMetadata();
                   NotReady(fmt::format("it answers {} when asked whether the model is ready",
                                        response->status));
                 });
}

// It accepts and does not answer: on a new connection, then.
void WorkerProcess::TooLate() {
  control_.reset();
  if (up_ && events_.busy && events_.busy()) {
    return Later(spec_.check, &WorkerProcess::AskWhetherReady);
  }
  NotReady(fmt::format("no answer in {:.0f}s", Milliseconds(kAnswer) / 1000));
}

void WorkerProcess::TellOurs(const std::string& why) {
  if (std::exchange(told_ours_, true)) return;
  log_.Warning("no connection to a worker can be made from here; it is left as it is",
               {{"partition", spec_.name}, {"model", spec_.model}, {"why", why}});
}

void WorkerProcess::ReachAgain(const std::string& why) {
  if (stopping_) return;
  TellOurs(why);
  up_ = false;
  started_ = loop_.now();
  control_.reset();
  Later(kOursAgain, &WorkerProcess::AskWhetherReady);
}

void WorkerProcess::Unanswered(const Error& error) {
  if (error.code != ErrorCode::kResourceExhausted) return NotReady(error.message);
  // Its time to become ready begins when we can ask.
  TellOurs(error.message);
  if (!up_) started_ = loop_.now();
  Later(kOursAgain, &WorkerProcess::AskWhetherReady);
}

void WorkerProcess::NotReady(const std::string& why) {
  if (spec_.url.empty()) return Later(kPoll, &WorkerProcess::AskWhetherReady);
  if (up_ && ++missed_ < kMostMissed) return Later(kPoll, &WorkerProcess::AskWhetherReady);
  if (!std::exchange(told_, true)) {
    log_.Warning(
        up_ ? "server went down" : "server is down",
        {{"partition", spec_.name}, {"model", spec_.model}, {"url", spec_.url}, {"why", why}});
  }
  Later(std::min(kRemotePoll, spec_.check), &WorkerProcess::AskWhetherReady);
  if (std::exchange(up_, false)) {
    started_ = loop_.now();
    events_.down();
  }
}

void WorkerProcess::AskForMetadata() {
  Later(kAnswer, &WorkerProcess::TooLate);
  control_->Send({.method = "GET", .target = Target(""), .headers = {}, .body = {}},
                 [this](Result<net::HttpResponse> response) {
                   if (!response) return Unanswered(response.error());
                   auto metadata = kserve::ParseModelMetadata(response->body.view());
                   if (response->status != 200 || !metadata) {
                     return NotReady("it gives no metadata of the model");
                   }
                   metadata_ = std::move(*metadata);
                   AskForConfig();
                 });
}

// Not together with the other: a server may close after each answer.
void WorkerProcess::AskForConfig() {
  Later(kAnswer, &WorkerProcess::TooLate);
  control_->Send({.method = "GET", .target = Target("/config"), .headers = {}, .body = {}},
                 [this](Result<net::HttpResponse> response) {
                   if (!response) return Unanswered(response.error());
                   // A server without a config takes no batches.
                   const auto most = response->status == 200
                                         ? kserve::ParseMaxBatch(response->body.view())
                                         : Result<int>(0);
                   metadata_->max_batch = most ? *most : 0;
                   IsUp();
                 });
}

void WorkerProcess::IsUp() {
  const auto address = Where();
  if (!address) return Again(address.error().message);
  if (has_timer_) loop_.Cancel(timer_);
  has_timer_ = false;
  if (!spec_.url.empty()) Later(spec_.check, &WorkerProcess::AskWhetherReady);
  missed_ = 0;
  told_ = told_ours_ = false;
  if (up_ && *metadata_ == *known_) return;
  if (up_) {
    log_.Warning("server has become another",
                 {{"partition", spec_.name}, {"model", spec_.model}, {"url", spec_.url}});
    events_.down();
  }
  up_ = true;
  up_since_ = loop_.now();
  known_ = metadata_;
  log_.Info("worker up", {{"partition", spec_.name},
                          {"model", spec_.model},
                          {spec_.url.empty() ? "pid" : "url",
                           spec_.url.empty() ? std::to_string(pid_) : spec_.url}});
  events_.up(std::make_unique<Backend>(
                 loop_, *address, Host(),
                 spec_.url.empty() ? Backend::Kind::kWorker : Backend::Kind::kForeign),
             *metadata_);
}

}  // namespace divvy::server
