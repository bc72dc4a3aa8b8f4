#include <gtest/gtest.h>

#include "measure/job_output.h"
#include "measure/runs_file.h"
#include "measure/runs_plan.h"
#include "measure/together.h"

namespace divvy::measure {
namespace {

using std::chrono::seconds;
using workload::SharingMode;

TimePoint At(double s) { return TimePoint(FromSeconds(s)); }

TEST(StepCountTest, CountsFromTheFirstWordInsideToTheLast) {
  StepCount steps;
  for (int i = 0; i <= 10; ++i) steps.Said(At(i), 10.0 * i);
  EXPECT_DOUBLE_EQ(*steps.Rate(At(2.5), At(7.5)), 10);
  // One word, or none, is no rate; nor are two that say little of the time.
  EXPECT_FALSE(steps.Rate(At(2.5), At(3.5)));
  EXPECT_FALSE(steps.Rate(At(9), At(20)));
  EXPECT_FALSE(steps.Rate(At(11), At(12)));
}

TEST(StepCountTest, WordsThatComeInBurstsAreTrueWhenTheyCome) {
  StepCount steps;
  // 10 steps a second, heard of every three seconds.
  for (int step = 1; step <= 120; ++step) steps.Said(At(3.0 * ((step + 29) / 30)), step);
  EXPECT_DOUBLE_EQ(*steps.Rate(At(1), At(12)), 10);
  EXPECT_FALSE(steps.Rate(At(1), At(4)));  // One burst.
}

TEST(StepCountTest, ANewEpochDoesNotUndoTheLast) {
  StepCount steps;
  for (const auto& [s, count] : {std::pair{0, 50}, {1, 100}, {2, 10}, {3, 60}}) {
    steps.Said(At(s), count);
  }
  EXPECT_DOUBLE_EQ(*steps.Rate(At(0), At(3)), (160.0 - 50) / 3);
}

TEST(LinePatternTest, TakesTheNumberOfItsGroup) {
  const auto pattern = LinePattern::Parse("step ([0-9.]+)/", true);
  ASSERT_TRUE(pattern);
  EXPECT_EQ(pattern->Number("epoch 1 step 12/100 loss 3"), 12);
  EXPECT_FALSE(pattern->Number("step 1.2.3/9"));
  EXPECT_FALSE(pattern->Number("nothing"));
  EXPECT_EQ(LinePattern::Parse("step [0-9]+", true).error().message,
            "'step [0-9]+' has no group for the number, as 'step ([0-9]+)' has");
  EXPECT_NE(LinePattern::Parse("step (", false).error().message.find("no regular expression"),
            std::string::npos);
}

TEST(LineSplitterTest, LinesComeWholeHoweverTheBytesCome) {
  const std::string text = "one\ntwo\rthree\r\n\nfour";
  for (std::size_t chunk = 1; chunk <= text.size(); ++chunk) {
    LineSplitter splitter;
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < text.size(); i += chunk) {
      for (std::string& line : splitter.Take(std::string_view(text).substr(i, chunk))) {
        lines.push_back(std::move(line));
      }
    }
    EXPECT_EQ(lines, (std::vector<std::string>{"one", "two", "three"})) << chunk;
    EXPECT_EQ(splitter.Rest(), "four");
  }
}

TEST(LineSplitterTest, ALineWithoutAnEndIsCut) {
  LineSplitter splitter;
  std::size_t taken = 0;
  for (int i = 0; i < 100; ++i) {
    for (const std::string& line : splitter.Take(std::string(5000, 'x'))) taken += line.size();
  }
  EXPECT_EQ(taken + splitter.Rest().size(), 500'000U);
  EXPECT_GT(taken, 400'000U);
}

constexpr std::string_view kRuns =
    "workload,mode,job,share,state,seconds,steps_per_s,latency_ms,cpu_s,host_mib,measured_s,"
    "gpu_busy,sm_active,gpu_mib,power_w,why,made_with,on\n"
    "a alone,alone,a,,done,,10,,1,100,30,0.5,0.25,2048,200,,command=#1 limit=9s,\"H200-141GB, "
    "driver 580\"\n"
    "b alone,alone,b,,done,40,,,1,100,40,0.9,0.8,4096,400,,,\n"
    "both,mps,a,,done,,8,,1,100,30,1,0.9,6144,500,,,\n"
    "both,mps,b,,done,50,,,1,100,30,1,0.9,6144,500,,,\n"
    "shares,mps-shares,a,40,,,,,,,,,,,,,,\n"
    "shares,mps-shares,b,60,,,,,,,,,,,,,,\n"
    "cut,mig,a,,skipped,,,,,,,,,,,\"none, as it is\",,\n"
    "cut,mig,b,,skipped,,,,,,,,,,,\"none, as it is\",,\n";

TEST(RunsFileTest, IsReadAsItIsWritten) {
  const auto rows = ParseRuns(kRuns, "r.csv");
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(FormatRuns(*rows), kRuns);
  EXPECT_EQ(rows->at(4).share, 40);
  EXPECT_EQ(rows->at(6).why, "none, as it is");
  EXPECT_EQ(rows->at(0).gpu.energy_j(), 6000);
  EXPECT_EQ(rows->at(0).made_with, "command=#1 limit=9s");
  EXPECT_EQ(rows->at(0).on, "H200-141GB, driver 580");
}

TEST(RunsFileTest, SaysWhatIsWrong) {
  const std::string head = "workload,mode,job,share,state\n";
  const std::pair<const char*, const char*> cases[] = {
      {"w,mpss,a,,\n",
       "r.csv:2: mode: 'mpss' is not alone, time-slicing, mps, mps-shares, mig or gate; did you "
       "mean 'mps'?"},
      {"w,mps,a,,finished\n",
       "r.csv:2: state: 'finished' is not done, failed or skipped, or empty for a run that is to "
       "be made"},
      {"w,mps,a,,\nw,mig,b,,\n",
       "r.csv:3: mode: workload 'w' is mps on line 2: rows of one workload run together, in one "
       "way"},
      {"w,alone,a,,\nw,alone,b,,\n",
       "r.csv:3: mode: workload 'w' stands on line 2 already: who runs alone has a workload alone"},
      {"w,mps-shares,a,,\n",
       "r.csv:2: share: is missing; under mps-shares each job has its percentage of the SMs, 1 to "
       "100"},
      {"w,mps,a,40,\n", "r.csv:2: share: stands under mps-shares only"},
  };
  for (const auto& [lines, error] : cases) {
    const auto rows = ParseRuns(head + lines, "r.csv");
    ASSERT_FALSE(rows) << lines;
    EXPECT_EQ(rows.error().message, error);
  }
}

TEST(TogetherTest, ComparesByWhatBothWereMeasuredBy) {
  const auto sets = CompareRuns(*ParseRuns(kRuns, "r.csv"), {{"a", "a"}, {"b", "b"}});
  ASSERT_EQ(sets.size(), 1U);  // Only what is done.
  const SetTogether& set = sets[0];
  EXPECT_DOUBLE_EQ(*set.jobs[0].speed, 0.8);  // By its steps,
  EXPECT_DOUBLE_EQ(*set.jobs[0].alone_s, 30);
  EXPECT_DOUBLE_EQ(*set.jobs[0].together_s, 37.5);
  EXPECT_DOUBLE_EQ(*set.jobs[1].speed, 0.8);  // by its end.
  EXPECT_DOUBLE_EQ(*set.one_by_one_s, 70);
  EXPECT_DOUBLE_EQ(*set.together_s, 50);
  EXPECT_DOUBLE_EQ(*set.aggregate, 1.6);
}

TEST(TogetherTest, SlowerAnswersAreSlowerAndNothingIsMadeUp) {
  std::vector<RunRow> rows = {{.workload = "a alone", .job = "a"},
                              {.workload = "w", .mode = SharingMode::kGate, .job = "a"},
                              {.workload = "w", .mode = SharingMode::kGate, .job = "b"}};
  for (RunRow& row : rows) row.state = RunState::kDone;
  rows[0].figures.latency_ms = 4;
  rows[1].figures.latency_ms = 5;
  rows[2].figures.steps_per_s = 3;
  const auto sets = CompareRuns(rows, {});
  ASSERT_EQ(sets.size(), 1U);
  EXPECT_DOUBLE_EQ(*sets[0].jobs[0].speed, 0.8);
  EXPECT_FALSE(sets[0].jobs[0].together_s);  // It is never done.
  EXPECT_FALSE(sets[0].jobs[1].speed);       // Nobody saw it alone.
  EXPECT_FALSE(sets[0].aggregate);
  EXPECT_FALSE(sets[0].together_s);
}

TEST(RunsPlanTest, CopiesRunAloneOnce) {
  std::vector<workload::CollocatedJob> jobs = {{.name = "a-1", .command = {"x"}},
                                               {.name = "a-2", .command = {"x"}},
                                               {.name = "b", .command = {"y"}}};
  const auto rows = PlanRuns(jobs, {SharingMode::kMps, SharingMode::kMpsShares}, {20, 20, 60});
  ASSERT_EQ(rows.size(), 2 + 3 + 3U);
  EXPECT_EQ(rows[1].job, "b");
  EXPECT_EQ(rows[5].share, 20);
  EXPECT_EQ(CopiesAmong(jobs).at("a-2"), "a-1");
  // What is planned can be read.
  EXPECT_TRUE(ParseRuns(FormatRuns(rows), "r.csv"));
}

TEST(RunsPlanTest, WhatChangedIsNamed) {
  using workload::CollocatedJob;
  using workload::CollocationRun;
  const CollocatedJob job{.name = "a", .command = {"x", "y z"}};
  struct Case {
    void (*change)(CollocatedJob&, CollocationRun&);
    const char* words;
  };
  const Case cases[] = {
      {[](CollocatedJob&, CollocationRun&) {}, ""},
      {[](CollocatedJob& j, CollocationRun&) { j.name = "other"; }, ""},
      {[](CollocatedJob& j, CollocationRun&) { j.command = {"x", "y", "z"}; }, "command"},
      {[](CollocatedJob& j, CollocationRun&) { j.shell = true; }, "command"},
      {[](CollocatedJob& j, CollocationRun&) { j.directory = "/d"; }, "directory"},
      {[](CollocatedJob& j, CollocationRun&) { j.environment = {"A=1"}; }, "environment"},
      {[](CollocatedJob& j, CollocationRun&) { j.ready = "up"; }, "ready"},
      {[](CollocatedJob& j, CollocationRun&) { j.latency = "(1)"; }, "latency"},
      {[](CollocatedJob& j, CollocationRun&) { j.profile.batch = 8; }, "batch (none, now 8)"},
      {[](CollocatedJob& j, CollocationRun&) { j.job_class = workload::JobClass::kLatency; },
       "class (none, now latency)"},
      {[](CollocatedJob& j, CollocationRun& r) {
         j.progress = "s (1)";
         r.limit = seconds(600);
       },
       "limit (300s, now 600s), progress"},
      {[](CollocatedJob&, CollocationRun& r) { r.warmup = seconds(1); }, "warmup (30s, now 1s)"},
  };
  for (const Case& one : cases) {
    CollocatedJob changed = job;
    CollocationRun run;
    one.change(changed, run);
    const std::string before = MadeWith(job, {});
    const std::string now = MadeWith(changed, run);
    EXPECT_EQ(WhatChanged(before, now), one.words) << before << " and " << now;
  }
  EXPECT_EQ(WhatChanged("", MadeWith(job, {})), "") << "nobody wrote it down";
}

}  // namespace
}  // namespace divvy::measure
