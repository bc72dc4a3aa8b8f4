#include "gate/patience.h"

#include "gate/latency.h"

#include <algorithm>

namespace divvy::gate {

void Patience::Add(std::uint64_t ns, bool in_a_row) {
  ++count_;
  if (patient_) ++patient_count_;
  // Waiting for blocks must not become what is usual.
  if (!in_a_row && (!patient_ || ns < usual_ns_)) usual_ns_ = UsualNs(usual_ns_, ns);
  if (!in_a_row && learned_ <= kLearning) ++learned_;
  if (learned_ <= kLearning || usual_ns_ == 0) return;
  // One that was late without patience was late for another reason.
  const std::uint64_t beyond = patient_ && ns > usual_ns_ ? ns - usual_ns_ : 0;
  const auto more = static_cast<std::int32_t>(std::min(beyond, usual_ns_) * 1'000 / usual_ns_);
  const std::int32_t cost = more > kLong ? kLongCosts : more > kUnnoticed ? more : 0;
  spent_ = std::clamp(spent_ + cost - kIncome, 0, kLongCosts);
  patient_ = spent_ < (patient_ ? kBudget : kBudget / 2);
}

}  // namespace divvy::gate
