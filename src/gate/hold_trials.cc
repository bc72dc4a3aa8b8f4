#include "gate/hold_trials.h"

#include <algorithm>

namespace divvy::gate {
namespace {

// Smaller differences come and go with the requests.
bool IsClearlyLess(std::uint64_t a, std::uint64_t b) { return a * 100 < b * 97; }

}  // namespace

std::uint64_t HoldTrials::Way::Median() const {
  const std::uint32_t size = std::min(count, kKept);
  if (size == 0) return 0;
  std::uint64_t sorted[kKept];
  std::copy_n(ns, size, sorted);
  std::nth_element(sorted, sorted + size / 2, sorted + size);
  return sorted[size / 2];
}

void HoldTrials::Add(bool held, std::uint64_t ns) {
  Way& way = ways_[held ? 1 : 0];
  way.ns[way.count++ % kKept] = ns;
}

void HoldTrials::AddBearer(bool bore, std::uint64_t ns) {
  Way& way = bearers_[bore ? 1 : 0];
  way.ns[way.count++ % kKept] = ns;
}

bool HoldTrials::Next() {
  ++asked_;
  const Way& not_held = ways_[0];
  const Way& held = ways_[1];
  if (asked_ > kNoneInARow && not_held.count + held.count == 0) return false;
  const bool hurts = bearers_[0].count >= kEnough && bearers_[1].count >= kEnough &&
                     IsClearlyLess(bearers_[0].Median(), bearers_[1].Median());
  if (hurts) return asked_ % kTryOtherEvery == 0;
  if (not_held.count < kEnough || held.count < kEnough) {
    return not_held.count == held.count ? asked_ % 2 == 0 : held.count < not_held.count;
  }
  const bool other = asked_ % kTryOtherEvery == 0;
  if (IsClearlyLess(held.Median(), not_held.Median())) return !other;
  if (IsClearlyLess(not_held.Median(), held.Median())) return other;
  return asked_ % 2 == 0;
}

}  // namespace divvy::gate
