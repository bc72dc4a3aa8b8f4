#include "gate/ops_pace.h"

namespace divvy::gate {
namespace {

constexpr std::uint32_t kFirstBits = 4;
constexpr std::uint32_t kMostBits = 20;
// Samples' worth of credit: at the beginning, when all kinds are new, and later.
constexpr std::uint64_t kCreditAtFirst = 512;
constexpr std::uint64_t kMostCredit = 64;
// Between two changes of the rate, so that a burst does not silence the log for long.
constexpr std::uint64_t kChangeNs = 5'000'000;

}  // namespace

void OpsPace::Begin(std::uint32_t cost_ppm, std::uint32_t sample_ns, std::uint64_t now_ns) {
  bits_.store(kFirstBits, std::memory_order_relaxed);
  cost_ppm_ = cost_ppm;
  sample_ns_ = sample_ns == 0 ? 1 : sample_ns;
  credit_ns_ = kCreditAtFirst * sample_ns_;
  last_ns_ = now_ns;
  changed_ns_ = now_ns;
}

bool OpsPace::Spend(std::uint64_t now_ns, bool first) {
  const std::uint64_t most = kMostCredit * sample_ns_;
  if (now_ns > last_ns_) {
    // What the division loses is below a nanosecond, and launches are microseconds apart.
    const std::uint64_t earned = (now_ns - last_ns_) * cost_ppm_ / 1'000'000;
    if (credit_ns_ < most) credit_ns_ = credit_ns_ + earned < most ? credit_ns_ + earned : most;
    last_ns_ = now_ns;
  }
  const bool enough = credit_ns_ >= sample_ns_;
  if (enough) credit_ns_ -= sample_ns_;
  if (first || now_ns < changed_ns_ + kChangeNs) return enough;
  const std::uint32_t bits = bits_.load(std::memory_order_relaxed);
  if (!enough && bits < kMostBits) {
    bits_.store(bits + 1, std::memory_order_relaxed);
    changed_ns_ = now_ns;
  } else if (enough && bits > 0 && credit_ns_ > most / 2) {
    bits_.store(bits - 1, std::memory_order_relaxed);
    changed_ns_ = now_ns;
  }
  return enough;
}

}  // namespace divvy::gate
