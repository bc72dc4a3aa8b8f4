#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <sstream>
#include <utility>

#include "gate/gate_fixture.h"
#include "gate/ops_record.h"
#include "gate/ops_trace.h"

// The kernel log: `divvy profile --ops` as users run it, on the simulated driver.

namespace divvy::tests {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

class GateOpsTest : public GateTest {
 protected:
  // Words of ours, then what is to be run.
  Words Command(const Words& options, const Words& job) const {
    Words words{DIVVY_PATH, "profile", "--ops", "-o", "json", "--summary", SummaryPath()};
    words.insert(words.end(), options.begin(), options.end());
    words.emplace_back("--");
    words.insert(words.end(), job.begin(), job.end());
    return words;
  }
  test::Finished Log(const Words& options, const Words& job, const Environment& more = {}) const {
    return Run(As::kUngated, Command(options, job), more);
  }
  static Words SimJob(const Words& more) {
    Words words{SIM_JOB, "train"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::string SummaryPath() const { return directory_ + "/summary.json"; }
  std::string Text(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(directory_ + "/" + name).rdbuf();
    return text.str();
  }
  json Summary() const { return json::parse(Text("summary.json")); }
};

TEST_F(GateOpsTest, EveryLaunchIsCountedAndSomeAreTimed) {
  const std::string trace = directory_ + "/trace.json";
  const std::string save = directory_ + "/kernels.ops";
  const test::Finished finished =
      Log({"--trace", trace, "--save", save},
          SimJob({"--kernels", "5", "--us", "100", "--steps", "60", "--stream", "own"}));
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  const json summary = Summary();
  EXPECT_EQ(summary["totals"]["launches"], 305);
  ASSERT_EQ(summary["kernels"].size(), 1U);
  const json& kernel = summary["kernels"][0];
  EXPECT_EQ(kernel["kernel"], "job_kernel");
  EXPECT_EQ(kernel["grid"], json({16, 1, 1}));
  EXPECT_EQ(kernel["block"], json({1024, 1, 1}));
  EXPECT_EQ(kernel["class"], "heavy");
  EXPECT_GT(kernel["sms"], 0);
  EXPECT_GE(kernel["timed"], 8);
  EXPECT_GE(kernel["p50_us"], 90) << "held streams measure the kernel, not its launch";
  EXPECT_GE(summary["phases"].size(), 1U);
  EXPECT_EQ(Stats().back()["kernels"], 305) << "the driver ran what was launched, and no more";

  const json events = json::parse(Text("trace.json"))["traceEvents"];
  int launches = 0;
  int names = 0;
  for (const json& event : events) {
    names += event["ph"] == "M" ? 1 : 0;
    if (event["ph"] != "X") continue;
    ++launches;
    EXPECT_EQ(event["name"], "job_kernel");
    EXPECT_GE(event["ts"], 0);
    EXPECT_GT(event["dur"], 0);
    EXPECT_EQ(event["args"]["grid"], "16x1x1");
  }
  EXPECT_EQ(names, 2) << "a process and a stream";
  EXPECT_EQ(launches, kernel["timed"]);

  // And the gate takes what was saved.
  EXPECT_THAT(Text("kernels.ops"), HasSubstr("job_kernel\t16x1x1\t1024x1x1\t0\t"));
  const test::Finished gated =
      Run(As::kBatch, {"train", "--kernels", "1", "--us", "50", "--steps", "1"},
          {{"DIVVY_OPS", save}, {"DIVVY_REPORT", ""}});
  EXPECT_EQ(gated.err, "");
}

TEST_F(GateOpsTest, AGraphIsOneKind) {
  ASSERT_EQ(Log({}, SimJob({"--kernels", "7", "--us", "20", "--steps", "30", "--stream", "own",
                            "--graph", "1"}))
                .exit_status,
            0);
  const json summary = Summary();
  ASSERT_EQ(summary["kernels"].size(), 1U) << summary;
  EXPECT_EQ(summary["kernels"][0]["kernel"], "graph of 7 kernels");
  EXPECT_EQ(summary["kernels"][0]["launches"], 31) << "and none of those that were captured";
  EXPECT_GE(summary["kernels"][0]["p50_us"], 130);
}

TEST_F(GateOpsTest, HoweverAGraphIsInstantiatedItsKernelsAreCounted) {
  ASSERT_EQ(Log({}, {GATE_PROBE, "forms"}).exit_status, 0);
  const std::string summary = Summary()["kernels"].dump();
  for (const char* graph : {"graph of 1 kernel", "graph of 2 kernels", "graph of 3 kernels",
                            "graph of 4 kernels", "graph of 5 kernels", "graph of 6 kernels"}) {
    EXPECT_THAT(summary, HasSubstr(graph));
  }
}

TEST_F(GateOpsTest, WhatAKilledProgramDidIsKnown) {
  const test::Finished finished = Log({}, {GATE_PROBE, "killed", "40"});
  EXPECT_EQ(finished.signal, SIGKILL) << "we end as it ended";
  const json summary = Summary();
  EXPECT_EQ(summary["totals"]["launches"], 40);
  EXPECT_GE(summary["totals"]["timed"], 8);
}

TEST_F(GateOpsTest, EachProcessHasItsOwn) {
  const std::string job = std::string(SIM_JOB) + " train --us 20 --kernels 1 --steps ";
  ASSERT_EQ(Log({}, {"sh", "-c", job + "4 & " + job + "9; wait"}).exit_status, 0);
  const json both = Summary();
  ASSERT_EQ(both["processes"].size(), 2U);
  EXPECT_EQ(both["totals"]["launches"], 15);
  EXPECT_EQ(both["kernels"].size(), 1U) << "the same kernel";
  for (const json& process : both["processes"]) EXPECT_EQ(process["program"], "divvy-sim-job");

  ASSERT_EQ(Log({}, {GATE_PROBE, "fork"}).exit_status, 0);
  EXPECT_EQ(Summary()["processes"].size(), 1U) << "a child that launches nothing has no log";
  EXPECT_EQ(Summary()["totals"]["launches"], 11);
}

TEST_F(GateOpsTest, KernelsAreTimedInEveryContext) {
  const test::Finished finished = Log({}, {GATE_PROBE, "contexts"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  const json summary = Summary();
  ASSERT_EQ(summary["kernels"].size(), 6U) << "handles may come again, for another kernel";
  for (const json& kernel : summary["kernels"]) {
    EXPECT_EQ(kernel["launches"], 20) << kernel;
    EXPECT_GE(kernel["timed"], 8) << kernel;
    EXPECT_GE(kernel["p50_us"], 45) << "streams are held in each: " << kernel;
  }
}

TEST_F(GateOpsTest, SignalsAndExitStatusPass) {
  EXPECT_EQ(Log({}, {GATE_PROBE, "exit", "7"}).exit_status, 7);
  EXPECT_EQ(Log({}, {"no-such-program"}).exit_status, 127);
  const auto program = Start(As::kUngated, Command({}, SimJob({"--us", "50", "--secs", "100"})));
  ASSERT_TRUE(program->AwaitOutput("READY"));
  program->Signal(SIGTERM);
  const test::Finished finished = program->Wait();
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("RESULT")) << "it was told, and ended by itself";
  EXPECT_GT(Summary()["totals"]["launches"], 0);
}

TEST_F(GateOpsTest, CapturesAreNotBrokenByTiming) {
  const test::Finished finished = Log({}, {GATE_PROBE, "capture"});
  EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  EXPECT_EQ(Stats().back()["captures_broken"], 0);
}

TEST_F(GateOpsTest, DriversThatRefuseLeaveTheCounts) {
  const Words job = SimJob({"--kernels", "3", "--us", "20", "--steps", "20"});
  for (const auto& [fault, timed] : {std::pair{"cuMemHostRegister_v2@*=801", true},
                                     {"cuStreamWaitValue32_v2@*=801", true},
                                     {"no:cuStreamWaitValue32_v2", true},
                                     {"cuEventCreate@*=2", false},
                                     {"cuEventElapsedTime@*=400", false}}) {
    SCOPED_TRACE(fault);
    const test::Finished finished = Log({}, job, {{"DIVVY_CUDA_SIM_FAULTS", fault}});
    ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    const json summary = Summary();
    EXPECT_EQ(summary["totals"]["launches"], 63);
    EXPECT_EQ(summary["totals"]["timed"] > 0, timed);
    EXPECT_EQ(summary["notes"].size(), timed ? 0U : 1U) << summary["notes"];
  }
}

TEST_F(GateOpsTest, AStreamIsNotHeldByAThreadThatIsStuck) {
  // The sixth launch, which is timed, takes much longer than its stream may be held. Let go, the
  // stream comes to the event before the kernel at once, and to that after it when all is launched.
  const test::Finished finished = Log({"--trace", directory_ + "/trace.json"},
                                      SimJob({"--kernels", "4", "--us", "20", "--steps", "10"}),
                                      {{"DIVVY_CUDA_SIM_FAULTS", "delay:cuLaunchKernel@6=300ms"}});
  ASSERT_EQ(finished.exit_status, 0) << finished.err;
  double longest_us = 0;
  const json trace = json::parse(Text("trace.json"));
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") longest_us = std::max(longest_us, event["dur"].get<double>());
  }
  EXPECT_GT(longest_us, 100'000);
}

TEST_F(GateOpsTest, WhereTimingIsSlowThereIsLess) {
  // At one percent a second pays for 10 ms, the beginning for 6: for a few of 2 ms each.
  const auto timed = [&](const Environment& more) {
    const test::Finished finished =
        Log({"--cost", "1"}, SimJob({"--kernels", "10", "--us", "100", "--steps", "400"}), more);
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    return Summary()["totals"]["timed"].get<int>();
  };
  const int usual = timed({});
  // One wait at the start is long, too: who took the GPU's clock for late would find it far behind.
  const int slow = timed({{"DIVVY_CUDA_SIM_FAULTS",
                           "delay:cuStreamWaitValue32_v2@*=1ms,delay:cuStreamSynchronize@2=5ms"}});
  std::printf("%d timings, %d by a slow driver\n", usual, slow);
  EXPECT_LT(slow, 40);
  EXPECT_GT(usual, 2 * slow);
}

TEST_F(GateOpsTest, AProgramFarAheadOfItsGpuIsTimedAtLittleCost) {
  // The driver's queue is full nearly all the time: whoever submits something waits for room.
  const test::Finished finished =
      Log({}, SimJob({"--kernels", "2000", "--us", "100", "--blocks", "8", "--steps", "5"}));
  ASSERT_EQ(finished.exit_status, 0) << finished.err;
  const json stats = Stats().back();
  const auto timed = Summary()["totals"]["timed"].get<double>();
  const auto queries = stats["event_queries"].get<double>();
  std::printf("%g timings, %g queries\n", timed, queries);
  // Not all that are under way are asked for each time.
  EXPECT_LT(queries, 20 * timed);
  if (stats["launches_held"] < 5000) GTEST_SKIP() << "too busy a machine: it was not far ahead";
  EXPECT_GT(timed, 400) << "waiting for room is not what the log costs";
}

TEST_F(GateOpsTest, OneLateStreamKeepsNobodyFromBeingTimed) {
  const test::Finished finished = Log({}, {GATE_PROBE, "late-stream", "400"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  std::map<std::string, int> timed;
  const json summary = Summary();
  for (const json& kernel : summary["kernels"]) timed[kernel["kernel"]] = kernel["timed"];
  EXPECT_EQ(timed["slow"], 0);
  EXPECT_GE(timed["probe"], 8);
  EXPECT_EQ(summary["totals"]["launches"], 402);
}

TEST_F(GateOpsTest, AStreamThatIsHeldBehindOtherWorkSlowsNobody) {
  // As above, but the GPU has 35 ms of work before the kernel whose launch takes 15.
  ASSERT_EQ(Log({}, SimJob({"--kernels", "20", "--us", "5000", "--blocks", "8", "--steps", "1"}),
                {{"DIVVY_CUDA_SIM_FAULTS", "delay:cuLaunchKernel@8=15ms"}})
                .exit_status,
            0);
  EXPECT_EQ(Summary()["processes"][0]["streams_let_go"], 0);
  EXPECT_EQ(Summary()["notes"].size(), 0U) << Summary()["notes"];
}

TEST_F(GateOpsTest, TheLogSaysWhatItTookItself) {
  ASSERT_EQ(Log({}, SimJob({"--kernels", "10", "--us", "100", "--steps", "50"})).exit_status, 0);
  const json usual = Summary();
  const json& process = usual["processes"][0];
  EXPECT_GT(process["timing_seconds"], 0);
  EXPECT_LT(process["timing_seconds"], usual["seconds"]);
  EXPECT_EQ(process["streams_let_go"], 0);
  EXPECT_EQ(usual["notes"].size(), 0U) << usual["notes"];
  ASSERT_EQ(Log({}, SimJob({"--kernels", "4", "--us", "20", "--steps", "10"}),
                {{"DIVVY_CUDA_SIM_FAULTS", "delay:cuLaunchKernel@6=300ms"}})
                .exit_status,
            0);
  EXPECT_EQ(Summary()["processes"][0]["streams_let_go"], 1);
  EXPECT_THAT(Summary()["notes"].dump(), HasSubstr("a stream was held by a timing for longer"));
}

TEST_F(GateOpsTest, WithoutAPlaceForItsLogAProgramRunsAsItWould) {
  const Words job{"train", "--kernels", "2", "--us", "20", "--steps", "2"};
  for (const auto& [log, message] : {std::pair<std::string, std::string>{"", "DIVVY_LOG"},
                                     {directory_ + "/none", "cannot make the kernel log"}}) {
    const test::Finished finished =
        Run(As::kBatch, job, {{"DIVVY_CLASS", "log"}, {"DIVVY_LOG", log}});
    EXPECT_EQ(finished.exit_status, 0);
    EXPECT_THAT(finished.err,
                AllOf(HasSubstr(message), HasSubstr("this program's kernels are not logged")));
    EXPECT_EQ(CoverageIn(finished.err).kernels, 6U);
  }
}

TEST_F(GateOpsTest, TheTableNamesWhatItCutAndWhatItDidNotSee) {
  const Words plain{DIVVY_PATH, "profile", "--ops", "--",   SIM_JOB,
                    "train",    "--steps", "20",    "--us", "20"};
  const test::Finished table = Run(As::kUngated, plain, {{"COLUMNS", "90"}});
  EXPECT_THAT(table.out, AllOf(HasSubstr("210 launches of 1 kind"), HasSubstr("KERNEL"),
                               HasSubstr("job_kernel"), HasSubstr("LAUNCH/S")));
  const test::Finished nothing = Run(As::kUngated, {DIVVY_PATH, "profile", "ops", "--", "true"});
  EXPECT_THAT(nothing.out, HasSubstr("Note: no launch was seen"));
}

TEST_F(GateOpsTest, WrongCommandLinesAreExplained) {
  for (const auto& [options, message] :
       {std::pair<Words, std::string>{{"--", ""}, "cannot run ''"},
        {{}, "what is to be run comes after two dashes"},
        {{"train.py"}, "'train.py' is no option of 'divvy profile --ops'"},
        {{"--trace", directory_ + "/none/t.json", "--", "true"},
         "--trace " + directory_ + "/none/t.json: cannot write to"},
        {{"--save", directory_, "--", "true"}, "is a folder"},
        {{"--cost", "0", "--", "true"}, "--cost"}}) {
    Words words{DIVVY_PATH, "profile", "--ops"};
    words.insert(words.end(), options.begin(), options.end());
    const test::Finished finished = Run(As::kUngated, words);
    EXPECT_NE(finished.exit_status, 0);
    EXPECT_THAT(finished.err, HasSubstr(message));
  }
}

TEST(OpsTraceTest, AnyNameMakesGoodJson) {
  gate::OpsRecord record(true);
  const std::size_t process =
      record.AddProcess({.pid = 5, .program = "tr\"ain\\\n\x80", .start_ns = 1'000'000});
  gate::OpFacts facts;
  facts.shape = {.handle = 1, .grid = {1, 2, 3}, .block = {4, 5, 6}, .shared_bytes = 7};
  const std::size_t op = record.AddOp(process, facts, std::string(5000, 'x') + "\"");
  record.AddSample(op, {.start_ns = 1'500'000, .stream = 0xabc, .duration_ns = 2'500, .device = 1});
  record.AddSample(op, {.start_ns = 900'000, .stream = 2, .duration_ns = 1, .device = 0});
  // The next on the first stream begins, by its clock, 10 ns before the first ends.
  record.AddSample(op, {.start_ns = 1'502'490, .stream = 0xabc, .duration_ns = 5, .device = 1});
  record.CountTo(op, 10);
  record.EndInterval(2'000'000);
  std::string text;
  gate::WriteOpsTrace(
      record, [](const std::string& name) { return "\"\\\t\x01" + name; },
      [&](std::string_view piece) { text += piece; });
  const json trace = json::parse(text);
  std::map<std::string, std::vector<json>> by_kind;
  for (const json& event : trace["traceEvents"]) by_kind[event["ph"]].push_back(event);
  ASSERT_EQ(by_kind["X"].size(), 3U);
  EXPECT_DOUBLE_EQ(by_kind["X"][0]["ts"], 500);
  EXPECT_DOUBLE_EQ(by_kind["X"][0]["dur"], 2.49) << "slices of a track that cross are dropped";
  EXPECT_DOUBLE_EQ(by_kind["X"][1]["dur"], 0.005);
  EXPECT_EQ(by_kind["X"][0]["args"]["block"], "4x5x6");
  EXPECT_DOUBLE_EQ(by_kind["X"][2]["ts"], 0) << "never before the beginning";
  EXPECT_NE(by_kind["X"][0]["tid"], by_kind["X"][2]["tid"]) << "two streams, two tracks";
  EXPECT_EQ(by_kind["M"][1]["args"]["name"], "GPU 1, stream 0xabc");
  ASSERT_EQ(by_kind["C"].size(), 1U);
  EXPECT_DOUBLE_EQ(by_kind["C"][0]["args"]["launches"], 10'000);
}

}  // namespace
}  // namespace divvy::tests
