#pragma once

#include <ctime>

#include <cstdint>
#include <limits>

namespace divvy::device::cuda_simulator {

// A moment on CLOCK_MONOTONIC, which all processes of a machine share, or a span; in nanoseconds.
// Plain numbers, since they also lie in memory that processes share.
using Nanos = std::int64_t;

inline constexpr Nanos kMicrosecond = 1'000;
inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kNever = std::numeric_limits<Nanos>::max();

inline Nanos Now() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<Nanos>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

}  // namespace divvy::device::cuda_simulator
