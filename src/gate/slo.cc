#include "gate/slo.h"

#include "gate/board.h"

#include <algorithm>
#include <initializer_list>

namespace divvy::gate {
namespace {

constexpr std::uint32_t kStepRequests = 16;  // judged at a time
constexpr std::uint32_t kOut = 50;           // one step out
constexpr std::uint32_t kCeilingOut = 5;
constexpr std::uint32_t kMostPatience = 64;  // judgements
constexpr std::uint32_t kLongCalm = 32;
constexpr std::uint32_t kAlone = 3 * kStepRequests;  // requests since the last miss

}  // namespace

void RequestTimes::Add(std::uint64_t ns) {
  const std::uint64_t at = count_.load(std::memory_order_relaxed);
  ns_[at % kKept].store(ns, std::memory_order_relaxed);
  count_.store(at + 1, std::memory_order_release);
}

std::uint64_t RequestTimes::Quantile(std::uint32_t thousandths, std::uint32_t among) const {
  const std::uint64_t count = Count();
  const auto size = static_cast<std::uint32_t>(std::min<std::uint64_t>({count, among, kKept}));
  if (size == 0) return 0;
  std::uint64_t sorted[kKept];
  for (std::uint32_t i = 0; i < size; ++i)
    sorted[i] = ns_[(count - 1 - i) % kKept].load(std::memory_order_relaxed);
  const std::uint32_t rank = std::min(size - 1, size * thousandths / 1000);
  std::nth_element(sorted, sorted + rank, sorted + size);
  return sorted[rank];
}

void SloControl::Step(const RequestTimes& times) {
  const std::uint64_t count = times.Count();
  const auto fresh =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(count - seen_, RequestTimes::kKept));
  const std::uint64_t worst = times.Quantile(1000, fresh);
  // A miss is acted on at once: where one step was too far, each request until then is late.
  if (worst <= slo_ns_ && fresh < kStepRequests) return;
  seen_ = count;
  if (worst * 10 > slo_ns_ * 9) {
    BackOff(worst > slo_ns_);
    return;
  }
  ++calm_;
  if (calm_ > patience_) {
    ceiling_ = std::min(kNoProtection,
                        ceiling_ + std::min(kOut, kCeilingOut * (1 + (calm_ - patience_) / 8)));
  }
  if (calm_ > 2 * patience_ + kLongCalm) patience_ = std::max(patience_ / 2, 1U);
  // Room to spare lets it out faster.
  const std::uint32_t step = kOut * (worst * 5 < slo_ns_ * 2 ? 10U : worst * 2 < slo_ns_ ? 4U : 1U);
  openness_ = std::min(ceiling_, openness_ + step);
}

void SloControl::BackOff(bool missed) {
  if (openness_ == 0) {
    // Nothing of what was slow is due to openness: a cold start, or a load of its own.
    calm_ = 0;
    return;
  }
  const bool alone = missed && seen_ - missed_at_ > kAlone;
  if (missed) missed_at_ = seen_;
  if (alone && calm_ > 0) {
    // One in a hundred may be late, for reasons of its own: a step back, and if that was not it, it
    // comes again.
    openness_ -= std::min(openness_, kOut);
    return;
  }
  // Late requests come in bursts: only the first says where it went too far.
  if (calm_ > 0 || openness_ < ceiling_) ceiling_ = openness_ > kOut / 2 ? openness_ - kOut / 2 : 0;
  // Ever rarer attempts keep the misses that they cost below one in a hundred.
  if (missed && calm_ > 0) patience_ = std::min(2 * patience_, kMostPatience);
  openness_ /= 2;
  calm_ = 0;
}

}  // namespace divvy::gate
