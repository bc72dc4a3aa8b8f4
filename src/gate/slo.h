#pragma once

// Request times of a latency job, and the openness that keeps their 99th percentile under its SLO.

#include <atomic>
#include <cstdint>

namespace divvy::gate {

// The last requests' times. Written by the job's threads, read by its keeper.
class RequestTimes {
 public:
  static constexpr std::uint32_t kKept = 256;

  void Add(std::uint64_t ns);
  [[nodiscard]] std::uint64_t Count() const { return count_.load(std::memory_order_acquire); }
  // The quantile, in thousandths, over the last `among` requests (at most kKept); 0 if there are
  // none.
  [[nodiscard]] std::uint64_t Quantile(std::uint32_t thousandths,
                                       std::uint32_t among = kKept) const;

 private:
  std::atomic<std::uint64_t> count_{0};
  std::atomic<std::uint64_t> ns_[kKept] = {};
};

// Moves the openness: in steps out while the slowest of a few requests is well under the SLO, by
// half in when it nears it, and at once when one misses it. What proved too much is tried again
// after a while, and later each time it fails.
class SloControl {
 public:
  explicit SloControl(std::uint64_t slo_ns = 0) : slo_ns_(slo_ns) {}
  [[nodiscard]] std::uint32_t Openness() const { return openness_; }
  // To be called with the times every few milliseconds.
  void Step(const RequestTimes& times);

 private:
  void BackOff(bool missed);

  std::uint64_t slo_ns_;
  std::uint64_t seen_ = 0;
  std::uint64_t missed_at_ = 0;  // by the count of requests
  std::uint32_t openness_ = 0;
  std::uint32_t ceiling_ = 1000;  // what proved too much lies above it
  std::uint32_t calm_ = 0;        // good judgements in a row
  std::uint32_t patience_ = 1;    // so many of them before the ceiling rises
};

}  // namespace divvy::gate
