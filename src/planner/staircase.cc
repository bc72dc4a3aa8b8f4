#include "planner/staircase.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "planner/single_process.h"

namespace divvy::planner {
namespace {

// Requests of more than this many sizes are taken together in as many steps, each
// a little wider than the one below.
constexpr int kSteps = 64;

// Last request size of each step.
std::vector<int> StepEnds(int largest) {
  std::vector<int> ends;
  if (largest <= kSteps) {
    for (int batch = 1; batch <= largest; ++batch) ends.push_back(batch);
    return ends;
  }
  for (int i = 1; i <= kSteps; ++i) {
    const int end =
        static_cast<int>(std::lround(std::pow(largest, static_cast<double>(i) / kSteps)));
    if (ends.empty() || end > ends.back()) ends.push_back(end);
  }
  return ends;
}

}  // namespace

Staircase::Staircase(const ModelDemand& model, const gpu::GpuModel& gpu)
    : slo_(Seconds(model.slo)) {
  for (const gpu::ProfileIndex size : gpu.Select(gpu::ProfileSet::kBase)) {
    if (SingleProcess(model, gpu, size)) sizes_.push_back(size);
  }
  std::ranges::sort(sizes_, {},
                    [&](gpu::ProfileIndex size) { return gpu.profile(size).compute_slices; });
  std::vector<int> most;
  for (const gpu::ProfileIndex size : sizes_) {
    most.push_back(SingleProcess(model, gpu, size)->max_batch);
    mean_.push_back(MeanLatencyMs(model, gpu, size) / 1e3);
  }

  double above = 1;  // Share of the requests that are larger than this step's.
  int begin = 1;
  for (const int end : StepEnds(model.batches.largest())) {
    Step step{.fastest = std::numeric_limits<double>::infinity()};
    for (int batch = begin; batch <= end; ++batch) step.share += model.batches.probability(batch);
    step.may_be_late = above <= kSacrifice;
    above -= step.share;
    begin = end + 1;
    for (std::size_t k = 0; k < sizes_.size(); ++k) {
      const bool fits = end <= most[k];
      const auto* curve = model.profile->Find(gpu.profile(sizes_[k]), 1);
      step.seconds.push_back(fits ? *curve->LatencyMs(end) / 1e3 : 0);
      if (fits) step.fastest = std::min(step.fastest, step.seconds.back());
    }
    if (step.share > 0 && step.fastest <= slo_) steps_.push_back(std::move(step));
  }
}

bool Staircase::Carries(double rate, std::span<const int> counts,
                        std::span<const double> limits) const {
  const auto may_run = [&](const Step& step, std::size_t k) {
    const double time = step.seconds[k];
    return time > 0 && (step.may_be_late || time <= limits[k] || time == step.fastest);
  };
  std::size_t at = 0;
  double rest = rate * steps_[0].share;  // Of the step that we stand on.
  for (std::size_t k = 0; k < counts.size(); ++k) {
    double free = counts[k];
    while (free > 0 && may_run(steps_[at], k)) {
      const double needed = rest * steps_[at].seconds[k];
      if (needed > free) {
        rest -= free / steps_[at].seconds[k];
        break;
      }
      free -= needed;
      if (++at == steps_.size()) return true;
      rest = rate * steps_[at].share;
    }
  }
  return false;
}

double Staircase::Rate(std::span<const int> counts) const {
  if (steps_.empty()) return 0;
  std::vector<double> limits;
  for (std::size_t k = 0; k < counts.size(); ++k) {
    limits.push_back(slo_ - std::min(kMostWait * slo_, kWait * mean_[k] / std::max(counts[k], 1)));
  }
  double high = 1;
  while (high < 1e12 && Carries(high, counts, limits)) high *= 2;
  double low = 0;
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (Carries(middle, counts, limits) ? low : high) = middle;
  }
  return low;
}

}  // namespace divvy::planner
