#include "device/cuda_simulator/stats.h"

#include <fcntl.h>
#include <unistd.h>

#include <string_view>

namespace divvy::device::cuda_simulator {

void AppendStats(const std::string& path, const Stats& stats) {
  const std::pair<std::string_view, std::uint64_t> fields[] = {
      {"kernels", stats.kernels},
      {"kernel_launches", stats.kernel_launches},
      {"graph_launches", stats.graph_launches},
      {"waits", stats.waits},
      {"waits_blocked", stats.waits_blocked},
      {"wait_blocked_us", static_cast<std::uint64_t>(stats.wait_blocked / kMicrosecond)},
      {"writes", stats.writes},
      {"event_records", stats.event_records},
      {"event_queries", stats.event_queries},
      {"copies", stats.copies},
      {"host_calls", stats.host_calls},
      {"max_queue", stats.max_queue},
      {"launches_held", stats.launches_held},
      {"sm_wait_us", static_cast<std::uint64_t>(stats.sm_wait / kMicrosecond)},
      {"preemptions", stats.preemptions},
      {"memory_peak", stats.memory_peak},
      {"captures_broken", stats.captures_broken},
      {"faults", stats.faults},
  };
  std::string line = "{\"pid\": " + std::to_string(getpid());
  for (const auto& [name, value] : fields) {
    line += ", \"" + std::string(name) + "\": " + std::to_string(value);
  }
  line += "}\n";
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0) return;
  [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
  close(file);
}

}  // namespace divvy::device::cuda_simulator
