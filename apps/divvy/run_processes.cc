#include "run_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <csignal>
#include <filesystem>
#include <optional>
#include <string>

namespace divvy::app {
namespace {

// What the kernel keeps of the names of nvidia-cuda-mps-control and -server.
constexpr std::string_view kMpsName = "nvidia-cuda-mps";

// Not a stream: those throw when a process ends while its file is read.
std::string ReadProc(std::string_view pid, std::string_view file) {
  const int fd = open(fmt::format("/proc/{}/{}", pid, file).c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t got = 0; (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

bool HasVariable(std::string_view environment, std::string_view variable) {
  while (!environment.empty()) {
    const std::size_t end = environment.find('\0');
    if (environment.substr(0, end) == variable) return true;
    if (end == std::string_view::npos) break;
    environment.remove_prefix(end + 1);
  }
  return false;
}

std::optional<pid_t> PidOf(std::string_view name) {
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, pid);
  if (failure != std::errc{} || rest != end) return std::nullopt;
  return pid;
}

}  // namespace

int KillProcesses(std::string_view variable, std::string_view name) {
  int killed = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename();
    const auto pid = PidOf(file);
    if (!pid || *pid == getpid() || !ReadProc(file, "comm").starts_with(name)) continue;
    if (HasVariable(ReadProc(file, "environ"), variable) && kill(*pid, SIGKILL) == 0) ++killed;
  }
  return killed;
}

int KillMps(std::string_view pipe_directory) {
  return KillProcesses(fmt::format("CUDA_MPS_PIPE_DIRECTORY={}", pipe_directory), kMpsName);
}

}  // namespace divvy::app
