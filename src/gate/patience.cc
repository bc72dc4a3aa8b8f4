#include "gate/patience.h"

#include "gate/latency.h"

#include <algorithm>

namespace divvy::gate {

void Patience::Add(std::uint64_t ns) {
  ++count_;
  if (patient_) ++patient_count_;
  // Waiting for blocks must not become what is usual.
  if (!patient_ || ns < usual_ns_) usual_ns_ = UsualNs(usual_ns_, ns);
  if (count_ <= kLearning || usual_ns_ == 0) return;
  const std::uint64_t beyond = ns > usual_ns_ ? ns - usual_ns_ : 0;
  const auto cost = static_cast<std::int32_t>(
      std::min<std::uint64_t>(beyond, usual_ns_ * kBudget / 1'000) * 1'000 / usual_ns_);
  spent_ = std::clamp(spent_ + (cost > kUnnoticed ? cost : 0) - kIncome, 0, 2 * kBudget);
  patient_ = spent_ < (patient_ ? kBudget : kBudget / 2);
}

}  // namespace divvy::gate
