#include <algorithm>
#include <array>
#include <utility>

#include "base/check.h"
#include "control/forecast_errors.h"
#include "control/forecast_point.h"

namespace divvy::control {
namespace {

// How a weight falls with the squared error, 1 for the least: its eighth power. The
// first would be near a mean of all, the thirtieth the best alone; both lost a percent
// or two on the first half of Azure's traces.
double Weight(double least, double loss) {
  const double ratio = (least + 1e-9) / (loss + 1e-9);
  const double fourth = ratio * ratio * ratio * ratio;
  return fourth * fourth;
}

class Combination final : public PointForecaster {
 public:
  explicit Combination(PointForecasters members)
      : members_(std::move(members)), records_(members_.size()) {
    Check(!members_.empty(), "something to combine");
  }

  void Observe(double arrivals) override {
    ByHorizon means{};
    for (std::size_t m = 0; m < members_.size(); ++m) {
      Record& record = records_[m];
      for (std::size_t h = 0; h < kHorizons.size(); ++h) {
        const auto said = record.pending.Due(h);
        if (said) record.Add(h, arrivals, *said);
      }
      members_[m]->Observe(arrivals);
      members_[m]->Tell(kHorizons, means);
      record.pending.Expect(means);
    }
    Weigh();
  }

  void Tell(std::span<const int> ahead, std::span<double> means) const override {
    std::vector<double> one(means.size());
    std::ranges::fill(means, 0.0);
    for (std::size_t m = 0; m < members_.size(); ++m) {
      members_[m]->Tell(ahead, one);
      for (std::size_t i = 0; i < means.size(); ++i) {
        means[i] += Interpolate(records_[m].weights, ahead[i]) * one[i];
      }
    }
  }

 private:
  struct Record {
    PendingForecasts pending;
    ByHorizon loss{};  // Squared errors, forgotten with time.
    ByHorizon weights{};

    void Add(std::size_t horizon, double arrivals, double said) {
      const double error = arrivals - said;
      const double forgetting = 1 - 1 / (100.0 + 4 * kHorizons[horizon]);
      loss[horizon] = forgetting * loss[horizon] + error * error;
    }
  };

  void Weigh() {
    for (std::size_t h = 0; h < kHorizons.size(); ++h) {
      double least = records_[0].loss[h];
      for (const Record& record : records_) least = std::min(least, record.loss[h]);
      double all = 0;
      for (Record& record : records_) {
        // What was not due yet is judged by the horizon before it.
        const bool judged = record.pending.Due(h).has_value();
        record.weights[h] =
            judged || h == 0 ? Weight(least, record.loss[h]) : record.weights[h - 1];
        all += record.weights[h];
      }
      for (Record& record : records_) record.weights[h] /= all;
    }
  }

  PointForecasters members_;
  std::vector<Record> records_;  // By member.
};

}  // namespace

std::unique_ptr<PointForecaster> Combine(PointForecasters members) {
  return std::make_unique<Combination>(std::move(members));
}

}  // namespace divvy::control
