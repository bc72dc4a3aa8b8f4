#include <algorithm>
#include <array>
#include <cmath>

#include "control/forecast_point.h"

namespace divvy::control {
namespace {

// Lags as means over more and more of the past: what a hundred single lags would say
// with a handful of weights. The first is the last slot itself, the last one the
// level that everything returns to.
constexpr std::array kLags = {1.0, 0.3, 0.1, 0.03, 0.01, 0.002};
constexpr std::size_t kWeights = kLags.size() - 1;
constexpr double kForgetting = 0.999;
// Of a weight: how far from its start it may be believed to lie. Also the most that
// forgetting lets it grow to, or a quiet hour would leave the weights free to jump.
constexpr double kPrior = 1;
constexpr double kMostWeight = 2;

using Lags = std::array<double, kLags.size()>;
using Vector = std::array<double, kWeights>;

Vector Features(const Lags& lags) {
  Vector features{};
  for (std::size_t i = 0; i < kWeights; ++i) features[i] = lags[i] - lags.back();
  return features;
}

// In square roots of counts, whose scatter does not depend on the level. Weights are
// learned by recursive least squares with forgetting.
class AutoRegression final : public PointForecaster {
 public:
  AutoRegression() {
    for (std::size_t i = 0; i < kWeights; ++i) covariance_[i][i] = kPrior;
  }

  void Observe(double arrivals) override {
    const double root = std::sqrt(arrivals);
    ++seen_;
    if (seen_ == 1) {
      lags_.fill(root);
      highest_ = root;
      return;
    }
    Learn(root);
    Advance(lags_, root, seen_);
    highest_ = std::max(root, 0.995 * highest_);
  }

  void Tell(std::span<const int> ahead, std::span<double> means) const override {
    Lags lags = lags_;
    double root = 0;
    int slot = 0;
    for (std::size_t i = 0; i < means.size(); ++i) {
      for (; slot < ahead[i]; ++slot) {
        root = Predict(lags);
        Advance(lags, root, seen_ + slot);
      }
      // The mean of squares is above the square of the mean.
      means[i] = root * root + variance_;
    }
  }

 private:
  static void Advance(Lags& lags, double root, double seen) {
    for (std::size_t i = 0; i < lags.size(); ++i) {
      lags[i] += std::max(kLags[i], 1 / seen) * (root - lags[i]);
    }
  }

  // Within what was seen: whatever the weights are, iterating cannot run away.
  [[nodiscard]] double Predict(const Lags& lags) const {
    const Vector features = Features(lags);
    double root = lags.back();
    for (std::size_t i = 0; i < kWeights; ++i) root += weights_[i] * features[i];
    return std::clamp(root, 0.0, highest_);
  }

  void Learn(double root) {
    const Vector features = Features(lags_);
    double error = root - lags_.back();
    for (std::size_t i = 0; i < kWeights; ++i) error -= weights_[i] * features[i];
    variance_ += std::max(0.01, 1 / seen_) * (error * error - variance_);

    Vector gain{};
    double known = 0;
    for (std::size_t i = 0; i < kWeights; ++i) {
      for (std::size_t j = 0; j < kWeights; ++j) gain[i] += covariance_[i][j] * features[j];
      known += features[i] * gain[i];
    }
    // Rounding may leave a little less than nothing of it.
    const double scale = std::max(variance_, 0.01) + std::max(known, 0.0);
    for (std::size_t i = 0; i < kWeights; ++i) {
      weights_[i] = std::clamp(weights_[i] + gain[i] / scale * error, -kMostWeight, kMostWeight);
      for (std::size_t j = 0; j < kWeights; ++j) covariance_[i][j] -= gain[i] * gain[j] / scale;
    }
    Forget();
  }

  void Forget() {
    for (std::size_t i = 0; i < kWeights; ++i) {
      if (covariance_[i][i] / kForgetting > kPrior) return;
    }
    for (Vector& row : covariance_) {
      for (double& entry : row) entry /= kForgetting;
    }
  }

  double seen_ = 0;
  Lags lags_{};
  Vector weights_ = {0.05, 0.2, 0.3, 0.2, 0.15};
  std::array<Vector, kWeights> covariance_{};
  double variance_ = 0;  // Of errors one slot ahead.
  double highest_ = 0;   // Of late.
};

}  // namespace

std::unique_ptr<PointForecaster> MakeAutoRegression() { return std::make_unique<AutoRegression>(); }

}  // namespace divvy::control
