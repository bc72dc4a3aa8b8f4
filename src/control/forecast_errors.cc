#include "control/forecast_errors.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace divvy::control {
namespace {

// Enough for a quantile of 0.95 that does not jump about, few enough to forget.
constexpr std::size_t kWindow = 128;
// Fewer errors than these say little about a tail.
constexpr std::size_t kFew = 32;

// What an error is measured in. Below one arrival a slot the root says nothing.
double Unit(double mean) { return std::sqrt(std::max(mean, 1.0)); }

// Quantile of the standard normal distribution, within 5e-4 (rational approximation
// of the tail; symmetric).
double NormalQuantile(double q) {
  const double tail = std::min(q, 1 - q);
  const double t = std::sqrt(-2 * std::log(tail));
  const double above = t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                               (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
  return q < 0.5 ? -above : above;
}

// Errors of long horizons overlap: neighbours say the same. Taken further apart, the
// same window reaches back further.
std::int64_t Stride(int horizon) { return std::max(1, horizon / 20); }

// Which horizon a slot is at or beyond, and how far it is on the way to the next.
struct Position {
  std::size_t below;
  std::size_t above;
  double way;
};

constexpr auto kPositions = [] {
  std::array<Position, static_cast<std::size_t>(kHorizons.back())> positions{};
  std::size_t below = 0;
  for (int ahead = 1; ahead <= kHorizons.back(); ++ahead) {
    const std::size_t above = std::min(below + 1, kHorizons.size() - 1);
    if (ahead == kHorizons[above]) below = above;
    const std::size_t next = std::min(below + 1, kHorizons.size() - 1);
    const int gap = std::max(1, kHorizons[next] - kHorizons[below]);
    positions[static_cast<std::size_t>(ahead) - 1] = {
        below, next, static_cast<double>(ahead - kHorizons[below]) / gap};
  }
  return positions;
}();

}  // namespace

double Interpolate(const ByHorizon& values, int ahead) {
  Check(ahead >= 1, "a slot that is yet to come");
  const Position& at = kPositions[static_cast<std::size_t>(std::min(ahead, kHorizons.back())) - 1];
  return values[at.below] + at.way * (values[at.above] - values[at.below]);
}

PendingForecasts::PendingForecasts() {
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    rings_[i].resize(static_cast<std::size_t>(kHorizons[i]));
  }
}

std::optional<double> PendingForecasts::Due(std::size_t horizon) const {
  if (slot_ < kHorizons[horizon]) return std::nullopt;
  return rings_[horizon][static_cast<std::size_t>(slot_ % kHorizons[horizon])];
}

void PendingForecasts::Expect(const ByHorizon& means) {
  for (std::size_t i = 0; i < rings_.size(); ++i) {
    rings_[i][static_cast<std::size_t>(slot_ % kHorizons[i])] = means[i];
  }
  ++slot_;
}

void SortedWindow::Add(double value) {
  if (by_age_.size() < capacity_) {
    by_age_.push_back(value);
  } else {
    sorted_.erase(std::ranges::lower_bound(sorted_, by_age_[oldest_]));
    by_age_[oldest_] = value;
    oldest_ = (oldest_ + 1) % capacity_;
  }
  sorted_.insert(std::ranges::upper_bound(sorted_, value), value);
}

double SortedWindow::Quantile(double q) const {
  Check(!sorted_.empty(), "a quantile of something");
  // n values cut the line into n + 1 parts that the next one falls into alike often.
  const double rank = q * static_cast<double>(sorted_.size() + 1) - 1;
  const double last = static_cast<double>(sorted_.size() - 1);
  const double clamped = std::clamp(rank, 0.0, last);
  const auto low = static_cast<std::size_t>(clamped);
  const std::size_t high = std::min(low + 1, sorted_.size() - 1);
  return std::lerp(sorted_[low], sorted_[high], clamped - static_cast<double>(low));
}

ErrorBands::ErrorBands() : errors_(kHorizons.size(), SortedWindow(kWindow)) {}

void ErrorBands::Observe(double arrivals, const ByHorizon& means) {
  for (std::size_t i = 0; i < kHorizons.size(); ++i) {
    const auto said = pending_.Due(i);
    if (!said || slot_ % Stride(kHorizons[i]) != 0) continue;
    errors_[i].Add((arrivals - *said) / Unit(*said));
  }
  pending_.Expect(means);
  ++slot_;
}

void ErrorBands::ToQuantile(std::span<double> means, double q) const {
  Check(q > 0 && q < 1, "a quantile between 0 and 1");
  const double poisson = NormalQuantile(q);
  const auto farther_from_mean = [&](double a, double b) {
    return q < 0.5 ? std::min(a, b) : std::max(a, b);
  };
  ByHorizon offset{};
  ByHorizon few{};  // 1 where there are.
  for (std::size_t i = 0; i < kHorizons.size(); ++i) {
    const SortedWindow& errors = errors_[i];
    if (errors.size() > 0) offset[i] = errors.Quantile(q);
    // A long horizon is no surer than the shorter one that has been seen more often.
    few[i] = errors.size() < kFew ? 1 : 0;
    if (few[i] > 0 && i > 0) offset[i] = farther_from_mean(offset[i], offset[i - 1]);
  }
  for (std::size_t s = 0; s < means.size(); ++s) {
    const int ahead = static_cast<int>(s) + 1;
    const double mean = means[s];
    double error = Interpolate(offset, ahead) * Unit(mean);
    if (Interpolate(few, ahead) > 0) error = farther_from_mean(error, poisson * std::sqrt(mean));
    means[s] = std::max(0.0, mean + error);
  }
}

}  // namespace divvy::control
