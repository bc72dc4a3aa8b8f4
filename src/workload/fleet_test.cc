#include "workload/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& text) {
  const auto fleet = ParseFleet(text, "f.yaml");
  if (fleet) return "no error";
  EXPECT_EQ(fleet.error().code, ErrorCode::kInvalidArgument);
  return fleet.error().message;
}

const std::string kGpus = "gpus: {kind: A100-80GB, count: 2}\n";
const std::string kModels = "models: [{name: m, profile: p.csv, slo: 20ms, load: {rate: 1}}]\n";

// The complaint about one model's load.
std::string ErrorOfLoad(const std::string& load) {
  return ErrorOf(kGpus + "models: [{name: m, profile: p.csv, slo: 20ms, load: " + load + "}]\n");
}

// The load of a fleet with one model.
RecipeLoad RecipeOf(const std::string& load) {
  const auto fleet = ParseFleet(
      kGpus + "models: [{name: m, profile: p.csv, slo: 20ms, load: " + load + "}]\n", "f.yaml");
  EXPECT_TRUE(fleet) << fleet.error().message;
  return fleet ? std::get<RecipeLoad>(fleet->models.front().load) : RecipeLoad{};
}

TEST(FleetTest, ReadsEveryKey) {
  const auto fleet = ParseFleet(R"(
gpus: {kind: a100-80gb, count: auto}
models:
  - name: resnet50
    profile: {file: profiles.csv, model: resnet50-v1}
    slo: 20ms
    load:
      rate: 400/s
      arrivals: {gamma: {cv: 2}}
      diurnal: {amplitude: 0.5, period: 1h}
      batch: {lognormal: {median: 6, sigma: 0.9, max: 32}}
    weight: 2.5
    priority: 3
  - name: llm
    profile: llm.csv
    slo: 1.5s
    load: {trace: azure.csv, tokens_per_item: 64}
jobs: [{name: train, instance: 3g.40gb, count: 2}, {name: tune, instance: 1g}]
policy: {planner: paris, route: elsa, safety: 0.8, batching_delay: 0.5, seed: 42}
)",
                                "f.yaml");
  ASSERT_TRUE(fleet) << fleet.error().message;
  EXPECT_EQ(fleet->gpus.kind, "A100-80GB");
  EXPECT_EQ(fleet->gpus.count, std::nullopt);
  EXPECT_EQ(fleet->gpus.line, 2);
  ASSERT_EQ(fleet->models.size(), 2U);
  const FleetModel& resnet = fleet->models[0];
  EXPECT_EQ(resnet.name, "resnet50");
  EXPECT_EQ(resnet.profile.path, "profiles.csv");
  EXPECT_EQ(resnet.profile.line, 5);
  EXPECT_EQ(resnet.profile_model, "resnet50-v1");
  EXPECT_EQ(resnet.slo, 20ms);
  EXPECT_EQ(resnet.weight, 2.5);
  EXPECT_EQ(resnet.priority, 3);
  EXPECT_EQ(resnet.line, 4);
  const Load& load = std::get<RecipeLoad>(resnet.load).load;
  EXPECT_EQ(load.rate, 400);
  EXPECT_EQ(load.spacing.kind, Spacing::Kind::kGamma);
  EXPECT_EQ(load.spacing.cv, 2);
  EXPECT_EQ(load.diurnal.amplitude, 0.5);
  EXPECT_EQ(load.diurnal.period, 1h);
  EXPECT_EQ(load.batches.description(), "log-normal, median 6, sigma 0.9, at most 32");
  const FleetModel& llm = fleet->models[1];
  EXPECT_EQ(llm.profile_model, "llm");
  EXPECT_EQ(llm.slo, 1500ms);
  EXPECT_EQ(llm.weight, 1);
  EXPECT_EQ(llm.priority, 0);
  EXPECT_EQ(std::get<TraceLoad>(llm.load).file.path, "azure.csv");
  EXPECT_EQ(std::get<TraceLoad>(llm.load).file.line, 17);
  EXPECT_EQ(std::get<TraceLoad>(llm.load).tokens_per_item, 64);
  ASSERT_EQ(fleet->jobs.size(), 2U);
  EXPECT_EQ(fleet->jobs[0].instance, "3g.40gb");
  EXPECT_EQ(fleet->jobs[0].count, 2);
  EXPECT_EQ(fleet->jobs[1].count, 1);
  EXPECT_EQ(fleet->policy.planner, "paris");
  EXPECT_EQ(fleet->policy.planner_line, 19);
  EXPECT_EQ(fleet->policy.route, "elsa");
  EXPECT_EQ(fleet->policy.safety, 0.8);
  EXPECT_EQ(fleet->policy.batching_delay, 0.5);
  EXPECT_EQ(fleet->policy.seed, 42U);
}

TEST(FleetTest, WhatIsLeftOutHasItsDefault) {
  const auto fleet = ParseFleet(kGpus + kModels, "f.yaml");
  ASSERT_TRUE(fleet) << fleet.error().message;
  EXPECT_EQ(fleet->gpus.count, 2);
  EXPECT_EQ(fleet->policy.planner, "exact");
  EXPECT_EQ(fleet->policy.route, "divvy");
  EXPECT_EQ(fleet->policy.safety, 0.9);
  EXPECT_EQ(fleet->policy.batching_delay, 1);
  EXPECT_EQ(fleet->policy.seed, 1U);
  const Load& load = std::get<RecipeLoad>(fleet->models[0].load).load;
  EXPECT_EQ(load.spacing.kind, Spacing::Kind::kPoisson);
  EXPECT_EQ(load.diurnal.amplitude, 0);
  EXPECT_EQ(load.batches.description(), "constant 1");
}

TEST(FleetTest, BatchesAndArrivalsHaveSeveralForms) {
  EXPECT_EQ(RecipeOf("{rate: 1, batch: 8}").load.batches.description(), "constant 8");
  EXPECT_EQ(RecipeOf("{rate: 1, batch: {empirical: {1: 0.5, 8: 1.5}}}").load.batches.mean(), 6.25);
  EXPECT_EQ(RecipeOf("{rate: 1, batch: {trace: t.csv}}").batches_from->path, "t.csv");
  EXPECT_EQ(RecipeOf("{rate: 0.5, arrivals: poisson}").load.spacing.kind, Spacing::Kind::kPoisson);
  EXPECT_EQ(RecipeOf("{rate: 1e3, arrivals: constant}").load.spacing.kind,
            Spacing::Kind::kConstant);
  EXPECT_EQ(RecipeOf("{rate: 1, diurnal: {amplitude: 1}}").load.diurnal.period, 24h);
}

TEST(FleetTest, AShapeIsReadWithItsStep) {
  const Load load = RecipeOf("{rate: 400, shape: {step: 20s, factors: [0.4, 1, 2.2]}}").load;
  EXPECT_EQ(load.shape.step, 20s);
  EXPECT_EQ(load.shape.factors, (std::vector<double>{0.4, 1, 2.2}));
  EXPECT_TRUE(RecipeOf("{rate: 1}").load.shape.factors.empty());
}

TEST(FleetTest, ErrorsOfAShape) {
  const auto error = [](const std::string& shape) {
    return ErrorOfLoad("{rate: 1, shape: " + shape + "}");
  };
  EXPECT_EQ(error("{factors: [1]}"), "f.yaml:2: shape needs the key 'step'");
  EXPECT_EQ(error("{step: 1s}"), "f.yaml:2: shape needs the key 'factors'");
  EXPECT_THAT(error("{step: 0s, factors: [1]}"),
              StartsWith("f.yaml:2: step: '0s' is not a time from 1ms to 8784h"));
  EXPECT_THAT(error("{step: 1s, factors: 2}"), HasSubstr("factors: is a list"));
  EXPECT_EQ(error("{step: 1s, factors: [1, -1]}"),
            "f.yaml:2: factors: '-1' is not a number from 0 to 1000000");
  constexpr const char* kNone = "f.yaml:2: factors: none is above 0; nothing would ever arrive";
  EXPECT_EQ(error("{step: 1s, factors: []}"), kNone);
  EXPECT_EQ(error("{step: 1s, factors: [0, 0]}"), kNone);
  std::string many = "1";
  for (int i = 1; i < 100'000; ++i) many += ",1";
  EXPECT_EQ(error("{step: 1s, factors: [" + many + "]}"), "no error");
  EXPECT_EQ(error("{step: 1s, factors: [" + many + ",1]}"),
            "f.yaml:2: factors: 100001; at most 100000");
  EXPECT_EQ(error("{steps: 1s, factors: [1]}"),
            "f.yaml:2: shape has no key 'steps'; did you mean 'step'?");
}

TEST(FleetTest, ErrorsOfTheFileNameLineValueAndWhatWouldBeRight) {
  EXPECT_EQ(ErrorOf(""), "f.yaml: the file is empty; a fleet has the keys 'gpus' and 'models'");
  EXPECT_THAT(ErrorOf("- 1\n"), StartsWith("f.yaml:1: a fleet is a mapping with the keys gpus"));
  EXPECT_EQ(ErrorOf(kModels), "f.yaml:1: a fleet needs the key 'gpus'");
  EXPECT_EQ(ErrorOf(kGpus), "f.yaml:1: a fleet needs the key 'models'");
  EXPECT_EQ(ErrorOf(kGpus + kModels + "job: []\n"),
            "f.yaml:3: a fleet has no key 'job'; did you mean 'jobs'?");
  EXPECT_EQ(ErrorOf("gpus: {kind: A100-80BG, count: 1}\n" + kModels),
            "f.yaml:1: kind: no GPU is called 'A100-80BG'; did you mean 'A100-80GB'?");
  EXPECT_EQ(ErrorOf("gpus: {kind: A100, count: 1}\n" + kModels),
            "f.yaml:1: kind: GPU 'A100' could be A100-40GB or A100-80GB");
  EXPECT_EQ(ErrorOf("gpus: {kind: A100-80GB}\n" + kModels), "f.yaml:1: gpus needs the key 'count'");
  EXPECT_EQ(ErrorOf("gpus: {kind: A100-80GB, count: many}\n" + kModels),
            "f.yaml:1: count: 'many' is neither auto nor a whole number from 1 to 100000");
  EXPECT_EQ(ErrorOf("gpus: {kind: A100-80GB, count: 100001}\n" + kModels),
            "f.yaml:1: count: '100001' is not a whole number from 1 to 100000");
  EXPECT_EQ(ErrorOf(kGpus + "models: []\n"), "f.yaml:2: models: a fleet serves at least one");
  EXPECT_EQ(ErrorOf(kGpus + "models:\n  - {name: m, profile: p, slo: 1s, load: {rate: 1}}\n"
                            "  - {name: m, profile: p, slo: 1s, load: {rate: 1}}\n"),
            "f.yaml:4: the model 'm' appears twice; it stands on line 3 already");
}

TEST(FleetTest, ErrorsOfAModel) {
  const auto error = [](const std::string& model) {
    return ErrorOf(kGpus + "models:\n  - " + model + "\n");
  };
  EXPECT_EQ(error("{profile: p, slo: 1s, load: {rate: 1}}"),
            "f.yaml:3: a model needs the key 'name'");
  EXPECT_EQ(error("{name: m, slo: 1s, load: {rate: 1}}"),
            "f.yaml:3: a model needs the key 'profile'");
  EXPECT_EQ(error("{name: m, profile: p, load: {rate: 1}}"),
            "f.yaml:3: a model needs the key 'slo'");
  EXPECT_EQ(error("{name: m, profile: p, slo: 1s}"), "f.yaml:3: a model needs the key 'load'");
  EXPECT_THAT(error("{name: m, profile: p, slo: 20, load: {rate: 1}}"),
              StartsWith("f.yaml:3: slo: '20' is not a time from 1us to 1h with its unit"));
  EXPECT_THAT(error("{name: m, profile: p, slo: 2h, load: {rate: 1}}"),
              StartsWith("f.yaml:3: slo: '2h' is not a time from 1us to 1h"));
  EXPECT_EQ(error("{name: m, profile: {model: x}, slo: 1s, load: {rate: 1}}"),
            "f.yaml:3: profile needs the key 'file'");
  EXPECT_EQ(error("{name: m, profile: p, slo: 1s, load: {rate: 1}, priority: 8}"),
            "f.yaml:3: priority: '8' is not a whole number from 0 to 7");
  EXPECT_EQ(error("{name: m, profile: p, slo: 1s, load: {rate: 1}, weight: 0}"),
            "f.yaml:3: weight: '0' is not a number from 0.001 to 1000");
  EXPECT_EQ(error("{name: m, profile: p, sol: 1s, load: {rate: 1}}"),
            "f.yaml:3: a model has no key 'sol'; did you mean 'slo'?");
}

TEST(FleetTest, ErrorsOfALoad) {
  EXPECT_EQ(ErrorOfLoad("{batch: 1}"),
            "f.yaml:2: load needs the key 'rate', requests a second, or the key 'trace'");
  EXPECT_THAT(ErrorOfLoad("400"), StartsWith("f.yaml:2: load is a mapping with the keys rate"));
  EXPECT_EQ(ErrorOfLoad("{rate: 0}"),
            "f.yaml:2: rate: '0' is not a number from 1e-06 to 1000000000");
  EXPECT_THAT(ErrorOfLoad("{rate: 400/min}"), HasSubstr("rate: '400/min' is not a number"));
  EXPECT_THAT(ErrorOfLoad("{rate: inf}"), HasSubstr("rate: 'inf' is not a number"));
  EXPECT_THAT(ErrorOfLoad("{rate: [1]}"), HasSubstr("but here is a list"));
  EXPECT_EQ(ErrorOfLoad("{rate: 1, arrivals: poison}"),
            "f.yaml:2: arrivals: 'poison' is not poisson or constant; did you mean 'poisson'?");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, arrivals: {gamma: {}}}"), "f.yaml:2: gamma needs the key 'cv'");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, arrivals: {gamma: {cv: 0}}}"),
            "f.yaml:2: cv: '0' is not a number from 0.01 to 20");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, diurnal: {amplitude: 1.5}}"),
            "f.yaml:2: amplitude: '1.5' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, diurnal: {period: 1h}}"),
            "f.yaml:2: diurnal needs the key 'amplitude'");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: 0}"),
            "f.yaml:2: batch: '0' is not a whole number from 1 to 65536");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {lognormal: {median: 6, sigma: 0.9}}}"),
            "f.yaml:2: lognormal needs the key 'max'");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {lognormal: {median: 6, sigma: 0, max: 3}}}"),
            "f.yaml:2: sigma: '0' is not a number from 0.001 to 10");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {}}"),
            "f.yaml:2: batch: is a number, or one of lognormal, empirical and trace");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {empirical: {0: 1}}}"),
            "f.yaml:2: empirical: '0' is not a batch size, a whole number from 1 to 65536");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {empirical: {1: -1}}}"),
            "f.yaml:2: empirical 1: '-1' is not a number from 0 to 1000000000000");
  EXPECT_EQ(ErrorOfLoad("{rate: 1, batch: {empirical: {1: 0}}}"),
            "f.yaml:2: empirical: no batch size has a weight above 0");
  EXPECT_THAT(ErrorOfLoad("{rate: 1, batch: {empirical: 3}}"),
              HasSubstr("empirical: is a mapping of batch sizes to weights"));
  EXPECT_EQ(ErrorOfLoad("{trace: t.csv, rate: 1}"),
            "f.yaml:2: load: is made from a rate or read from a trace, not both");
  EXPECT_EQ(ErrorOfLoad("{trace: t.csv, tokens_per_item: 0}"),
            "f.yaml:2: tokens_per_item: '0' is not a whole number from 1 to 1000000");
}

TEST(FleetTest, ErrorsOfJobsAndPolicy) {
  const auto error = [](const std::string& rest) { return ErrorOf(kGpus + kModels + rest + "\n"); };
  EXPECT_EQ(error("jobs: [{name: t}]"), "f.yaml:3: a job needs the key 'instance'");
  EXPECT_EQ(error("jobs: [{name: t, instance: 3g.41gb}]"),
            "f.yaml:3: instance: A100-80GB has no '3g.41gb'; did you mean '3g.40gb'?");
  EXPECT_THAT(error("jobs: [{name: t, instance: 5g}]"),
              StartsWith("f.yaml:3: instance: A100-80GB has no '5g'"));
  EXPECT_THAT(error("jobs: [{name: t, instance: 60sm}]"),
              StartsWith("f.yaml:3: instance: '60sm' is neither a MIG profile such as 1g.10gb"));
  EXPECT_EQ(error("jobs: [{name: t, instance: 1g}, {name: t, instance: 2g}]"),
            "f.yaml:3: the job 't' appears twice; it stands on line 3 already");
  EXPECT_EQ(error("jobs: [{name: t, instance: 1g, count: 0}]"),
            "f.yaml:3: count: '0' is not a whole number from 1 to 100000");
  EXPECT_EQ(error("policy: {safety: 1.1}"),
            "f.yaml:3: safety: '1.1' is not a number from 0.01 to 1");
  EXPECT_EQ(error("policy: {batching_delay: -1}"),
            "f.yaml:3: batching_delay: '-1' is not a number from 0 to 100");
  EXPECT_THAT(error("policy: {seed: -1}"), HasSubstr("seed: '-1' is not a whole number from 0"));
  EXPECT_EQ(error("policy: {rout: x}"),
            "f.yaml:3: policy has no key 'rout'; did you mean 'route'?");
}

}  // namespace
}  // namespace divvy::workload
