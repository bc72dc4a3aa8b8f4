#include "workload/batch_distribution.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"

namespace divvy::workload {

BatchDistribution::BatchDistribution(std::vector<double> weights, std::string description)
    : probability_(std::move(weights)), description_(std::move(description)) {
  while (!probability_.empty() && probability_.back() == 0) probability_.pop_back();
  Check(!probability_.empty(), "a batch distribution has a size that occurs");
  // By the largest first: the sum of numbers near the end of the range overflows.
  const double largest_weight = *std::ranges::max_element(probability_);
  double sum = 0;
  for (double& weight : probability_) sum += weight /= largest_weight;
  for (std::size_t i = 0; i < probability_.size(); ++i) {
    probability_[i] /= sum;
    mean_ += static_cast<double>(i + 1) * probability_[i];
  }
  BuildSlots();
}

// Vose's construction: drawers with less than their share are topped up from one
// that has more, until all are even.
void BatchDistribution::BuildSlots() {
  for (std::size_t i = 0; i < probability_.size(); ++i) {
    const int size = static_cast<int>(i + 1);
    if (probability_[i] > 0) slots_.push_back({probability_[i], size, size});
  }
  std::vector<std::size_t> small;
  std::vector<std::size_t> large;
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].share *= static_cast<double>(slots_.size());
    (slots_[i].share < 1 ? small : large).push_back(i);
  }
  while (!small.empty() && !large.empty()) {
    Slot& taker = slots_[small.back()];
    Slot& giver = slots_[large.back()];
    small.pop_back();
    taker.other = giver.size;
    giver.share -= 1 - taker.share;
    if (giver.share >= 1) continue;
    small.push_back(large.back());
    large.pop_back();
  }
  // What rounding left over is even.
  for (const std::size_t i : small) slots_[i].share = 1;
}

BatchDistribution BatchDistribution::Constant(int batch) {
  Check(0 < batch && batch <= kLargestBatch, "a batch size is from 1 to kLargestBatch");
  std::vector<double> weights(static_cast<std::size_t>(batch), 0.0);
  weights.back() = 1;
  return {std::move(weights), fmt::format("constant {}", batch)};
}

BatchDistribution BatchDistribution::LogNormal(double median, double sigma, int largest) {
  Check(median > 0 && sigma > 0 && 0 < largest && largest <= kLargestBatch,
        "a log-normal distribution has positive parameters");
  std::vector<double> weights(static_cast<std::size_t>(largest));
  for (int batch = 1; batch <= largest; ++batch) {
    const double deviation = (std::log(batch) - std::log(median)) / sigma;
    weights[static_cast<std::size_t>(batch - 1)] = -deviation * deviation / 2 - std::log(batch);
  }
  // Relative to the likeliest, so that a median far away does not underflow them all.
  const double likeliest = *std::ranges::max_element(weights);
  for (double& weight : weights) weight = std::exp(weight - likeliest);
  return {std::move(weights),
          fmt::format("log-normal, median {}, sigma {}, at most {}", median, sigma, largest)};
}

Result<BatchDistribution> BatchDistribution::Empirical(std::span<const double> weights) {
  if (weights.size() > static_cast<std::size_t>(kLargestBatch)) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("a batch size of {}; the largest is {}",
                                                         weights.size(), kLargestBatch));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i]) && weights[i] >= 0) continue;
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("the weight {} of batch size {} is not a number from 0 up", weights[i], i + 1));
  }
  const auto occurring = std::ranges::count_if(weights, [](double weight) { return weight > 0; });
  if (occurring == 0) {
    return Fail(ErrorCode::kInvalidArgument, "no batch size has a weight above 0");
  }
  BatchDistribution made(std::vector<double>(weights.begin(), weights.end()), {});
  made.description_ = fmt::format("empirical, {} {} up to {}, mean {:.4g}", occurring,
                                  occurring == 1 ? "size" : "sizes", made.largest(), made.mean());
  return made;
}

double BatchDistribution::probability(int batch) const {
  if (batch < 1 || batch > largest()) return 0;
  return probability_[static_cast<std::size_t>(batch - 1)];
}

}  // namespace divvy::workload
