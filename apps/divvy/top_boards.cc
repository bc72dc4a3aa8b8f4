#include "top_boards.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <optional>

namespace divvy::app {
namespace {

constexpr std::size_t kUuidDigits = 32;

[[nodiscard]] tl::unexpected<Error> Wrong(const std::string& path, const std::string& what) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{} {}", path, what));
}

// A board, mapped for reading.
class Mapping {
 public:
  explicit Mapping(int fd)
      : memory_(mmap(nullptr, sizeof(gate::Board), PROT_READ, MAP_SHARED, fd, 0)) {}
  ~Mapping() {
    if (memory_ != MAP_FAILED) munmap(memory_, sizeof(gate::Board));
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  const gate::Board* board() const {
    return memory_ == MAP_FAILED ? nullptr : static_cast<const gate::Board*>(memory_);
  }

 private:
  void* memory_;
};

std::uint64_t Get(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

// Start times count ticks since boot, suspended time included.
std::uint64_t AgeOf(std::uint64_t start_time) {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double since_boot =
      static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
  const double start = static_cast<double>(start_time) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<std::uint64_t>(std::max(0.0, since_boot - start) * 1e9);
}

std::string NameOf(const gate::JobIdentity& job) {
  std::string name(job.name, strnlen(job.name, sizeof job.name));
  // Written by a program that is not ours, to be shown on a terminal.
  std::ranges::replace_if(name, [](char c) { return (c >= 0 && c < ' ') || c == 0x7f; }, '?');
  return name;
}

std::optional<JobReading> ReadSlot(const gate::Slot& slot, std::uint64_t now_ns) {
  if (slot.live.load(std::memory_order_acquire) != 1) return std::nullopt;
  JobReading job;
  job.pid = slot.pid;
  job.start_time = slot.start_time;
  if (!gate::IsAlive(job.pid, job.start_time)) return std::nullopt;
  job.age_ns = AgeOf(job.start_time);
  const gate::JobIdentity identity = gate::IdentityOf(slot);
  job.job_class = identity.job_class;
  job.name = NameOf(identity);
  job.weight = identity.weight;
  job.slo_ns = identity.slo_ns;
  job.memory_quota = identity.memory_quota;
  job.openness = slot.openness.load(std::memory_order_relaxed);
  job.memory_bytes = Get(slot.memory_bytes);
  job.launches = Get(slot.launches);
  job.markers = Get(slot.markers);
  job.gpu_ns = Get(slot.gpu_ns);
  const std::uint64_t closed_since = Get(slot.closed_since_ns);
  job.closed_ns = Get(slot.closed_ns);
  if (closed_since != 0 && closed_since < now_ns) job.closed_ns += now_ns - closed_since;
  job.requests = Get(slot.requests);
  job.late = Get(slot.late);
  job.p50_ns = Get(slot.p50_ns);
  job.p99_ns = Get(slot.p99_ns);
  job.rescued = Get(slot.rescued);
  job.marked = slot.marked.load(std::memory_order_relaxed) != 0;
  job.slice_us = slot.slice_us.load(std::memory_order_relaxed);
  job.apart = slot.apart.load(std::memory_order_relaxed) != 0;
  job.mode = static_cast<gate::GateMode>(slot.mode.load(std::memory_order_relaxed));
  // Somebody else may have taken the slot while we read.
  if (slot.live.load(std::memory_order_acquire) != 1 || slot.start_time != job.start_time) {
    return std::nullopt;
  }
  return job;
}

}  // namespace

Result<BoardReading> ReadBoard(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kInvalidArgument;
    return Fail(code, fmt::format("cannot open {}: {}", path, strerror(errno)));
  }
  struct stat status{};
  const bool known = fstat(fd, &status) == 0;
  const Mapping mapping(fd);
  close(fd);
  if (!known || status.st_uid != geteuid()) return Wrong(path, "belongs to another user");
  if (!S_ISREG(status.st_mode) || status.st_size != sizeof(gate::Board) ||
      mapping.board() == nullptr) {
    return Wrong(path, "has not the size of a board of this version of Divvy");
  }
  const gate::Board& board = *mapping.board();
  // It is being made, or was just removed.
  if (!gate::IsCurrent(&board)) return Fail(ErrorCode::kNotFound, path + " is gone");
  if (board.version != gate::kBoardVersion) {
    return Wrong(path, fmt::format("is of version {} where this Divvy has {}", board.version,
                                   gate::kBoardVersion));
  }
  BoardReading reading;
  const std::string name = std::filesystem::path(path).filename();
  reading.gpu = name.substr(name.size() - std::min(name.size(), kUuidDigits));
  reading.at_ns = gate::NowNs();
  for (const gate::Slot& slot : board.slots) {
    auto job = ReadSlot(slot, reading.at_ns);
    if (!job) continue;
    const bool serves = job->job_class == gate::JobClass::kServer;
    (serves ? reading.servers : reading.jobs).push_back(*std::move(job));
  }
  return reading;
}

}  // namespace divvy::app
