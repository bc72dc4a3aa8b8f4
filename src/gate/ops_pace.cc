#include "gate/ops_pace.h"

namespace divvy::gate {
namespace {

constexpr std::uint32_t kFirstBits = 4;
constexpr std::uint32_t kMostBits = 20;
constexpr std::int64_t kMostCreditNs = 800'000;
// Between two changes of the rate, so that a burst does not silence the log for long.
constexpr std::uint64_t kChangeNs = 5'000'000;

}  // namespace

void OpsPace::Begin(std::uint32_t cost_ppm, std::uint64_t now_ns) {
  bits_.store(kFirstBits, std::memory_order_relaxed);
  cost_ppm_ = cost_ppm;
  credit_ns_ = kCreditAtFirstNs;
  last_ns_ = now_ns;
  changed_ns_ = now_ns;
}

bool OpsPace::Allows(std::uint64_t now_ns, bool first) {
  if (now_ns > last_ns_) {
    // What the division loses is below a nanosecond, and launches are microseconds apart.
    const auto earned = static_cast<std::int64_t>((now_ns - last_ns_) * cost_ppm_ / 1'000'000);
    if (credit_ns_ < kMostCreditNs)
      credit_ns_ = credit_ns_ + earned < kMostCreditNs ? credit_ns_ + earned : kMostCreditNs;
    last_ns_ = now_ns;
  }
  const bool enough = credit_ns_ > 0;
  if (first || now_ns < changed_ns_ + kChangeNs) return enough;
  const std::uint32_t bits = bits_.load(std::memory_order_relaxed);
  if (!enough && bits < kMostBits) {
    bits_.store(bits + 1, std::memory_order_relaxed);
    changed_ns_ = now_ns;
  } else if (bits > 0 && credit_ns_ > kMostCreditNs / 2) {
    bits_.store(bits - 1, std::memory_order_relaxed);
    changed_ns_ = now_ns;
  }
  return enough;
}

std::uint64_t OpsPace::Charge(std::uint64_t ns) {
  const std::uint64_t charged = ns < kMostChargeNs ? ns : kMostChargeNs;
  credit_ns_ -= static_cast<std::int64_t>(charged);
  return charged;
}

}  // namespace divvy::gate
