#pragma once

#include <array>
#include <cstdint>

namespace divvy {

// Seeded random numbers, the same on every machine and with every standard
// library, which <random>'s distributions are not. xoshiro256++, its state filled
// by splitmix64. Cheap to copy; a copy repeats what the original will say.
// Not thread-safe.
class Random {
 public:
  explicit Random(std::uint64_t seed);

  // 64 random bits.
  std::uint64_t Bits();

  // Uniform in [0, 1).
  double Uniform() { return static_cast<double>(Bits() >> 11) * 0x1.0p-53; }

  // Uniform in {0, .., n - 1}. REQUIRES: n > 0.
  std::uint64_t Below(std::uint64_t n);

  // Exponential with mean 1.
  double Exponential();

  // Normal with mean 0 and deviation 1.
  double Normal();

  // Gamma with this shape and mean `shape` (scale 1). REQUIRES: shape > 0.
  double Gamma(double shape);

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace divvy
