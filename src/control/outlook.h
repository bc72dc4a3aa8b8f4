#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/result.h"
#include "control/estate.h"
#include "control/forecast.h"
#include "control/policy.h"

namespace divvy::control {

// What a controller believes will arrive.
class Outlook {
 public:
  virtual ~Outlook() = default;

  // Requests of each tenant in each of the `slots` from view.slot on, to be planned for.
  // kUnavailable with the reason when it had better not be relied on.
  [[nodiscard]] virtual Result<std::vector<std::vector<double>>> Expect(const View& view,
                                                                        int slots) = 0;
};

// Forecasters, one a tenant; the quantile is what is planned for. At the start, when
// nothing was seen yet, the fleet's mean. A forecast far beyond all that was ever seen
// is absurd, and not relied on.
class ForecastOutlook final : public Outlook {
 public:
  // REQUIRES: one forecaster a tenant.
  ForecastOutlook(const Estate& estate, std::vector<std::unique_ptr<Forecaster>> forecasters,
                  double quantile);

  [[nodiscard]] Result<std::vector<std::vector<double>>> Expect(const View& view,
                                                                int slots) override;

 private:
  const Estate& estate_;
  std::vector<std::unique_ptr<Forecaster>> forecasters_;
  double quantile_;
  std::size_t seen_ = 0;         // Slots that the forecasters have seen.
  std::vector<double> highest_;  // Requests of a tenant in a slot that were ever seen,
  std::vector<double> total_;    // and all of them.
};

// What really comes: requests by tenant and slot of the whole run. Shows what a perfect
// forecast would be worth.
class PerfectOutlook final : public Outlook {
 public:
  explicit PerfectOutlook(std::vector<std::vector<double>> arrivals);

  [[nodiscard]] Result<std::vector<std::vector<double>>> Expect(const View& view,
                                                                int slots) override;

 private:
  std::vector<std::vector<double>> arrivals_;
};

}  // namespace divvy::control
