#include "planner/advice.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"
#include "gpu/catalogue.h"

namespace divvy::planner {
namespace {

using ::testing::HasSubstr;
using workload::CollocatedJob;
using workload::JobClass;
using workload::SoloProfile;

AdviceRequest RequestFor(std::vector<CollocatedJob> jobs) {
  AdviceRequest request;
  request.gpu = *gpu::FindGpuModel("A100-40GB");
  request.gpu_name = request.gpu->name;
  request.memory_gib = 39.25;
  request.power_w = 250;
  request.jobs = std::move(jobs);
  return request;
}

CollocatedJob JobOf(std::string name, double memory, double utilisation,
                    JobClass job_class = JobClass::kBatch) {
  return {.name = std::move(name),
          .job_class = job_class,
          .profile = {.memory_gib = memory, .utilisation = utilisation}};
}

TEST(AdviceTest, MemoryThatDoesNotFitIsSaidAndByHowMuch) {
  const Advice advice = Advise(RequestFor({JobOf("a", 29.1, 0.1), JobOf("b", 12, 0.1)}));
  EXPECT_EQ(advice.recommended, SharingMode::kOneByOne);
  // 29.1 + 12 + two contexts of 0.5, less 39.25.
  EXPECT_THAT(advice.reason, HasSubstr("42.1 GiB"));
  EXPECT_THAT(advice.reason, HasSubstr("2.9 more"));
  for (const SharingMode mode :
       {SharingMode::kTimeSlicing, SharingMode::kMps, SharingMode::kMpsShares, SharingMode::kMig}) {
    EXPECT_FALSE(advice.outlook(mode).impossible.empty());
  }
}

TEST(AdviceTest, AJobTooLargeForTheGpuIsNamed) {
  const Advice advice = Advise(RequestFor({JobOf("small", 1, 0.1), JobOf("huge", 60, 0.1)}));
  EXPECT_THAT(advice.reason, HasSubstr("huge alone needs 60.5 GiB"));
}

TEST(AdviceTest, SmallJobsGoUnderMpsAndDoTheWorkOfSeveral) {
  const Advice advice =
      Advise(RequestFor({JobOf("a", 4, 0.3), JobOf("b", 4, 0.35), JobOf("c", 4, 0.3)}));
  EXPECT_EQ(advice.recommended, SharingMode::kMps);
  const ModeOutlook& mps = advice.outlook(SharingMode::kMps);
  EXPECT_GT(mps.throughput, 2.3);
  EXPECT_EQ(mps.keeps, Odds::kLikely);
  EXPECT_GT(mps.throughput, advice.outlook(SharingMode::kTimeSlicing).throughput);
}

TEST(AdviceTest, MpsTakesSoManyClientsAndNoMore) {
  std::vector<CollocatedJob> jobs;
  for (int i = 0; i < 49; ++i) {
    jobs.push_back(JobOf(fmt::format("job-{}", i), 0.1, 0.01));
    if (i < 47) continue;
    const Advice advice = Advise(RequestFor(jobs));
    for (const SharingMode mode : {SharingMode::kMps, SharingMode::kMpsShares}) {
      EXPECT_EQ(advice.outlook(mode).impossible,
                jobs.size() > 48 ? "MPS takes 48 clients at most" : "");
    }
  }
}

// However many: the GPU works on one while it does not on another.
TEST(AdviceTest, ManyJobsThatFillTheGpuDoHardlyLessThanOne) {
  std::vector<CollocatedJob> jobs;
  for (int i = 0; i < 7; ++i) {
    jobs.push_back(JobOf(std::string(1, static_cast<char>('a' + i)), 2, 1));
    if (jobs.size() < 2) continue;
    const Advice advice = Advise(RequestFor(jobs));
    EXPECT_GT(advice.outlook(SharingMode::kTimeSlicing).throughput, jobs.size() < 3 ? 0.6 : 0.99)
        << jobs.size();
    EXPECT_GE(advice.outlook(SharingMode::kMps).throughput,
              advice.outlook(SharingMode::kTimeSlicing).throughput)
        << jobs.size();
  }
}

// Kernels of two processes never run at once by time slicing, and no SM works for two otherwise.
TEST(AdviceTest, JobsTogetherNeedNoMoreThanOneGpu) {
  Random random(11);
  int tight = 0;
  for (int round = 0; round < 500; ++round) {
    std::vector<CollocatedJob> jobs(2 + random.Below(6));
    for (CollocatedJob& job : jobs) {
      job.profile.utilisation = random.Uniform();
      job.profile.sm_activity = *job.profile.utilisation * random.Uniform();
      if (random.Below(2) == 0) job.profile.power_w = 250 * random.Uniform();
    }
    const Advice advice = Advise(RequestFor(jobs));
    double busy = 0;
    double busy_at_best = 0;
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      const JobOutlook& job = advice.outlook(SharingMode::kTimeSlicing).jobs[i];
      busy += *jobs[i].profile.utilisation * job.speed;
      busy_at_best += *jobs[i].profile.utilisation * job.high;
    }
    ASSERT_LE(busy, 1 + 1e-9) << "round " << round;
    ASSERT_LE(busy_at_best, 1 + 1e-9) << "round " << round;
    for (const SharingMode mode : {SharingMode::kMps, SharingMode::kMpsShares, SharingMode::kMig}) {
      double at_work = 0;
      for (std::size_t i = 0; i < advice.outlook(mode).jobs.size(); ++i)
        at_work += *jobs[i].profile.sm_activity * advice.outlook(mode).jobs[i].speed;
      ASSERT_LE(at_work, 1 + 1e-9) << "round " << round << ", mode " << static_cast<int>(mode);
    }
    tight += busy > 1 - 1e-6 ? 1 : 0;
  }
  EXPECT_GT(tight, 3) << "the bound is reached";
}

// What a latency job leaves, as measured, is all that batch jobs have between them.
TEST(AdviceTest, BehindTheGateBatchJobsShareWhatIsLeft) {
  std::vector<CollocatedJob> jobs = {JobOf("serve", 1, 0.6, JobClass::kLatency)};
  for (int i = 0; i < 6; ++i) {
    jobs.push_back(JobOf(std::string(1, static_cast<char>('a' + i)), 1, 1));
    if (i == 0) continue;
    const Advice advice = Advise(RequestFor(jobs));
    const ModeOutlook& gate = advice.outlook(SharingMode::kGate);
    EXPECT_LE(gate.throughput - 1, 1 / 1.42 + 1e-9) << jobs.size();
    for (const JobOutlook& job : gate.jobs) EXPECT_LE(job.speed, job.high);
  }
}

TEST(AdviceTest, LargeJobsRunOneAfterTheOther) {
  const Advice advice = Advise(RequestFor({JobOf("a", 10, 1), JobOf("b", 10, 1)}));
  EXPECT_EQ(advice.recommended, SharingMode::kOneByOne);
  EXPECT_THAT(advice.reason, HasSubstr("164 % of the GPU"));
  EXPECT_EQ(advice.outlook(SharingMode::kTimeSlicing).keeps, Odds::kUnlikely);
}

TEST(AdviceTest, ALatencyJobBesideTrainingGoesBehindTheGate) {
  const Advice advice =
      Advise(RequestFor({JobOf("serve", 4, 0.2, JobClass::kLatency), JobOf("train", 10, 0.95)}));
  EXPECT_EQ(advice.recommended, SharingMode::kGate);
  const ModeOutlook& gate = advice.outlook(SharingMode::kGate);
  EXPECT_EQ(gate.jobs[0].speed, 1);
  // As on the H200: 20 % busy with requests costs training 14 %.
  EXPECT_NEAR(gate.jobs[1].speed, 1 / 1.14, 0.001);
  EXPECT_LT(gate.jobs[0].p99.value(), advice.outlook(SharingMode::kMps).jobs[0].p99.value());
}

TEST(AdviceTest, ALatencyJobThatDoesNotFitGetsItsOwnGpu) {
  const Advice advice =
      Advise(RequestFor({JobOf("serve", 20, 0.2, JobClass::kLatency), JobOf("train", 30, 0.9)}));
  EXPECT_EQ(advice.recommended, SharingMode::kOneByOne);
  EXPECT_THAT(advice.reason, HasSubstr("51.0 GiB"));
  EXPECT_THAT(advice.reason, HasSubstr("a GPU of its own"));
}

TEST(AdviceTest, TheGateIsForMixedSetsOnly) {
  const Advice advice = Advise(RequestFor({JobOf("a", 4, 0.2), JobOf("b", 4, 0.2)}));
  EXPECT_THAT(advice.outlook(SharingMode::kGate).impossible, HasSubstr("needs a latency job"));
}

TEST(AdviceTest, TheStudysPairDoesAsItDid) {
  // DLRM (5 % of the GPU, 29.1 GB) with ResNet152 (82 %, 8.5 GB): together under MPS they
  // ended 13 % earlier than one after the other, and each kept 95 % of its speed.
  const Advice advice =
      Advise(RequestFor({JobOf("dlrm", 27.1, 0.05), JobOf("resnet152", 7.9, 0.82)}));
  EXPECT_EQ(advice.recommended, SharingMode::kMps);
  EXPECT_EQ(advice.outlook(SharingMode::kMps).keeps, Odds::kLikely);
  EXPECT_LE(advice.outlook(SharingMode::kMps).jobs[0].low, 0.95);
  EXPECT_GE(advice.outlook(SharingMode::kMps).jobs[0].high, 0.95);
}

TEST(AdviceTest, MigGivesTheHungryJobTheLargeInstance) {
  AdviceRequest request = RequestFor({JobOf("light", 4, 0.3), JobOf("hungry", 10, 0.9)});
  request.isolate = true;
  const Advice advice = Advise(request);
  EXPECT_EQ(advice.recommended, SharingMode::kMig);
  const auto& jobs = advice.outlook(SharingMode::kMig).jobs;
  EXPECT_EQ(jobs[1].share, "4g.20gb");
  EXPECT_THAT(jobs[0].share, HasSubstr("3g"));
  // Memory goes first: what needs 19 GiB cannot be in a 2g.10gb, whatever it computes.
  request.jobs[0].profile.memory_gib = 18.5;
  EXPECT_THAT(Advise(request).outlook(SharingMode::kMig).jobs[0].share, HasSubstr("20gb"));
  request.gpu = nullptr;
  EXPECT_THAT(Advise(request).reason, HasSubstr("only MIG keeps jobs apart"));
}

TEST(AdviceTest, WhatIsNotKnownIsSaid) {
  AdviceRequest request = RequestFor({{.name = "a"}, {.name = "b"}});
  request.jobs[1].profile.power_w = 100;
  request.power_w.reset();
  const Advice advice = Advise(request);
  EXPECT_EQ(advice.notes.size(), 5U);
  const JobOutlook& unsure = advice.outlook(SharingMode::kMps).jobs[0];
  EXPECT_LT(unsure.low, unsure.speed);
  EXPECT_GT(unsure.high, unsure.speed);
}

// Raises one figure of a profile.
using Figure = std::optional<double> SoloProfile::*;

TEST(AdviceTest, MoreOfAnythingNeverPredictsLessSlowdown) {
  Random random(7);
  const Figure figures[] = {&SoloProfile::utilisation, &SoloProfile::sm_activity,
                            &SoloProfile::bandwidth, &SoloProfile::power_w, &SoloProfile::demand};
  for (int round = 0; round < 2000; ++round) {
    std::vector<CollocatedJob> jobs(2 + random.Below(3));
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      jobs[i].name = std::to_string(i);
      for (const Figure figure : figures) {
        if (random.Below(3) == 0) jobs[i].profile.*figure = random.Uniform();
      }
      if (random.Below(2) == 0) jobs[i].profile.steps_per_second = std::exp(6 * random.Uniform());
    }
    AdviceRequest request = RequestFor(jobs);
    request.power_w = 1;
    const Figure figure = figures[random.Below(5)];
    SoloProfile& raised = request.jobs[0].profile;
    if (!(raised.*figure)) raised.*figure = 0.3;
    const Advice before = Advise(request);
    raised.*figure = std::min(1.0, *(raised.*figure) + random.Uniform());
    const Advice after = Advise(request);
    for (const SharingMode mode : {SharingMode::kTimeSlicing, SharingMode::kMps}) {
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        EXPECT_LE(after.outlook(mode).jobs[i].speed, before.outlook(mode).jobs[i].speed + 1e-12)
            << "round " << round;
      }
    }
  }
}

TEST(DemandTest, ReadsScalingAsAmdahlDoes) {
  // 10 ms fixed and 1 ms for each of the batch.
  SoloProfile batches{.batch = 10};
  for (const int batch : {1, 10, 40})
    batches.speeds.push_back({batch, 1 / (0.010 + 0.001 * batch)});
  EXPECT_NEAR(BatchScalingShare(batches).value(), 0.5, 1e-9);
  // Half of the time halves on a GPU twice as fast, and doubles on one half as fast.
  for (const auto& [gpu, job] : {std::pair(2.0, 1 / 0.75), std::pair(0.5, 1 / 1.5)}) {
    const SoloProfile scaled{.steps_per_second = 8, .elsewhere = {{gpu, 8 * job}}};
    EXPECT_NEAR(GpuScalingShare(scaled).value(), 0.5, 1e-9);
  }
  // Speeds that fall with a smaller batch are noise, not negative time.
  SoloProfile odd{.batch = 1, .speeds = {{1, 10}, {2, 20}}};
  EXPECT_EQ(BatchScalingShare(odd), 0);
  EXPECT_NEAR(SpeedInPart({.share = 0.5, .error = 0, .basis = {}}, 0.5), 1 / 1.5, 1e-9);
}

TEST(DemandTest, TheBetterSourceWeighsMore) {
  const SoloProfile both{.utilisation = 1, .power_w = 0};
  const double share = EstimateDemand(both, 100).share;
  EXPECT_LT(share, 0.3);  // Power says 0, utilisation 0.82.
  EXPECT_GT(share, 0.1);
  EXPECT_EQ(EstimateDemand(both, {}).basis, "utilisation");
  EXPECT_GT(EstimateDemand({}, {}).error, EstimateDemand(both, 100).error);
}

TEST(InterferenceTest, TheJobWithShorterStepsLosesMore) {
  AdviceRequest request = RequestFor({JobOf("short", 4, 0.5), JobOf("long", 4, 0.5)});
  request.jobs[0].profile.steps_per_second = 100;
  const double even = Advise(request).outlook(SharingMode::kMps).jobs[0].speed;
  request.jobs[1].profile.steps_per_second = 1;
  const Advice advice = Advise(request);
  const auto& jobs = advice.outlook(SharingMode::kMps).jobs;
  EXPECT_LT(jobs[0].speed, even);
  EXPECT_GT(jobs[1].speed, even);
}

TEST(InterferenceTest, FitFindsTheCoefficientsThatMadeTheSamples) {
  const InterferenceModel truth{.base = -3, .demand = 2, .pace = 0.3, .error = 1};
  Random random(3);
  std::vector<InterferenceSample> samples;
  for (int i = 0; i < 50; ++i) {
    Exposure exposure{.demand = 1.2 * random.Uniform(), .pace = random.Uniform() - 0.5};
    exposure.others = 1 + static_cast<int>(random.Below(3));
    samples.push_back({exposure, 1 / (1 + ExtraTime(truth, exposure))});
  }
  const InterferenceModel fitted = FitInterference(samples, kRuleOfThumb, 0);
  EXPECT_NEAR(fitted.base, truth.base, 1e-3);
  EXPECT_NEAR(fitted.demand, truth.demand, 1e-3);
  EXPECT_NEAR(fitted.pace, truth.pace, 1e-3);
  EXPECT_EQ(FitInterference({}, kRuleOfThumb, 5), kRuleOfThumb);
}

TEST(InterferenceTest, DemandNeverHelps) {
  // Samples in which fuller GPUs slow jobs less.
  std::vector<InterferenceSample> samples;
  for (int i = 0; i < 10; ++i) {
    samples.push_back({{.demand = 0.2 * i, .pace = 0, .others = 1}, 0.5 + 0.04 * i});
  }
  const InterferenceModel fitted = FitInterference(samples, kRuleOfThumb, 0.1);
  EXPECT_EQ(fitted.demand, 0);
  EXPECT_GT(fitted.base, -1.5);  // Still near the data: extra times of 0.16 to 1.
}

TEST(InterferenceTest, HistoryDrawsTheModelTowardsItself) {
  // On this node a pair under MPS keeps half of what is expected.
  workload::MeasuredSet set{.id = "1",
                            .gpu = "H200-141GB",
                            .mode = SharingMode::kMps,
                            .jobs = {{.name = "a", .profile = {.demand = 0.4}, .speed = 0.5},
                                     {.name = "b", .profile = {.demand = 0.4}, .speed = 0.5}}};
  const Exposure exposure{.demand = 0.8, .pace = 0, .others = 1};
  double last = ExtraTime(InterferenceModels::Shipped().mps, exposure);
  EXPECT_LT(last, 0.5);
  for (const std::size_t count : {1U, 5U, 50U}) {
    const std::vector<workload::MeasuredSet> history(count, set);
    const auto learned = InterferenceModels::LearnedFrom(history);
    EXPECT_EQ(learned.learned, static_cast<int>(count));
    const double extra = ExtraTime(learned.mps, exposure);
    EXPECT_GT(extra, last);
    EXPECT_LT(extra, 1);
    // What was learned under MPS says nothing of time slices.
    EXPECT_EQ(learned.time_slicing, InterferenceModels::Shipped().time_slicing);
    last = extra;
  }
  EXPECT_GT(last, 0.8);
}

TEST(InterferenceTest, TellsGenerationsApart) {
  for (const char* gpu : {"K80", "p100", "Tesla P100-PCIE-16GB", "nvidia_m60"}) {
    EXPECT_TRUE(IsBeforeVolta(gpu)) << gpu;
  }
  for (const char* gpu : {"V100", "A100-40GB", "H200-141GB", "", "RTX-PRO-6000-Blackwell-96GB"}) {
    EXPECT_FALSE(IsBeforeVolta(gpu)) << gpu;
  }
}

}  // namespace
}  // namespace divvy::planner
