#include "planner/interference.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <string>

namespace divvy::planner {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

// As many samples as the shipped model counts for when a history is learned from: some
// ten pairs of one's own outweigh it.
constexpr double kShippedWeight = 20;

constexpr double kLeastExtra = 0.02;  // Below this, measurements are noise.
constexpr double kMostExtra = 8;      // Above it, how bad hardly matters.
constexpr double kExtraCap = 2;       // For each other job.
constexpr double kPaceCap = 4;        // Steps 55 times as long.

// Solves a symmetric, positive definite system by elimination.
Vector SolveThree(Matrix a, Vector b) {
  for (std::size_t i = 0; i < 3; ++i) {
    for (std::size_t row = i + 1; row < 3; ++row) {
      const double factor = a[row][i] / a[i][i];
      for (std::size_t column = i; column < 3; ++column) a[row][column] -= factor * a[i][column];
      b[row] -= factor * b[i];
    }
  }
  Vector x{};
  for (std::size_t i = 3; i-- > 0;) {
    x[i] = b[i];
    for (std::size_t column = i + 1; column < 3; ++column) x[i] -= a[i][column] * x[column];
    x[i] /= a[i][i];
  }
  return x;
}

}  // namespace

std::vector<Exposure> Exposures(std::span<const Demand> demands,
                                std::span<const std::optional<double>> steps_per_second) {
  std::vector<Exposure> exposures(demands.size());
  double total = 0;
  for (const Demand& demand : demands) total += demand.share;
  // Two copies of a job have the same pace whether it is known or not; others need all.
  const bool paces =
      std::ranges::all_of(steps_per_second, [](const auto& s) { return s && *s > 0; });
  for (std::size_t i = 0; i < demands.size(); ++i) {
    exposures[i].demand = total;
    exposures[i].others = static_cast<int>(demands.size()) - 1;
    if (!paces || demands.size() < 2) continue;
    for (std::size_t j = 0; j < demands.size(); ++j) {
      exposures[i].pace += std::log(*steps_per_second[i] / *steps_per_second[j]);
    }
    exposures[i].pace = std::clamp(exposures[i].pace / exposures[i].others, -kPaceCap, kPaceCap);
  }
  return exposures;
}

double ExtraTime(const InterferenceModel& model, const Exposure& exposure) {
  const double each =
      std::exp(model.base + model.demand * exposure.demand + model.pace * exposure.pace);
  return exposure.others * std::min(each, kExtraCap);
}

InterferenceModel FitInterference(std::span<const InterferenceSample> samples,
                                  const InterferenceModel& prior, double weight) {
  const Vector start = {prior.base, prior.demand, prior.pace};
  Matrix a{};
  Vector b{};
  for (std::size_t i = 0; i < 3; ++i) {
    a[i][i] = weight + 1e-9;  // So that nothing at all still has an answer: the prior.
    b[i] = a[i][i] * start[i];
  }
  for (const InterferenceSample& sample : samples) {
    const Vector x = {1, sample.exposure.demand, sample.exposure.pace};
    const double extra = (1 / sample.speed - 1) / sample.exposure.others;
    const double y = std::log(std::clamp(extra, kLeastExtra, kMostExtra));
    for (std::size_t i = 0; i < 3; ++i) {
      b[i] += x[i] * y;
      for (std::size_t j = 0; j < 3; ++j) a[i][j] += x[i] * x[j];
    }
  }
  Vector fitted = SolveThree(a, b);
  if (fitted[1] < 0) {
    // The best with that coefficient at 0: its row and column leave the system.
    for (std::size_t i = 0; i < 3; ++i) a[1][i] = a[i][1] = i == 1 ? 1 : 0;
    b[1] = 0;
    fitted = SolveThree(a, b);
  }
  return {.base = fitted[0], .demand = fitted[1], .pace = fitted[2], .error = prior.error};
}

InterferenceModels InterferenceModels::Shipped() {
  // Printed by `advice_bench` on Gavel's pairs: one fit on the V100's, one on those of
  // P100 and K80. Under MPS jobs lose 0.45 times as much as under time slicing: 0.45 in
  // the collocation study's pair, 0.48 in ours on an H200 (docs/design/advice.md). The
  // error there is not known; it is taken to be that of time slicing.
  const InterferenceModel sliced{.base = -2.75, .demand = 2.07, .pace = 0.36, .error = 1.55};
  InterferenceModel mps = sliced;
  mps.base += std::log(0.45);
  return {.time_slicing = sliced,
          .older_time_slicing = {.base = -1.26, .demand = 0.87, .pace = 0.28, .error = 0.66},
          .mps = mps};
}

InterferenceModels InterferenceModels::LearnedFrom(std::span<const workload::MeasuredSet> history) {
  InterferenceModels models = Shipped();
  std::vector<InterferenceSample> sliced;
  std::vector<InterferenceSample> older;
  std::vector<InterferenceSample> mps;
  for (const workload::MeasuredSet& set : history) {
    std::vector<InterferenceSample>* samples = nullptr;
    if (set.mode == workload::SharingMode::kMps) samples = &mps;
    if (set.mode == workload::SharingMode::kTimeSlicing) {
      samples = IsBeforeVolta(set.gpu) ? &older : &sliced;
    }
    if (samples == nullptr) continue;
    std::vector<Demand> demands;
    std::vector<std::optional<double>> steps;
    for (const workload::MeasuredJob& job : set.jobs) {
      demands.push_back(EstimateDemand(job.profile, set.gpu_power_w));
      steps.push_back(job.profile.steps_per_second);
    }
    const auto exposures = Exposures(demands, steps);
    for (std::size_t i = 0; i < exposures.size(); ++i) {
      samples->push_back({exposures[i], set.jobs[i].speed});
    }
    ++models.learned;
  }
  models.time_slicing = FitInterference(sliced, models.time_slicing, kShippedWeight);
  models.older_time_slicing = FitInterference(older, models.older_time_slicing, kShippedWeight);
  models.mps = FitInterference(mps, models.mps, kShippedWeight);
  return models;
}

const InterferenceModel& InterferenceModels::TimeSlicing(std::string_view gpu) const {
  return IsBeforeVolta(gpu) ? older_time_slicing : time_slicing;
}

bool IsBeforeVolta(std::string_view gpu) {
  constexpr std::array<std::string_view, 9> kOlder = {"k10", "k20",  "k40", "k80", "m40",
                                                      "m60", "p100", "p40", "p4"};
  std::string word;
  for (std::size_t i = 0; i <= gpu.size(); ++i) {
    const char c = i < gpu.size() ? gpu[i] : ' ';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      continue;
    }
    if (std::ranges::find(kOlder, word) != kOlder.end()) return true;
    word.clear();
  }
  return false;
}

}  // namespace divvy::planner
