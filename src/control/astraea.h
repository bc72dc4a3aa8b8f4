#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "control/policy.h"
#include "control/share_packing.h"

namespace divvy::control {

// Astraea (QoS for microservices on GPUs): predicts each service's latency, gives it an
// MPS quota that is just large enough for its SLO, and the rest to what has no deadline,
// here to retrainings.
//
// What we had to choose:
// - The predictor of latency is the measured profile: a service is in time when the
//   capacity of its tenths (requests in time a slot) covers its rate. The rate is the
//   higher of the means of the last 5 and the last 20 slots, so that a rise counts at
//   once, and a tenth more for what comes at random.
// - Services that need more than there is share it in proportion to what they need.
// - The rest is split evenly among tenants that want to retrain, those that run first,
//   then by what they gain in the window; the more the better, as long as each still has
//   an option that ends in the window and gains.
// - Every change of a quota restarts the service, so quotas grow at once but shrink only
//   when less was needed for 30 slots on end, and services in need of more than there is
//   keep what they have while it is within a tenth of their due. A retraining that would
//   end no sooner with more keeps what it has.
class Astraea final : public Policy {
 public:
  // REQUIRES: the estate outlives the policy.
  explicit Astraea(const Estate& estate);

  std::string_view name() const override { return "astraea"; }
  Sharing sharing() const override { return Sharing::kMps; }
  [[nodiscard]] Decision Decide(const View& view) override;

 private:
  // How long a service has needed less than its quota, and the most it did.
  struct Quota {
    int tenths = 0;
    int lower_since = -1;  // Slot; negative: it needs what it has.
    int most_since = 0;
  };

  void Follow(const View& view);
  [[nodiscard]] std::vector<int> ServingShares(const View& view) const;
  [[nodiscard]] std::vector<ShareWish::Retraining> RetrainingShares(const View& view,
                                                                    int tenths) const;

  const Estate& estate_;
  std::vector<Quota> quotas_;  // By tenant; what they would have if there were enough.
};

// The fewest tenths with which `tenant` answers `rate` requests a slot; all there are
// if none suffice.
[[nodiscard]] int TenthsFor(const Estate& estate, std::size_t tenant, double rate);

}  // namespace divvy::control
