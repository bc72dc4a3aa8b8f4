#include "device/mps.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "base/text_safety.h"

namespace divvy::device {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kProgram = "nvidia-cuda-mps-control";
constexpr const char* kPipeVariable = "CUDA_MPS_PIPE_DIRECTORY=";
// The longest name that a daemon gives to a socket in its pipe directory.
constexpr std::string_view kLongestSocket = "/control_privileged";
constexpr std::size_t kMostAnswer = 1 << 20;

class Fd {
 public:
  explicit Fd(int fd = -1) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&&) = delete;
  ~Fd() { Close(); }

  int get() const { return fd_; }
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

struct Pipe {
  Fd read;
  Fd write;
};

std::optional<Pipe> MakePipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return std::nullopt;
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

[[nodiscard]] tl::unexpected<Error> Refused(std::string message) {
  return Fail(ErrorCode::kFailedPrecondition, std::move(message));
}

std::vector<char*> Pointers(std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This process's environment with some variables changed.
std::vector<std::string> Environment(const std::vector<std::string>& changes) {
  std::vector<std::string> variables = changes;
  for (char** v = environ; *v != nullptr; ++v) {
    const std::string_view variable = *v;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    const bool changed = std::ranges::any_of(
        changes, [&](const std::string& change) { return change.starts_with(name); });
    if (!changed) variables.emplace_back(variable);
  }
  return variables;
}

// Starts a program that dies with us. Between fork and exec nothing may be called but
// what is safe in a signal handler.
pid_t Spawn(std::vector<std::string> words, std::vector<std::string> environment, int in, int out) {
  const std::vector<char*> argv = Pointers(words);
  const std::vector<char*> envp = Pointers(environment);
  sigset_t none;
  sigemptyset(&none);
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // It died before the line above.
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(in, STDIN_FILENO);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  execve(argv[0], argv.data(), envp.data());
  _exit(127);
}

int MillisecondsLeft(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

// Reads until the other side closes; false when time ran out before.
bool ReadAll(int fd, Clock::time_point end, std::string& text) {
  while (true) {
    pollfd ready{fd, POLLIN, 0};
    const int count = poll(&ready, 1, MillisecondsLeft(end));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    std::array<char, 4096> buffer{};
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got <= 0) return true;
    if (text.size() < kMostAnswer) text.append(buffer.data(), static_cast<std::size_t>(got));
  }
}

// The exit status of a child that has closed its output and so is about to end;
// nothing when it does not.
std::optional<int> Reap(pid_t child, Clock::time_point end) {
  while (true) {
    int status = 0;
    if (waitpid(child, &status, WNOHANG) == child) return status;
    if (Clock::now() >= end) return std::nullopt;
    poll(nullptr, 0, 1);
  }
}

std::string_view Trimmed(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \n\r\t");
  return last == std::string_view::npos ? std::string_view{} : text.substr(0, last + 1);
}

std::string ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace

MpsControl::MpsControl(std::string program, Directories directories)
    : program_(std::move(program)), directories_(std::move(directories)) {}

Result<std::string> MpsControl::Ask(std::string_view command, Duration limit) const {
  const Clock::time_point end = Clock::now() + limit;
  auto in = MakePipe();
  auto out = MakePipe();
  if (!in || !out) return Refused(fmt::format("no pipe is to be had: {}", strerror(errno)));
  // Before the child is there: the line is far smaller than a pipe, so this cannot block.
  const std::string line = fmt::format("{}\n", command);
  if (write(in->write.get(), line.data(), line.size()) < 0) {
    return Refused(fmt::format("cannot write to a pipe: {}", strerror(errno)));
  }
  const pid_t child = Spawn({program_}, Environment({kPipeVariable + directories_.pipe}),
                            in->read.get(), out->write.get());
  if (child < 0) return Refused(fmt::format("cannot start {}: {}", program_, strerror(errno)));
  in->write.Close();
  out->write.Close();
  std::string answer;
  std::optional<int> status;
  if (ReadAll(out->read.get(), end, answer)) status = Reap(child, end);
  if (!status) {
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return Fail(ErrorCode::kUnavailable,
                fmt::format("the MPS daemon at {} did not answer '{}' within {:g} s",
                            directories_.pipe, command, Seconds(limit)));
  }
  if (WIFEXITED(*status) && WEXITSTATUS(*status) == 0) return answer;
  return Refused(fmt::format("the MPS daemon at {} does not take '{}': {}", directories_.pipe,
                             command, Quoted(Trimmed(answer))));
}

Result<pid_t> MpsControl::Start(const std::string& devices,
                                const std::map<std::string, std::string>& variables) const {
  const std::string log = directories_.log + "/foreground.log";
  const Fd out(open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  const Fd in(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (out.get() < 0 || in.get() < 0) {
    return Refused(fmt::format("cannot open {}: {}", log, strerror(errno)));
  }
  std::vector<std::string> changes = {
      kPipeVariable + directories_.pipe, "CUDA_MPS_LOG_DIRECTORY=" + directories_.log,
      "CUDA_VISIBLE_DEVICES=" + devices, "CUDA_DEVICE_ORDER=PCI_BUS_ID"};
  for (const auto& [name, value] : variables) changes.push_back(fmt::format("{}={}", name, value));
  const pid_t child = Spawn({program_, "-f"}, Environment(changes), in.get(), out.get());
  if (child < 0) return Refused(fmt::format("cannot start {}: {}", program_, strerror(errno)));
  return child;
}

std::string MpsControl::LastWords() const {
  const std::string text = ReadFile(directories_.log + "/foreground.log");
  const std::string_view trimmed = Trimmed(text);
  return std::string(trimmed.substr(trimmed.rfind('\n') + 1));
}

std::optional<std::string> FindMpsControl(std::string_view search_path) {
  while (true) {
    const std::size_t end = search_path.find(':');
    const std::string_view directory = search_path.substr(0, end);
    const std::string path = fmt::format("{}/{}", directory, kProgram);
    struct stat status{};
    if (!directory.empty() && stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
        access(path.c_str(), X_OK) == 0) {
      return path;
    }
    if (end == std::string_view::npos) return std::nullopt;
    search_path.remove_prefix(end + 1);
  }
}

bool FitsSocketNames(std::string_view pipe_directory) {
  return pipe_directory.size() + kLongestSocket.size() < sizeof(sockaddr_un::sun_path);
}

}  // namespace divvy::device
