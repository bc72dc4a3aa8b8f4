#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "gpu/catalogue.h"
#include "plan/validate.h"
#include "planner/deployment.h"
#include "planner/problem.h"
#include "workload/profile.h"

// Problems to try planners on. For tests only.
namespace divvy::planner::testing {

inline const gpu::GpuModel& Gpu(std::string_view name) { return **gpu::FindGpuModel(name); }

inline gpu::ProfileIndex ProfileOf(const gpu::GpuModel& gpu, std::string_view name) {
  return *gpu.FindProfile(name);
}

// A curve on `slices` compute slices: batches with their latencies.
inline workload::ProfileCurve Curve(int slices, std::vector<std::pair<int, double>> points,
                                    int processes = 1) {
  workload::ProfileCurve curve{
      .size = {.unit = workload::PartitionSize::Unit::kSlices, .amount = slices},
      .processes = processes};
  for (const auto& [batch, latency_ms] : points) {
    curve.points.push_back({.batch = batch, .latency_ms = latency_ms});
  }
  return curve;
}

// Holds the profiles that its problem points to.
struct TestProblem {
  Problem problem;
  std::list<workload::ModelProfile> profiles = {};

  explicit TestProblem(const gpu::GpuModel& gpu) : problem{.gpu = &gpu} {}

  TestProblem(const TestProblem&) = delete;
  TestProblem& operator=(const TestProblem&) = delete;

  ModelDemand& AddModel(std::string name, std::vector<workload::ProfileCurve> curves, double slo_ms,
                        double rate) {
    profiles.push_back({.model = name, .gpu = {}, .source = {}, .curves = std::move(curves)});
    problem.models.push_back({.name = std::move(name),
                              .profile = &profiles.back(),
                              .slo = FromMilliseconds(slo_ms),
                              .rate = rate});
    return problem.models.back();
  }
};

inline int Between(Random& random, int low, int high) {
  return low + static_cast<int>(random.Below(static_cast<std::uint64_t>(high - low + 1)));
}

// Curves of a made-up model: an overhead, and work that scales with slices more or
// less well; some sizes and some process counts are missing. Work may grow faster
// than the batch, so that small batches are quicker a piece and large ones needed.
inline std::vector<workload::ProfileCurve> RandomCurves(const gpu::GpuModel& gpu, Random& random) {
  const double overhead_ms = 1 + 4 * random.Uniform();
  const double work_ms = 1 + 6 * random.Uniform();
  const double scaling = 0.3 + 0.7 * random.Uniform();
  const double growth = 0.8 + random.Uniform();
  const int largest = 1 << Between(random, 1, 5);
  std::vector<workload::ProfileCurve> curves;
  for (const gpu::ProfileIndex index : gpu.Select(gpu::ProfileSet::kBase)) {
    const int slices = gpu.profile(index).compute_slices;
    if (curves.size() > 1 && random.Below(6) == 0) continue;
    for (int processes = 1; processes <= Between(random, 1, 2); ++processes) {
      std::vector<std::pair<int, double>> points;
      for (int batch = 1; batch <= largest; batch *= 2) {
        const double speed = std::pow(slices, scaling);
        const double noise = 0.95 + 0.1 * random.Uniform();
        const double work = work_ms * std::pow(batch, growth) / speed;
        points.emplace_back(batch, (overhead_ms + work) * (1 + 0.6 * (processes - 1)) * noise);
      }
      curves.push_back(Curve(slices, std::move(points), processes));
    }
  }
  return curves;
}

// A model whose requests fit somewhere, mostly: rates are about `instances` small
// instances' worth.
inline void AddRandomModel(TestProblem& test, Random& random, double instances) {
  const std::string name = "model" + std::to_string(test.problem.models.size());
  ModelDemand& model =
      test.AddModel(name, RandomCurves(*test.problem.gpu, random), 20 + 80 * random.Uniform(), 1);
  if (random.Below(2) == 0) {
    std::vector<double> weights;
    for (int i = Between(random, 1, 6); i > 0; --i) weights.push_back(random.Uniform());
    model.batches = *workload::BatchDistribution::Empirical(weights);
  }
  const double per_instance = *model.profile->curves.front().Throughput(1);
  model.rate = instances * per_instance * (0.2 + random.Uniform()) / model.batches.mean();
}

// That hardware and driver would take it, and nothing is left out or put twice.
inline void ExpectLegal(const Problem& problem, const Deployment& deployment) {
  const auto wrong = plan::Validate(ToPlan(problem, deployment));
  ASSERT_TRUE(wrong.empty()) << wrong.front().message;
  for (const auto& gpu : deployment.gpus) {
    for (const Replica& replica : gpu) EXPECT_FALSE(replica.why.empty());
  }
}

}  // namespace divvy::planner::testing
