#include "run_processes.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/syscall.h>
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

// The value of `variable`; nothing if it is not there.
std::optional<std::string_view> ValueOf(std::string_view environment, std::string_view variable) {
  while (!environment.empty()) {
    const std::size_t end = environment.find('\0');
    const std::string_view entry = environment.substr(0, end);
    if (entry.starts_with(variable) && entry.substr(variable.size()).starts_with('=')) {
      return entry.substr(variable.size() + 1);
    }
    if (end == std::string_view::npos) break;
    environment.remove_prefix(end + 1);
  }
  return std::nullopt;
}

bool HasElement(std::string_view list, std::string_view element) {
  while (true) {
    const std::size_t end = list.find(',');
    if (list.substr(0, end) == element) return true;
    if (end == std::string_view::npos) return false;
    list.remove_prefix(end + 1);
  }
}

bool SharesNamespaces(std::string_view pid) {
  for (const char* const kind : {"mnt", "pid"}) {
    std::error_code error;
    const auto own = std::filesystem::read_symlink(fmt::format("/proc/self/ns/{}", kind), error);
    const auto its = std::filesystem::read_symlink(fmt::format("/proc/{}/ns/{}", pid, kind), error);
    if (error || own != its) return false;
  }
  return true;
}

std::optional<pid_t> PidOf(std::string_view name) {
  pid_t pid = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data(), end, pid);
  if (failure != std::errc{} || rest != end) return std::nullopt;
  return pid;
}

// Kills each process of which `is_one` is true of its number. Looked at and killed by a handle
// that is taken first: a number may become another process' in between.
template <typename Predicate>
int KillEach(Predicate is_one) {
  int killed = 0;
  std::error_code error;
  std::filesystem::directory_iterator entry("/proc", error);
  for (const std::filesystem::directory_iterator end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename();
    const auto pid = PidOf(file);
    if (!pid || *pid == getpid()) continue;
    const auto handle = static_cast<int>(syscall(SYS_pidfd_open, *pid, 0));
    if (handle < 0) continue;
    if (is_one(file) && syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0) == 0) ++killed;
    close(handle);
  }
  return killed;
}

}  // namespace

int KillMarked(std::string_view variable, std::string_view id) {
  return KillEach([&](const std::string& pid) {
    const std::string environment = ReadProc(pid, "environ");
    const auto value = ValueOf(environment, variable);
    return value && HasElement(*value, id);
  });
}

int KillMps(std::string_view pipe_directory) {
  return KillEach([&](const std::string& pid) {
    if (!ReadProc(pid, "comm").starts_with(kMpsName) || !SharesNamespaces(pid)) return false;
    return ValueOf(ReadProc(pid, "environ"), "CUDA_MPS_PIPE_DIRECTORY") == pipe_directory;
  });
}

}  // namespace divvy::app
