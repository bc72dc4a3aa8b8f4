#include "measure/meter.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/number.h"

namespace divvy::measure {
namespace {

namespace fs = std::filesystem;

constexpr double kBytesInMib = 1024.0 * 1024.0;

// Not a stream: those throw when a process ends while its file in /proc is read.
std::string ReadProcFile(const std::string& path) {
  std::string text;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::array<char, 4096> buffer;
  for (ssize_t got = 0; (got = read(fd, buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(got));
  }
  close(fd);
  return text;
}

// The number behind "Pss:", in KiB.
std::optional<double> PssKib(const std::string& rollup) {
  constexpr std::string_view kName = "\nPss:";
  const std::size_t at = rollup.find(kName);
  if (at == std::string::npos) return std::nullopt;
  const std::size_t begin = rollup.find_first_not_of(' ', at + kName.size());
  const std::size_t end = rollup.find(' ', begin);
  if (begin == std::string::npos || end == std::string::npos) return std::nullopt;
  return ParseReal(std::string_view(rollup).substr(begin, end - begin));
}

}  // namespace

std::vector<int> ProcessesMarked(std::string_view mark) {
  const std::string wanted = std::string(kMarkVariable) + "=" + std::string(mark);
  std::vector<int> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const auto pid = ParseInteger(entry.path().filename().string());
    if (!pid) continue;
    const std::string environment = ReadProcFile(entry.path() / "environ") + '\0';
    const std::string whole = wanted + '\0';
    const std::size_t at = environment.find(whole);
    const bool at_start = at == 0 || (at != std::string::npos && environment[at - 1] == '\0');
    if (at != std::string::npos && at_start) found.push_back(*pid);
  }
  std::ranges::sort(found);
  return found;
}

Usage HostMeter::End(Duration) {
  Usage usage;
  double kib = 0;
  for (const int pid : ProcessesMarked(mark_)) {
    const auto pss = PssKib(ReadProcFile("/proc/" + std::to_string(pid) + "/smaps_rollup"));
    if (!pss) return usage;  // A part would pass for the whole.
    kib += *pss;
  }
  if (kib > 0) usage.memory_mib = kib / 1024;
  return usage;
}

GpuMeter::GpuMeter(device::UsageWatch watch, double share, int copies, std::string mark)
    : watch_(std::move(watch)),
      share_(share),
      copies_(copies),
      mark_(std::move(mark)),
      before_(watch_.MemoryUsed()) {}

Usage GpuMeter::End(Duration elapsed) {
  const device::GpuUsage seen = watch_.End(elapsed);
  Usage usage{.utilization = seen.busy, .power_w = seen.power_w};
  if (seen.sm_active) usage.utilization = std::min(1.0, *seen.sm_active / (share_ * copies_));
  const std::vector<int> processes = ProcessesMarked(mark_);
  const double mib = kBytesInMib * copies_;
  if (const auto own = watch_.MemoryOf(processes)) {
    usage.memory_mib = static_cast<double>(*own) / mib;
  } else if (const auto now = watch_.MemoryUsed(); now && before_ && *now > *before_) {
    usage.memory_mib = static_cast<double>(*now - *before_) / mib;
  }
  return usage;
}

}  // namespace divvy::measure
