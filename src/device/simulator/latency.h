#pragma once

#include <chrono>

// How long changes take with DIVVY_NVML_SIM_LATENCY=real. The sums for a GPU
// instance with one compute instance follow figures published for an A100:
// created in 19 ms (1g) to 52 ms (7g), destroyed when idle in 120 ms to 167 ms.
// How a sum divides between its two calls, and the mode change, are assumed.

namespace divvy::device::simulator {

inline constexpr std::chrono::microseconds kComputeInstanceCreationTime{5'000};
inline constexpr std::chrono::microseconds kComputeInstanceDestructionTime{20'000};
inline constexpr std::chrono::microseconds kMigModeChangeTime{1'000'000};

[[nodiscard]] constexpr std::chrono::microseconds GpuInstanceCreationTime(int compute_slices) {
  return std::chrono::microseconds(14'000 + 5'500 * (compute_slices - 1));
}

[[nodiscard]] constexpr std::chrono::microseconds GpuInstanceDestructionTime(int compute_slices) {
  return std::chrono::microseconds(100'000 + 7'800 * (compute_slices - 1));
}

}  // namespace divvy::device::simulator
