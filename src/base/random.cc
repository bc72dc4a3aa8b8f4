#include "base/random.h"

#include <bit>
#include <cmath>
#include <numbers>

namespace divvy {

Random::Random(std::uint64_t seed) {
  for (std::uint64_t& word : state_) {
    seed += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = seed;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    word = mixed ^ (mixed >> 31);
  }
}

std::uint64_t Random::Bits() {
  const std::uint64_t result = std::rotl(state_[0] + state_[3], 23) + state_[0];
  const std::uint64_t shifted = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= shifted;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Random::Below(std::uint64_t n) {
  // Reject the tail that would favour small answers.
  const std::uint64_t reject = (0 - n) % n;
  std::uint64_t bits = Bits();
  while (bits < reject) bits = Bits();
  return bits % n;
}

double Random::Exponential() { return -std::log1p(-Uniform()); }

double Random::Normal() {
  // Box-Muller, one of the pair: keeping the other would make copies differ.
  const double radius = std::sqrt(2 * Exponential());
  return radius * std::cos(2 * std::numbers::pi * Uniform());
}

double Random::Gamma(double shape) {
  // Marsaglia and Tsang's squeeze; below 1 by way of shape + 1.
  if (shape < 1) return Gamma(shape + 1) * std::pow(1 - Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    const double u = 1 - Uniform();
    if (std::log(u) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace divvy
