#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "device/usage.h"

namespace divvy::measure {

// What a partition did while batches were measured on it. Empty where nobody tells.
struct Usage {
  std::optional<double> utilization = {};  // 0 to 1.
  std::optional<double> memory_mib = {};   // Of all processes together.
  std::optional<double> power_w = {};      // Of the whole GPU.
};

// Reads meters for a stretch of time.
class Meter {
 public:
  virtual ~Meter() = default;
  virtual void Begin() = 0;
  virtual void Look() = 0;  // Some ten times a second.
  [[nodiscard]] virtual Usage End(Duration elapsed) = 0;
};

// Set in the environment of workers, so that they, and whatever they start, can be told from
// others.
inline constexpr std::string_view kMarkVariable = "DIVVY_PROFILE";

// Processes of this machine with that mark in their environment.
[[nodiscard]] std::vector<int> ProcessesMarked(std::string_view mark);

// On cores: the processes' memory. Pages that several share count once (Linux' PSS).
class HostMeter final : public Meter {
 public:
  explicit HostMeter(std::string mark) : mark_(std::move(mark)) {}
  void Begin() override {}
  void Look() override {}
  [[nodiscard]] Usage End(Duration elapsed) override;

 private:
  std::string mark_;
};

// On a GPU or a MIG instance, by NVML. Utilisation is the share of the partition's SMs that were
// busy where GPM tells (Hopper and later), else the share of the time in which a kernel ran. Memory
// is what NVML lists for the processes, else what is used more than when this was made: make it
// before the workers start.
class GpuMeter final : public Meter {
 public:
  // `share`: of the SMs that `watch` sees, those that the partition has; `copies`: so many such
  // partitions are at work, with processes that all have the mark. Utilisation and memory are
  // one's, power is the board's.
  GpuMeter(device::UsageWatch watch, double share, int copies, std::string mark);
  void Begin() override { watch_.Begin(); }
  void Look() override { watch_.Look(); }
  [[nodiscard]] Usage End(Duration elapsed) override;

 private:
  device::UsageWatch watch_;
  double share_;
  int copies_;
  std::string mark_;
  std::optional<std::uint64_t> before_;
};

}  // namespace divvy::measure
