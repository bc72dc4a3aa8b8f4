// Fails and kills `divvy apply` at every NVML call and at every call that
// touches its journal. Afterwards, and after `divvy apply --recover` where a
// journal was left, the layout must be the old one or the new one, and nobody
// who was busy may have been touched.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using Environment = std::map<std::string, std::string>;

// A change of nine steps around an instance that somebody uses.
constexpr const char* kRecut = R"(version: 1
gpus:
  - gpu: 0
    kind: H200-141GB
    instances: [{profile: 1g.18gb, count: 7}]
)";

// Two GPUs: one with split and missing compute instances, cut anew around a
// busy instance; the other taken into MIG mode first.
constexpr const char* kTwoGpus = R"(version: 1
gpus:
  - gpu: 0
    kind: A100-40GB
    instances: [{profile: 3g.20gb, start: 4}, {profile: 4g.20gb}]
  - gpu: 1
    kind: A100-40GB
    instances: [{profile: 3g.20gb, count: 2}]
)";

struct Scenario {
  const char* name;  // Also how GoogleTest prints it.
  const char* plan;
  int busy_start;  // On GPU 0.
  int least_steps;
  void (*prepare)(SimulatedNode& node);
};

void PrintTo(const Scenario& scenario, std::ostream* out) { *out << scenario.name; }

void PrepareRecut(SimulatedNode& node) {
  node.Sim("init", {"--gpus", "H200-141GB+mig"});
  for (const char* start : {"0", "2", "4"}) {
    node.Sim("create", {"--profile", "2g.35gb", "--start", start});
  }
  node.Sim("create", {"--profile", "1g.18gb", "--start", "6"});
  node.Sim("start", {"--start", "6", "--pid", "4242"});
}

void PrepareTwoGpus(SimulatedNode& node) {
  node.Sim("init", {"--gpus", "A100-40GB+mig,A100-40GB"});
  node.Sim("create", {"--profile", "3g.20gb", "--start", "4"});
  node.Sim("start", {"--start", "4", "--pid", "4242"});
  node.Sim("create", {"--profile", "2g.10gb", "--start", "0"});
  node.Sim("create", {"--profile", "1g.5gb", "--start", "2"});
  node.Sim("create", {"--profile", "1g.5gb", "--start", "3"});
  node.SplitCompute(0, 0);
  node.DropCompute(0, 3);
}

const Scenario kScenarios[] = {{"Recut", kRecut, 6, 9, PrepareRecut},
                               {"TwoGpus", kTwoGpus, 4, 7, PrepareTwoGpus}};

// A sweep starts thousands of programs. Looking for leaks, watching globals and remembering where
// memory came from is five sixths of what a start takes. Other tests do all of it.
constexpr const char* kQuickStart = "detect_leaks=0:report_globals=0:malloc_context_size=0";

// One scenario set up, applied once without fault to learn the new layout, and
// put back.
class Sweep {
 public:
  explicit Sweep(const Scenario& scenario) : scenario_(scenario) {
    setenv("ASAN_OPTIONS", kQuickStart, 1);
    scenario.prepare(node_);
    plan_ = node_.Write("plan.yaml", scenario.plan);
    before_ = node_.Layout();
    busy_ = node_.Identity(0, scenario.busy_start);
    node_.Save();
    calls_ = node_.CountCalls(Apply());
    after_ = node_.Layout();
    EXPECT_NE(before_, after_);
    EXPECT_FALSE(busy_.empty());
    node_.Restore();
    const std::string steps = node_.Divvy({"apply", plan_, "--dry-run"}).out;
    EXPECT_THAT(steps, ::testing::HasSubstr(std::to_string(scenario.least_steps) + ". "));
  }

  int calls() const { return calls_; }
  SimulatedNode& node() { return node_; }
  std::vector<std::string> Apply() const { return {"apply", plan_, "--yes"}; }

  // Runs apply in `faulty`, recovers where needed, and checks what is left.
  void Try(const Environment& faulty, const std::string& what) {
    node_.Restore();
    const Finished applied = node_.Divvy(Apply(), faulty);
    EXPECT_TRUE(applied.signal == 9 || (applied.exit_status >= 0 && applied.exit_status <= 2))
        << what << ": " << applied.err;
    if (applied.exit_status == 0) {
      EXPECT_EQ(node_.Layout(), after_) << what;
    }
    if (applied.exit_status == 2) {  // "Nothing was tried."
      EXPECT_EQ(node_.Layout(), before_) << what;
    }
    CheckRecovers(what + "\n" + applied.err);
  }

  // Brings the node to a standing layout with --recover and checks it.
  void CheckRecovers(const std::string& what) {
    if (node_.HasJournal()) {
      const Finished recovered = node_.Divvy({"apply", "--recover"});
      EXPECT_EQ(recovered.exit_status, 0) << what << "\n--recover: " << recovered.err;
    }
    EXPECT_FALSE(node_.HasJournal()) << what;
    const std::string layout = node_.Layout();
    EXPECT_TRUE(layout == before_ || layout == after_) << what << "\nleft " << layout;
    EXPECT_EQ(node_.Identity(0, scenario_.busy_start), busy_) << what << ": busy instance touched";
    // A hundred times the same complaint helps nobody.
    if (::testing::Test::HasFailure()) GTEST_SKIP() << "stopped at the first failure";
  }

 private:
  const Scenario& scenario_;
  SimulatedNode node_;
  std::string plan_;
  std::string before_;
  std::string after_;
  std::string busy_;
  int calls_ = 0;
};

using SweepParam = std::tuple<Scenario, std::string>;

std::string SweepName(const ::testing::TestParamInfo<SweepParam>& param) {
  std::string name = std::string(std::get<0>(param.param).name) + std::get<1>(param.param);
  std::erase_if(name, [](char c) { return c == '-' || c == '_'; });
  return name;
}

class NvmlFaultSweep : public ::testing::TestWithParam<SweepParam> {};

TEST_P(NvmlFaultSweep, LeavesTheOldLayoutOrTheNew) {
  const auto& [scenario, action] = GetParam();
  Sweep sweep(scenario);
  ASSERT_GT(sweep.calls(), 100);
  // Every try starts processes under sanitizers. One sweep tries every call, the others one in
  // three: killed before or after it, of one GPU or two, they set out from different ones.
  const std::string_view name = scenario.name;
  const bool every = name == kScenarios[0].name && action == "UNKNOWN";
  const int first = every ? 1 : 1 + static_cast<int>(action.size() + name.size()) % 3;
  for (int n = first; n <= sweep.calls() && !HasFailure(); n += every ? 1 : 3) {
    const std::string rule = "*@" + std::to_string(n) + "=" + action;
    sweep.Try({{"DIVVY_NVML_SIM_FAULTS", rule}}, rule);
  }
}

// A second GPU adds calls, not kinds of them: these two ask enough of both scenarios, the
// others of one.
INSTANTIATE_TEST_SUITE_P(EveryCall, NvmlFaultSweep,
                         ::testing::Combine(::testing::ValuesIn(kScenarios),
                                            ::testing::Values("UNKNOWN", "kill-after")),
                         SweepName);
INSTANTIATE_TEST_SUITE_P(EveryCallOfOneGpu, NvmlFaultSweep,
                         ::testing::Combine(::testing::Values(kScenarios[0]),
                                            ::testing::Values("NOT_SUPPORTED", "kill")),
                         SweepName);

class DiskFaultSweep : public ::testing::TestWithParam<SweepParam> {};

TEST_P(DiskFaultSweep, LeavesTheOldLayoutOrTheNew) {
  const auto& [scenario, action] = GetParam();
  Sweep sweep(scenario);
  const std::string count = sweep.node().dir() + ".count";
  Environment faulty = {{"LD_PRELOAD", FAULTY_FILES_LIBRARY},
                        // The sanitizer wants to be first; here it cannot be.
                        {"ASAN_OPTIONS", std::string("verify_asan_link_order=0:") + kQuickStart},
                        {"FAULTY_FILES_DIR", sweep.node().state_dir()},
                        {"FAULTY_FILES_COUNT", count},
                        {"FAULTY_FILES_ACTION", action}};
  ASSERT_EQ(sweep.node().Divvy(sweep.Apply(), faulty).exit_status, 0);
  int calls = 0;
  std::ifstream(count) >> calls;
  // A write and an fsync before and after each step at the least.
  ASSERT_GT(calls, 4 * scenario.least_steps);
  for (int n = 1; n <= calls && !HasFailure(); ++n) {
    faulty["FAULTY_FILES_AT"] = std::to_string(n);
    sweep.Try(faulty, std::string(action) + " at file call " + std::to_string(n));
  }
  std::remove(count.c_str());
}

INSTANTIATE_TEST_SUITE_P(EveryCall, DiskFaultSweep,
                         ::testing::Combine(::testing::ValuesIn(kScenarios),
                                            ::testing::Values("error", "kill-before", "kill-after",
                                                              "torn")),
                         SweepName);

// A crash while recovering from a crash: any two points in time.
TEST(DoubleFaultSweep, RecoveryCanBeCutShortToo) {
  std::mt19937 random(20261115);
  for (const Scenario& scenario : kScenarios) {
    Sweep sweep(scenario);
    const auto calls = static_cast<unsigned>(sweep.calls());
    for (int trial = 0; trial < 60 && !HasFailure(); ++trial) {
      const std::string first = "*@" + std::to_string(1 + random() % calls) + "=kill-after";
      // Recovery makes fewer calls than apply; beyond them nothing fails.
      const std::string second = "*@" + std::to_string(1 + random() % calls) +
                                 (random() % 2 == 0 ? "=kill-after" : "=UNKNOWN");
      sweep.node().Restore();
      sweep.node().Divvy(sweep.Apply(), {{"DIVVY_NVML_SIM_FAULTS", first}});
      sweep.node().Divvy({"apply", "--recover"}, {{"DIVVY_NVML_SIM_FAULTS", second}});
      sweep.CheckRecovers(first + " then " + second);
    }
  }
}

// The simulator's log is the witness: no destroy call ever named the busy one,
// not even one that NVML would have refused.
TEST(FaultSweepTest, NobodyEvenTriesToDestroyABusyInstance) {
  Sweep sweep(kScenarios[0]);
  ASSERT_EQ(sweep.node().Divvy(sweep.Apply()).exit_status, 0);
  std::istringstream log(sweep.node().Log());
  int destroyed = 0;
  for (std::string line; std::getline(log, line);) {
    if (line.find("nvmlGpuInstanceDestroy ") == std::string::npos) continue;
    ++destroyed;
    EXPECT_EQ(line.find(" start=6 "), std::string::npos) << line;
  }
  EXPECT_EQ(destroyed, 3);
}

}  // namespace
}  // namespace divvy::test
