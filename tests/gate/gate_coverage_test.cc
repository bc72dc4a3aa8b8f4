#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>
#include <utility>

#include "gate/gate_fixture.h"

// That the gate sees every launch however a program comes to it, and changes nothing else about it.

namespace divvy::tests {
namespace {

constexpr int kSteps = 4;
constexpr int kKernels = 3;

struct Path {
  As as;
  const char* lookup;
  const char* stream;
  bool graph;
  const char* launch = "plain";
};

class GateCoverageTest : public GateTest {
 protected:
  void Check(const Path& path, const Environment& more = {}) const {
    const bool inference = path.as == As::kLatency;
    const Words words{std::string(path.lookup) == "linked" ? SIM_JOB_LINKED : SIM_JOB,
                      inference ? "infer" : "train",
                      "--lookup",
                      path.lookup,
                      "--stream",
                      path.stream,
                      "--graph",
                      path.graph ? "1" : "0",
                      "--launch",
                      path.launch,
                      "--kernels",
                      std::to_string(kKernels),
                      "--us",
                      "50",
                      "--steps",
                      std::to_string(kSteps)};
    const test::Finished finished = Run(path.as, words, more);
    SCOPED_TRACE(std::string(path.lookup) + ", stream " + path.stream + ", " + path.launch +
                 (path.graph ? ", graph" : "") + (inference ? ", latency" : ", batch"));
    ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_EQ(ResultOf(finished)["n"], kSteps);
    const Coverage seen = CoverageIn(finished.err);
    constexpr unsigned kRuns = kSteps + 1;  // One to warm up.
    EXPECT_EQ(seen.kernels, path.graph ? kKernels : kRuns * kKernels);
    EXPECT_EQ(seen.captured, path.graph ? kKernels : 0U);
    EXPECT_EQ(seen.graphs, path.graph ? kRuns : 0U);
    EXPECT_EQ(seen.reports, 1);
    EXPECT_EQ(Stats().back()["kernels"], kRuns * kKernels) << "the driver ran what was launched";
    EXPECT_EQ(seen.requests, inference ? kRuns : 0U) << "each from its first launch to its wait";
  }

  void CheckNeedsOnlyTheCLibrary(const std::string& library) const {
    const test::Finished finished = Run(As::kUngated, {"/usr/bin/env", "readelf", "-dW", library});
    ASSERT_EQ(finished.exit_status, 0) << finished.err;
    std::istringstream lines(finished.out);
    int needed = 0;
    for (std::string line; std::getline(lines, line);) {
      if (line.find("(NEEDED)") == std::string::npos) continue;
      ++needed;
      EXPECT_TRUE(line.find("[libc.so.") != std::string::npos ||
                  line.find("[ld-linux") != std::string::npos ||
                  line.find("[libdl.so.") != std::string::npos ||
                  line.find("[libpthread.so.") != std::string::npos)
          << line;
    }
    EXPECT_GE(needed, 1);
  }

  // By name, in order.
  std::vector<std::string> Exports(const std::string& library) const {
    const test::Finished finished = Run(
        As::kUngated, {"/usr/bin/env", "nm", "-D", "--defined-only", "--format=posix", library});
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    std::vector<std::string> names;
    std::istringstream lines(finished.out);
    for (std::string line; std::getline(lines, line);)
      names.push_back(line.substr(0, line.find(' ')));
    EXPECT_FALSE(names.empty());
    return names;
  }

  void CheckStreams(const char* lookup, const char* launch = "plain",
                    const Environment& more = {}) const {
    for (const As as : {As::kBatch, As::kLatency}) {
      for (const char* stream : {"default", "own", "ptds"}) {
        Check({as, lookup, stream, false, launch}, more);
        if (std::string(stream) != "default") Check({as, lookup, stream, true, launch}, more);
      }
    }
  }
};

TEST_F(GateCoverageTest, EveryLaunchOfAProgramThatAsksTheDriver) { CheckStreams("getproc"); }

TEST_F(GateCoverageTest, EveryLaunchOfAProgramThatAsksTheLoader) { CheckStreams("dlsym"); }

TEST_F(GateCoverageTest, EveryLaunchOfAProgramThatIsLinked) { CheckStreams("linked"); }

TEST_F(GateCoverageTest, EveryLaunchWithAttributesOrOfCooperatingBlocks) {
  CheckStreams("dlsym", "ex");  // As Triton.
  for (const As as : {As::kBatch, As::kLatency}) {
    for (const char* lookup : {"getproc", "linked"}) Check({as, lookup, "ptds", false, "ex"});
    for (const char* stream : {"own", "ptds"}) Check({as, "getproc", stream, false, "cooperative"});
  }
}

TEST_F(GateCoverageTest, EveryLaunchUnderOlderDrivers) {
  // Of CUDA 11.8, which does not tell what kernels are called, and of 12.4.
  const Environment eleven{{"DIVVY_CUDA_SIM_SPEC", "driver=11080"},
                           {"DIVVY_CUDA_SIM_FAULTS", "no:cuKernelGetName,no:cuFuncGetName"}};
  CheckStreams("getproc-v1", "plain", eleven);
  Check({As::kBatch, "getproc-v1", "ptds", false, "ex"}, eleven);
  CheckStreams("getproc", "plain", {{"DIVVY_CUDA_SIM_SPEC", "driver=12040"}});
}

TEST_F(GateCoverageTest, RequestsAreSeenHoweverTheirEndIsAwaited) {
  for (const char* sync : {"stream", "event", "ctx", "query", "query-event", "memcpy", "host"}) {
    for (const char* stream : {"default", "own", "ptds"}) {
      const test::Finished finished =
          Run(As::kLatency, {"infer", "--sync", sync, "--stream", stream, "--kernels", "2", "--us",
                             "100", "--requests", "5"});
      SCOPED_TRACE(std::string(sync) + ", stream " + stream);
      ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
      EXPECT_EQ(CoverageIn(finished.err).requests, 6U);
    }
  }
}

TEST_F(GateCoverageTest, EveryFormOfACallDoesTheSame) {
  for (const As as : {As::kLatency, As::kBatch}) {
    const test::Finished finished = Run(as, {GATE_PROBE, "forms"});
    ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    const Coverage seen = CoverageIn(finished.err);
    constexpr unsigned kCaptured = 1 + 2 + 3 + 4 + 5 + 6;
    EXPECT_EQ(seen.captured, kCaptured);
    EXPECT_EQ(seen.kernels, kCaptured + 16);
    EXPECT_EQ(seen.graphs, 6U);
    EXPECT_EQ(seen.requests, as == As::kLatency ? 6U + 16U : 0U);
    EXPECT_EQ(Stats().back()["kernels"], seen.kernels) << "the driver ran what was launched";
  }
}

TEST_F(GateCoverageTest, EveryHookIsCalledBySomeTest) {
  const std::string path = directory_ + "/called";
  const Environment asked{{"DIVVY_PROBE_CALLED", path}, {"DIVVY_MEMORY_BYTES", "1073741824"}};
  for (const Words& words :
       {Words{"forms"}, Words{"contexts"}, Words{"memory", asked.at("DIVVY_MEMORY_BYTES")}}) {
    Words command{GATE_PROBE};
    command.insert(command.end(), words.begin(), words.end());
    const test::Finished finished = Run(As::kBatch, command, asked);
    ASSERT_EQ(finished.exit_status, 0) << words[0] << ": " << finished.out << finished.err;
  }
  std::set<std::string> called;
  std::ifstream file(path);
  for (std::string name; std::getline(file, name);) called.insert(name);
  for (const std::string& name : Exports(GATE_LIBRARY)) {
    EXPECT_TRUE(!name.starts_with("cu") || called.contains(name)) << name;
  }
}

// The table of kinds has room for 16384.
TEST_F(GateCoverageTest, KernelsOfMoreKindsThanThereIsRoomForAreChargedAndHeldLikeNewOnes) {
  ASSERT_NE(JoinAsLatencyJob(), nullptr);
  const test::Finished finished = Run(As::kBatch, {GATE_PROBE, "kinds", "40000"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  constexpr double kNewUs = 50;
  EXPECT_NEAR(CoverageIn(finished.err).gpu_s, 40'000 * kNewUs / 1e6, 0.1);
  EXPECT_GT(CoverageIn(finished.err).markers, 18'000U) << "one for every 100 us";
}

TEST_F(GateCoverageTest, AProgramThatEndsItsContextLeavesNoBoard) {
  for (const As as : {As::kLatency, As::kBatch}) {
    const test::Finished finished = Run(as, {GATE_PROBE, "reset"});
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_NE(access(BoardPath().c_str(), F_OK), 0);
  }
}

// It waits for its peers, not for its turn.
TEST_F(GateCoverageTest, CollectiveOperationsAreChargedToo) {
  const test::Finished finished =
      Run(As::kBatch, {"train", "--nccl", "--kernels", "4", "--us", "1000", "--steps", "50"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  EXPECT_NEAR(CoverageIn(finished.err).gpu_s, 0.2, 0.04);
}

TEST_F(GateCoverageTest, ManyThreadsAreSeen) {
  const test::Finished finished =
      Run(As::kLatency, {"infer", "--threads", "4", "--stream", "own", "--kernels", "2", "--us",
                         "50", "--requests", "10"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  EXPECT_EQ(CoverageIn(finished.err).kernels, 4U * 11 * 2);
}

TEST_F(GateCoverageTest, AJobOfNoClassIsCountedAndLeftAlone) {
  const test::Finished finished = Run(
      As::kBatch, {"train", "--kernels", "2", "--us", "50", "--steps", "3"}, {{"DIVVY_CLASS", ""}});
  ASSERT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_EQ(CoverageIn(finished.err).kernels, 8U);
  EXPECT_EQ(CoverageIn(finished.err).mode, "");
}

TEST_F(GateCoverageTest, AnUnknownClassIsNamed) {
  const test::Finished finished =
      Run(As::kBatch, {"train", "--kernels", "1", "--us", "50", "--steps", "1"},
          {{"DIVVY_CLASS", "bulk"}});
  EXPECT_EQ(finished.exit_status, 0);
  EXPECT_NE(finished.err.find("DIVVY_CLASS=bulk: must be latency, batch or log"), std::string::npos)
      << finished.err;
}

TEST_F(GateCoverageTest, ExitStatusStays) {
  for (const As as : {As::kLatency, As::kBatch}) {
    EXPECT_EQ(Run(as, {GATE_PROBE, "exit", "0"}).exit_status, 0);
    EXPECT_EQ(Run(as, {GATE_PROBE, "exit", "7"}).exit_status, 7);
  }
}

TEST_F(GateCoverageTest, AForkedChildSpeaksOnlyForItself) {
  for (const As as : {As::kLatency, As::kBatch}) {
    const test::Finished finished = Run(as, {GATE_PROBE, "fork"});
    ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_EQ(CoverageIn(finished.err).reports, 1) << finished.err;
    EXPECT_EQ(CoverageIn(finished.err).kernels, 11U);
    const test::Finished loader =
        Run(as, {"train", "--fork-child", "--kernels", "2", "--us", "50", "--steps", "20"});
    EXPECT_EQ(loader.exit_status, 0) << loader.err;
    EXPECT_EQ(ResultOf(loader)["child_status"], 0);
  }
}

TEST_F(GateCoverageTest, AChildForkedDuringAnAllocationDoesNotWaitForIt) {
  for (const As as : {As::kLatency, As::kBatch}) {
    const test::Finished finished =
        Run(as, {GATE_PROBE, "fork-while-allocating"}, {{"DIVVY_CUDA_SIM_SPEC", "memory=256GiB"}});
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  }
}

TEST_F(GateCoverageTest, WhatTheLoaderFindsNextGoesByTheCaller) {
  const test::Finished finished = Run(As::kBatch, {GATE_PROBE, "neighbours"});
  EXPECT_EQ(finished.exit_status, 0) << finished.out;
}

TEST_F(GateCoverageTest, WithoutADriverAProgramRunsAsItWould) {
  const Environment nowhere{{"LD_LIBRARY_PATH", directory_}, {"DIVVY_REPORT", ""}};
  const Words words{"train", "--steps", "1", "--kernels", "1"};
  const test::Finished without = Run(As::kUngated, words, nowhere);
  const test::Finished with = Run(As::kBatch, words, nowhere);
  EXPECT_EQ(with.exit_status, without.exit_status);
  EXPECT_EQ(with.err, without.err);
  const test::Finished other = Run(As::kLatency, {GATE_PROBE, "neighbours"}, nowhere);
  EXPECT_EQ(other.exit_status, 0) << other.out;
}

TEST_F(GateCoverageTest, TheQuotaIsKeptByEveryAllocation) {
  constexpr std::size_t kQuota = std::size_t{1} << 30;
  for (const As as : {As::kLatency, As::kBatch}) {
    const test::Finished finished = Run(as, {GATE_PROBE, "memory", std::to_string(kQuota)},
                                        {{"DIVVY_MEMORY_BYTES", std::to_string(kQuota)}});
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  }
  const test::Finished job =
      Run(As::kBatch, {"train", "--alloc", std::to_string(kQuota + 1), "--steps", "1"},
          {{"DIVVY_MEMORY_BYTES", std::to_string(kQuota)}});
  EXPECT_EQ(ResultOf(job)["first_error"], 2);
  EXPECT_NE(job.err.find("beyond this job's --memory of 1073741824 bytes"), std::string::npos);
  EXPECT_EQ(job.err.find("no launch was seen"), std::string::npos) << "that was not why";
}

TEST_F(GateCoverageTest, OnlyTheWaitThatCoversARequestEndsIt) {
  const test::Finished finished = Run(As::kLatency, {GATE_PROBE, "waits"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  EXPECT_EQ(CoverageIn(finished.err).requests, 10U) << finished.err;
  EXPECT_GT(CoverageIn(finished.err).p99_ms, 19.0) << "with the CPU away: " << finished.err;
}

TEST_F(GateCoverageTest, CapturesAreLeftAlone) {
  // With a latency job on the board, so that the trainer's launches are marked and timed; and once
  // where the gate itself waits for events, which in itself would break a capture.
  gate::Slot* const slot = JoinAsLatencyJob();
  const Environment on_the_cpu{{"DIVVY_CUDA_SIM_FAULTS", "cuMemHostRegister_v2@*=801"}};
  for (const auto& [as, more] : {std::pair{As::kBatch, Environment{}},
                                 {As::kBatch, on_the_cpu},
                                 {As::kLatency, Environment{}}}) {
    const test::Finished finished = Run(as, {GATE_PROBE, "capture"}, more);
    EXPECT_EQ(finished.exit_status, 0) << finished.out << finished.err;
    EXPECT_EQ(Stats().back()["captures_broken"], 0);
    EXPECT_EQ(CoverageIn(finished.err).captured, 100U);
    EXPECT_EQ(CoverageIn(finished.err).markers > 0, as == As::kBatch);
  }
  EXPECT_EQ(slot->level.load(), gate::kOpen);
}

TEST_F(GateCoverageTest, RequestsMarkedInCAndCppAreCountedAsMarked) {
  const test::Finished finished = Run(As::kLatency, {GATE_PROBE, "marks", "20"});
  ASSERT_EQ(finished.exit_status, 0) << finished.out << finished.err;
  EXPECT_EQ(CoverageIn(finished.err).requests, 21U) << "and the one before the first mark";
  const test::Finished without = Run(As::kUngated, {GATE_PROBE, "marks", "4"});
  EXPECT_EQ(without.exit_status, 0) << "marks of a program without the gate do nothing";
}

TEST_F(GateCoverageTest, PythonFindsTheMarksOrDoesWithout) {
  const std::string script =
      "import time, divvy_gate\n"
      "divvy_gate.begin(); divvy_gate.end()\n"
      "with divvy_gate.request(arrival=time.monotonic() - 1): pass\n"
      "try:\n"
      "    with divvy_gate.request(): raise KeyError\n"
      "except KeyError: print('loaded' if divvy_gate.is_loaded() else 'absent')\n";
  const Environment path{{"PYTHONPATH", std::string(DIVVY_SOURCE_DIR) + "/python"},
                         {"PYTHONDONTWRITEBYTECODE", "1"},
                         {"DIVVY_REPORT", ""}};
  const Words command{"/usr/bin/env", "python3", "-c", script};
  const test::Finished without = Run(As::kUngated, command, path);
  EXPECT_EQ(without.out, "absent\n") << without.err;
  const test::Finished with = Run(As::kLatency, command, path);
  EXPECT_EQ(with.out, "loaded\n") << with.err;
}

TEST_F(GateCoverageTest, TheLibraryNeedsNothingButTheCLibrary) {
  CheckNeedsOnlyTheCLibrary(GATE_LIBRARY);
}

TEST_F(GateCoverageTest, WhatAPlainCompilerMakesIsTheSameLibrary) {
  const std::string library = directory_ + "/libdivvy_gate.so";
  constexpr unsigned kCompilesForSeconds = 600;
  alarm(kCompilesForSeconds);
  const test::Finished built =
      Run(As::kUngated,
          {"/bin/sh", std::string(DIVVY_SOURCE_DIR) + "/src/gate/library/build.sh", library});
  ASSERT_EQ(built.exit_status, 0) << built.err;
  CheckNeedsOnlyTheCLibrary(library);
  EXPECT_EQ(Exports(library), Exports(GATE_LIBRARY));
  for (const As as : {As::kBatch, As::kLatency})
    Check({as, "getproc", "own", true}, {{"LD_PRELOAD", library}});
}

TEST_F(GateCoverageTest, TheLibraryExportsItsHooksAndNothingElse) {
  int hooks = 0;
  for (const std::string& name : Exports(GATE_LIBRARY)) {
    if (name.starts_with("cu")) {
      ++hooks;
      continue;
    }
    EXPECT_TRUE(name == "dlsym" || name == "ioctl" || name == "divvy_request_begin" ||
                name == "divvy_request_end")
        << name;
  }
  EXPECT_GT(hooks, 30);
}

}  // namespace
}  // namespace divvy::tests
