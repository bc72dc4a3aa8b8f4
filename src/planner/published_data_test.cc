#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "planner/baselines.h"
#include "planner/exact.h"
#include "planner/paris.h"
#include "planner/test_problems.h"
#include "workload/profile_import.h"

// The planners on ParvaGPU's measurements, where the machine has them: DIVVY_DATA
// names a folder with parvagpu_a100_mig_mps/profiles.csv and its scenarios.

namespace divvy::planner {
namespace {

using testing::ExpectLegal;
using testing::Gpu;

std::optional<std::string> Published(const std::string& path) {
  const char* folder = std::getenv("DIVVY_DATA");
  if (folder == nullptr) return std::nullopt;
  std::ifstream file(std::string(folder) + "/parvagpu_a100_mig_mps/" + path, std::ios::binary);
  if (!file) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Rows of numbers; nothing for N/A.
std::vector<std::vector<std::optional<double>>> Table(const std::string& text) {
  std::vector<std::vector<std::optional<double>>> rows;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    rows.emplace_back();
    std::istringstream cells(line);
    for (std::string cell; std::getline(cells, cell, ',');) {
      rows.back().push_back(cell.starts_with("N/A") ? std::nullopt
                                                    : std::optional(std::stod(cell)));
    }
  }
  return rows;
}

class PublishedDataTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto profiles = Published("profiles.csv");
    const auto rates = Published("scenarios/request_rate.csv");
    const auto slos = Published("scenarios/slo_latency_ms.csv");
    if (!profiles || !rates || !slos) {
      GTEST_SKIP() << "DIVVY_DATA names no folder with parvagpu_a100_mig_mps";
    }
    auto imported =
        workload::ImportProfiles(workload::ForeignTable::kParvaGpu, *profiles, "profiles.csv");
    ASSERT_TRUE(imported) << imported.error().message;
    models_ = std::move(imported->models);
    rates_ = Table(*rates);
    slos_ = Table(*slos);
    ASSERT_EQ(models_.size(), rates_.front().size());
  }

  const workload::ModelProfile* Find(std::string_view name) const {
    for (const auto& model : models_) {
      if (model.model == name) return &model;
    }
    return nullptr;
  }

  // Scenario 1, 2 or 3 with its rates and SLOs multiplied.
  Problem Scenario(std::size_t number, double rate = 1, double slo = 1) const {
    Problem problem{.gpu = &Gpu("A100-80GB")};
    for (std::size_t i = 0; i < models_.size(); ++i) {
      if (!rates_[number - 1][i]) continue;
      problem.models.push_back({.name = models_[i].model,
                                .profile = &models_[i],
                                .slo = FromMilliseconds(*slos_[number - 1][i] * slo),
                                .rate = *rates_[number - 1][i] * rate});
    }
    return problem;
  }

  std::vector<workload::ModelProfile> models_;
  std::vector<std::vector<std::optional<double>>> rates_;
  std::vector<std::vector<std::optional<double>>> slos_;
};

double LowestHeadroom(const Problem& problem, const Deployment& deployment) {
  double highest = 0;
  for (const ModelFigures& figures : Assess(problem, deployment)) {
    highest = std::max(highest, figures.load);
  }
  return 1 / highest;
}

TEST_F(PublishedDataTest, ExactNeedsNoMoreGpusThanParvaGpuDid) {
  constexpr std::array<std::size_t, 3> kPublished = {2, 3, 5};
  constexpr std::array<double, 3> kHeadroom = {1.8949, 1.2689, 1.1826};  // Proven to be the most.
  for (std::size_t number = 1; number <= 3; ++number) {
    const Problem problem = Scenario(number);
    const Outcome outcome = PlanExact(problem);
    const auto* planned = std::get_if<Planned>(&outcome);
    ASSERT_NE(planned, nullptr) << "scenario " << number;
    EXPECT_LE(planned->deployment.gpus.size(), kPublished[number - 1]) << "scenario " << number;
    EXPECT_EQ(planned->proof, "fewest GPUs: proven; headroom: proven") << "scenario " << number;
    EXPECT_NEAR(LowestHeadroom(problem, planned->deployment), kHeadroom[number - 1], 1e-4);
    EXPECT_TRUE(Carries(problem, planned->deployment));
    ExpectLegal(problem, planned->deployment);
  }
}

// The vector that PARIS' description gives for these profiles: log-normal requests
// of median 6, sigma 0.9, at most 32; four GPUs' 28 slices.
struct ParisVector {
  std::string_view model;
  std::vector<int> knees;
  std::vector<double> demand;  // Empty where it is not given.
  std::vector<double> counts;
};

TEST_F(PublishedDataTest, ParisComesToTheKnownFigures) {
  const std::vector<ParisVector> vectors = {
      {"resnet50", {5, 6, 8, 8, 32}, {4.88, 0.70, 0.84, 0, 2.35}, {5.41, 0.77, 0.93, 0, 2.61}},
      {"mobilenetv2", {4, 7, 11, 12, 32}, {}, {3.67, 2.21, 1.68, 0.29, 1.96}},
  };
  for (const ParisVector& expected : vectors) {
    const ModelDemand model{.name = std::string(expected.model),
                            .profile = Find(expected.model),
                            .slo = std::chrono::milliseconds(100),
                            .rate = 100,
                            .batches = workload::BatchDistribution::LogNormal(6, 0.9, 32)};
    const ParisSteps steps = RunParis(model, Gpu("A100-80GB"), 28);
    EXPECT_EQ(steps.knees, expected.knees) << expected.model;
    ASSERT_EQ(steps.counts.size(), expected.counts.size());
    for (std::size_t k = 0; k < steps.counts.size(); ++k) {
      // The figures are given to two decimals.
      EXPECT_NEAR(steps.counts[k], expected.counts[k], 0.01 * expected.counts[k] + 0.005)
          << expected.model << " size " << k;
      if (expected.demand.empty()) continue;
      EXPECT_NEAR(steps.demand[k], expected.demand[k], 0.01 * expected.demand[k] + 0.005)
          << expected.model << " size " << k;
    }
  }
}

// Not a check but a table, for docs/design/exact-planner.md:
//   DIVVY_DATA=.. planner_test --gtest_also_run_disabled_tests --gtest_filter=*SpeedTable
TEST_F(PublishedDataTest, DISABLED_SpeedTable) {
  std::cout << "scenario  rates   SLOs   GPUs  headroom  seconds  proof\n";
  for (const double rate : {1.0, 3.0, 10.0, 15.0}) {
    for (const double slo : {1.0, 0.6}) {
      for (std::size_t number = 1; number <= 3; ++number) {
        const Problem problem = Scenario(number, rate, slo);
        const std::clock_t begin = std::clock();
        const Outcome outcome = PlanExact(problem);
        const double seconds =
            static_cast<double>(std::clock() - begin) / static_cast<double>(CLOCKS_PER_SEC);
        const auto& planned = std::get<Planned>(outcome);
        std::cout << fmt::format("{:8}  x{:<5} x{:<5} {:4}  {:8.4f}  {:7.2f}  {}\n", number, rate,
                                 slo, planned.deployment.gpus.size(),
                                 LowestHeadroom(problem, planned.deployment), seconds,
                                 planned.proof)
                  << std::flush;
      }
    }
  }
}

// The same kind of table for all planners:
//   DIVVY_DATA=.. planner_test --gtest_also_run_disabled_tests --gtest_filter=*PlannerTable
TEST_F(PublishedDataTest, DISABLED_PlannerTable) {
  for (std::size_t number = 1; number <= 3; ++number) {
    const Problem problem = Scenario(number);
    for (const NamedPlanner& planner : Planners()) {
      const std::clock_t begin = std::clock();
      const Outcome outcome = planner.plan(problem);
      const double seconds =
          static_cast<double>(std::clock() - begin) / static_cast<double>(CLOCKS_PER_SEC);
      if (const auto* planned = std::get_if<Planned>(&outcome)) {
        ExpectLegal(problem, planned->deployment);
        std::cout << fmt::format("{} {:17} {:4} GPUs, headroom {:.3f}, {:.2f} s\n", number,
                                 planner.name, planned->deployment.gpus.size(),
                                 LowestHeadroom(problem, planned->deployment), seconds);
      } else {
        std::cout << fmt::format("{} {:17} {} ({:.2f} s)\n", number, planner.name,
                                 std::get<Infeasible>(outcome).why, seconds);
      }
    }
  }
}

}  // namespace
}  // namespace divvy::planner
