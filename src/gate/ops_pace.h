#pragma once

// How often launches are timed under the kernel log.
//
// Assumes that a kernel takes much the same time each time. So each kind is timed a few times as
// soon as it is seen, and then every so many-th launch of any kind, as many as keep what timing has
// really taken below a set part of the time that passes.

#include <atomic>
#include <cstdint>

namespace divvy::gate {

// Part of the time that timing may take, in millionths, unless told otherwise.
inline constexpr std::uint32_t kDefaultOpsCostPpm = 5'000;

class OpsPace {
 public:
  static constexpr std::uint32_t kFirstSamples = 8;

  // At the beginning, when all kinds are new, timing may take this long whatever the rate.
  static constexpr std::int64_t kCreditAtFirstNs = 6'000'000;
  // More is not charged at once: a thread that was stopped in the middle was not stopped by us.
  static constexpr std::uint64_t kMostChargeNs = 10'000'000;

  // Before everything else.
  void Begin(std::uint32_t cost_ppm, std::uint64_t now_ns);

  // Whether launch number `launch` (from 0) of the kind `key`, which has `samples` timings, should
  // be timed. Any thread, on every launch.
  [[nodiscard]] bool IsTurn(std::uint64_t key, std::uint64_t launch, std::uint32_t samples) const {
    // The very first launch pays for loading its code and says nothing about the later ones.
    if (launch == 0) return false;
    if (samples < kFirstSamples) return true;
    // The multiples of the golden ratio are spread evenly and keep no step with a program's loops.
    // Each kind has a beginning of its own: those of one loop are launched equally often, and
    // would all be timed in the same round.
    const std::uint64_t place = launch * 0x9e3779b97f4a7c15U + key;
    return (place >> 1) >> (63 - bits_.load(std::memory_order_relaxed)) == 0;
  }

  // Whether a timing that is wanted may be had now. `first`: it is one of the first few of its
  // kind, which says nothing of how often the others should be. One caller at a time, with Charge.
  [[nodiscard]] bool Allows(std::uint64_t now_ns, bool first);
  // What timing has taken, in the calling thread or on the GPU. Returns what is charged for it.
  std::uint64_t Charge(std::uint64_t ns);

  [[nodiscard]] bool has_begun() const { return last_ns_ != 0; }

  // One launch in so many is timed.
  [[nodiscard]] std::uint32_t Every() const { return 1U << bits_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint32_t> bits_;
  std::uint32_t cost_ppm_;
  std::int64_t credit_ns_;
  std::uint64_t last_ns_;
  std::uint64_t changed_ns_;  // when bits_ was
};

}  // namespace divvy::gate
