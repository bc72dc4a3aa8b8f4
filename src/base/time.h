#pragma once

#include <chrono>

namespace divvy {

// Time inside Divvy: whole nanoseconds on a line that the caller draws. The
// server counts from its start by a steady clock, the simulator from zero; the
// code in between reads no clock and is told the time.
using Duration = std::chrono::nanoseconds;

struct DivvyTime {
  using duration = Duration;
};
using TimePoint = std::chrono::time_point<DivvyTime, Duration>;

[[nodiscard]] constexpr double Milliseconds(Duration duration) {
  return static_cast<double>(duration.count()) / 1e6;
}

[[nodiscard]] constexpr double Seconds(Duration duration) {
  return static_cast<double>(duration.count()) / 1e9;
}

// To the nearest nanosecond. REQUIRES: |ms| below 9e12, 280 years.
[[nodiscard]] constexpr Duration FromMilliseconds(double ms) {
  return Duration(static_cast<Duration::rep>(ms * 1e6 + (ms < 0 ? -0.5 : 0.5)));
}

[[nodiscard]] constexpr Duration FromSeconds(double seconds) {
  return FromMilliseconds(seconds * 1e3);
}

}  // namespace divvy
