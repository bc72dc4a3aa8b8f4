#include "sim/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/latency_bounded.h"
#include "sim/timeline.h"

namespace divvy::sim {
namespace {

using serving::LatencyTable;
using serving::ModelId;
using serving::ReplicaId;
using serving::RouteOptions;

RouteOptions Route(const char* text) { return serving::ParseRoute(text).value(); }

LatencyTable Linear(double first_ms, double more_ms, int max_batch) {
  std::vector<Duration> times;
  for (int items = 0; items < max_batch; ++items) {
    times.push_back(FromMilliseconds(first_ms + items * more_ms));
  }
  return LatencyTable(times);
}

// One model on `small` slow and `large` fast replicas.
serving::Setup Mixed(int small, int large) {
  serving::Setup setup{
      .models = {"model"}, .tables = {Linear(5, 3, 32), Linear(3, 0.5, 32)}, .replicas = {}};
  for (int i = 0; i < small; ++i) setup.replicas.push_back({.size = 1, .table = 0});
  for (int i = 0; i < large; ++i) setup.replicas.push_back({.size = 7, .table = 1});
  return setup;
}

Source Poisson(double rate, Duration slo,
               workload::BatchDistribution batches = workload::BatchDistribution::Constant(1)) {
  return {.slo = slo, .arrivals = workload::Load{.rate = rate, .batches = std::move(batches)}};
}

class TextLog final : public EventLog {
 public:
  void Write(std::string_view line) override { text += line; }
  std::string text;
};

TEST(SimulationTest, OneSeedGivesOneEventLogByteForByte) {
  const serving::Setup setup = Mixed(3, 2);
  const std::vector<Source> sources = {Poisson(400, std::chrono::milliseconds(30),
                                               workload::BatchDistribution::LogNormal(6, 0.9, 32))};
  const std::vector<Switch> switches = {{TimePoint(std::chrono::seconds(1)), ReplicaId{0}, false},
                                        {TimePoint(std::chrono::seconds(2)), ReplicaId{0}, true}};
  for (const char* route : {"divvy", "elsa", "fifs", "shortest-queue", "weighted+merge+shed"}) {
    const auto run = [&](std::uint64_t seed) {
      TextLog log;
      Options options{.seed = seed, .requests = 2000, .spread = {0.2, 0.1}, .log = &log};
      const SimResult result = Simulate(setup, Route(route), sources, switches, options);
      EXPECT_EQ(result.models[0].offered, 2000U);
      EXPECT_EQ(result.models[0].answered + result.models[0].shed(), 2000U);
      return log.text;
    };
    const std::string once = run(1);
    EXPECT_EQ(once, run(1)) << route;
    EXPECT_NE(once, run(2)) << route;
    EXPECT_NE(once.find(" down replica=0\n"), std::string::npos);
  }
}

TEST(SimulationTest, WaitsAsQueueingTheorySays) {
  // M/D/1: mean wait = rho * service / (2 (1 - rho)).
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  for (const double rho : {0.3, 0.8}) {
    const std::vector<Source> sources = {Poisson(rho * 100, std::chrono::seconds(10))};
    for (const char* route : {"fifs", "elsa", "divvy"}) {
      Options options{.requests = 40000, .warm_up = 1000};
      const SimResult result = Simulate(setup, Route(route), sources, {}, options);
      const ModelResult& model = result.models[0];
      const double mean = model.latency.mean_ms();
      const double expected = 10 + rho * 10 / (2 * (1 - rho));
      EXPECT_NEAR(mean, expected, 0.06 * expected) << route << " at " << rho;
      EXPECT_NEAR(result.replicas[0].utilization, rho, 0.01);
    }
  }
}

// ELSA, and first idle first served, once more in a few lines that share nothing
// with the dispatcher: each replica is a time at which it is free.
std::vector<double> Reference(bool elsa, int small, int large, double slo_ms,
                              const std::vector<workload::Arrival>& arrivals) {
  const auto latency = [&](int replica, int batch) {
    return replica < small ? 5 + 3.0 * (batch - 1) : 3 + 0.5 * (batch - 1);
  };
  std::vector<double> free_at(static_cast<std::size_t>(small + large), 0);
  std::vector<double> latencies;
  for (const workload::Arrival& arrival : arrivals) {
    const double now = Milliseconds(arrival.at);
    int chosen = -1;
    if (elsa) {
      double soonest = 1e300;
      for (const auto& [from, to] : {std::pair{0, small}, std::pair{small, small + large}}) {
        if (from == to) continue;
        const auto least = std::min_element(
            free_at.begin() + from, free_at.begin() + to,
            [&](double a, double b) { return std::max(a, now) < std::max(b, now); });
        const int replica = static_cast<int>(least - free_at.begin());
        const double end = std::max(*least, now) + latency(replica, arrival.batch);
        if (end - now < slo_ms) {
          chosen = replica;
          break;
        }
        if (end < soonest) {
          soonest = end;
          chosen = replica;
        }
      }
    } else {
      chosen = static_cast<int>(std::ranges::min_element(free_at) - free_at.begin());
    }
    double& free = free_at[static_cast<std::size_t>(chosen)];
    free = std::max(free, now) + latency(chosen, arrival.batch);
    latencies.push_back(free - now);
  }
  return latencies;
}

TEST(SimulationTest, AgreesWithAReferenceRequestByRequest) {
  const workload::Load load{.rate = 300,
                            .batches = workload::BatchDistribution::LogNormal(6, 0.9, 32)};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    workload::ArrivalStream stream(load, seed);
    std::vector<workload::Arrival> arrivals;
    for (int i = 0; i < 1000; ++i) arrivals.push_back(*stream.Next());
    for (const bool elsa : {true, false}) {
      class Latencies final : public EventLog {
       public:
        void Write(std::string_view line) override {
          const auto at = line.find("latency_ms=");
          if (at == std::string_view::npos) return;
          const auto id = std::stoul(std::string(line.substr(line.find("id=") + 3)));
          by_id.resize(std::max(by_id.size(), id + 1));
          by_id[id] = std::stod(std::string(line.substr(at + 11)));
        }
        std::vector<double> by_id;
      } log;
      // Without twins of unequal history the order among equals cannot matter.
      const int small = elsa ? 3 : 0;
      const serving::Setup setup = Mixed(small, 3);
      const std::vector<Source> sources = {
          {.slo = std::chrono::milliseconds(40),
           .arrivals = std::span<const workload::Arrival>(arrivals)}};
      const Options options{.log = &log};
      const SimResult result = Simulate(setup, Route(elsa ? "elsa" : "fifs"), sources, {}, options);
      ASSERT_EQ(result.models[0].answered, 1000U);
      const auto expected = Reference(elsa, small, 3, 40, arrivals);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        ASSERT_NEAR(log.by_id[i], expected[i], 1e-3)
            << (elsa ? "elsa" : "fifs") << " request " << i;
      }
    }
  }
}

TEST(SimulationTest, OursKeepsItsThroughputUnderOverload) {
  // 64 items take 73 ms, so two lanes answer 1753 a second; one by one only 200.
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 1, 64)}, .replicas = {{}, {}}};
  for (const double overload : {1.0, 1.2, 2.0, 4.0}) {
    const std::vector<Source> sources = {Poisson(1753 * overload, std::chrono::milliseconds(160))};
    const SimResult result =
        Simulate(setup, Route("divvy"), sources, {}, {.requests = 30000, .warm_up = 3000});
    EXPECT_GT(result.Goodput(0), 0.85 * 1753) << overload;
  }
}

TEST(SimulationTest, QuantilesCountTheRefused) {
  ModelResult model;
  for (int i = 1; i <= 90; ++i) model.latency.Add(std::chrono::milliseconds(i));
  model.answered = 90;
  model.offered = 100;
  model.in_time = 50;
  model.refused = {1, 2, 3, 4};
  EXPECT_NEAR(Milliseconds(model.Quantile(0.5)), 50, 0.5);
  EXPECT_NEAR(Milliseconds(model.Quantile(0.9)), 90, 0.8);
  EXPECT_EQ(model.Quantile(0.91), Duration::max());
  EXPECT_EQ(model.attainment(), 0.5);
}

TEST(SimulationTest, ASpreadKeepsTheMean) {
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  const std::vector<Source> sources = {Poisson(1, std::chrono::seconds(10))};
  const Options options{.requests = 50000, .spread = {0.3}};
  const SimResult result = Simulate(setup, Route("divvy"), sources, {}, options);
  EXPECT_NEAR(Milliseconds(result.replicas[0].busy) / 50000, 10, 0.1);
}

TEST(SimulationTest, AReplicaThatGoesLeavesItsLoadToTheRest) {
  const serving::Setup setup = Mixed(0, 2);
  const std::vector<Source> sources = {Poisson(100, std::chrono::milliseconds(100))};
  const std::vector<Switch> switches = {{TimePoint{}, ReplicaId{1}, false}};
  for (const char* route : {"divvy", "elsa", "fifs", "shortest-queue", "weighted"}) {
    const SimResult result = Simulate(setup, Route(route), sources, switches, {.requests = 1000});
    EXPECT_EQ(result.replicas[1].batches, 0U) << route;
    EXPECT_EQ(result.models[0].answered, 1000U) << route;
  }
}

TEST(SimulationTest, AModelThatHardlyEverIsAskedDoesNotStretchTheRun) {
  serving::Setup setup{.models = {"busy", "rare"}, .tables = {Linear(10, 0, 1)}, .replicas = {}};
  setup.replicas = {{.model = ModelId{0}}, {.model = ModelId{1}}};
  std::vector<Source> sources = {Poisson(50, std::chrono::seconds(1)),
                                 Poisson(0.0001, std::chrono::seconds(1))};
  sources[1].model = ModelId{1};
  const SimResult result = Simulate(setup, Route("divvy"), sources, {}, {.requests = 5000});
  EXPECT_NEAR(result.replicas[0].utilization, 0.5, 0.03);
}

TEST(SimulationTest, TimelinesAddUpToTheBusyTime) {
  const serving::Setup setup = Mixed(1, 1);
  const std::vector<Source> sources = {Poisson(150, std::chrono::milliseconds(100))};
  const SimResult result =
      Simulate(setup, Route("elsa"), sources, {}, {.requests = 5000, .timelines = true});
  for (const ReplicaResult& replica : result.replicas) {
    double busy = 0;
    for (const float share : replica.timeline.busy) {
      EXPECT_LE(share, 1.0001F);
      busy += static_cast<double>(share) * Seconds(replica.timeline.slot);
    }
    EXPECT_NEAR(busy, Seconds(replica.busy), 1e-4 * Seconds(replica.busy));
  }
}

TEST(LatencyBoundedTest, FindsTheRateAtWhichASingleServerIsJustInTime) {
  // Deterministic arrivals into one server of 10 ms: in time up to 100 a second.
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  workload::Load load{.rate = 37, .spacing = {.kind = workload::Spacing::Kind::kConstant}};
  const std::vector<Source> sources = {{.slo = std::chrono::milliseconds(12), .arrivals = load}};
  for (const char* route : {"fifs", "elsa"}) {
    const double factor = LatencyBoundedFactor(setup, Route(route), sources, {.requests = 5000});
    EXPECT_NEAR(37 * factor, 100, 0.5) << route;
  }
  // One that sheds may refuse a twentieth, and so carry on a little longer.
  const double ours = LatencyBoundedFactor(setup, Route("divvy"), sources, {.requests = 5000});
  EXPECT_GT(37 * ours, 100);
  EXPECT_LT(37 * ours, 100 / 0.95);
}

TEST(LatencyBoundedTest, AnSloAsLongAsTheRunDoesNotHideAQueueThatGrows) {
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  for (const char* route : {"fifs", "divvy"}) {
    const std::vector<Source> sources = {Poisson(10, std::chrono::minutes(10))};
    const double factor = LatencyBoundedFactor(setup, Route(route), sources, {.requests = 5000});
    EXPECT_NEAR(10 * factor, 103, 4) << route;
  }
}

TEST(SimulationTest, ARunThatItsTimeEndsLastedThatLong) {
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  const std::vector<Source> sources = {Poisson(0.05, std::chrono::seconds(1))};
  const SimResult result =
      Simulate(setup, Route("divvy"), sources, {}, {.duration = std::chrono::seconds(100)});
  EXPECT_EQ(result.counted, std::chrono::seconds(100));
  EXPECT_LT(result.Goodput(0), 0.2);
}

TEST(LatencyBoundedTest, ATraceIsPlayedFaster) {
  std::vector<workload::Arrival> trace;
  for (int i = 0; i < 2000; ++i) trace.push_back({std::chrono::milliseconds(20) * i, 1});
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  const std::vector<Source> sources = {{.slo = std::chrono::milliseconds(12),
                                        .arrivals = std::span<const workload::Arrival>(trace)}};
  EXPECT_NEAR(LatencyBoundedFactor(setup, Route("fifs"), sources, {}), 2, 0.01);
}

TEST(LatencyBoundedTest, AShapeSurvivesScaling) {
  workload::Load load{.rate = 50, .shape = {.factors = {0, 3}, .step = std::chrono::seconds(2)}};
  const std::vector<Source> sources = {{.slo = std::chrono::seconds(1), .arrivals = load}};
  std::vector<std::vector<workload::Arrival>> storage;
  const std::vector<Source> scaled = Scaled(sources, 2, storage);
  load.rate = 100;
  workload::ArrivalStream want(load, 1);
  workload::ArrivalStream got(std::get<workload::Load>(scaled.front().arrivals), 1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(got.Next()->at, want.Next()->at);
}

TEST(LatencyBoundedTest, NothingIsInTimeWhereOneAloneIsLate) {
  serving::Setup setup{.models = {"model"}, .tables = {Linear(10, 0, 1)}, .replicas = {{}}};
  const std::vector<Source> sources = {Poisson(10, std::chrono::milliseconds(9))};
  EXPECT_EQ(LatencyBoundedFactor(setup, Route("elsa"), sources, {.requests = 1000}), 0);
}

}  // namespace
}  // namespace divvy::sim
