// Apply and Recover in this process, on the NVML simulator. What needs a process
// to die is in tests/integration.

#include "device/apply.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/node.h"
#include "plan/plan.h"

namespace divvy::device {
namespace {

// Counts what it hears; cancels after some steps if told so.
class Listener : public ApplyListener {
 public:
  explicit Listener(int cancel_after = 1 << 30) : cancel_after_(cancel_after) {}

  void OnStepBegins(const Step&, int, int) override {
    if (on_begin) on_begin();
  }
  void OnStepEnds(const Step&, const std::string&) override { ++steps; }
  void OnRollback(const std::string&) override { ++rollbacks; }
  bool Cancelled() override { return rollbacks == 0 && steps >= cancel_after_; }

  int steps = 0;
  int rollbacks = 0;
  std::function<void()> on_begin;

 private:
  int cancel_after_;
};

class ApplyTest : public ::testing::Test {
 protected:
  ApplyTest() {
    std::string pattern = ::testing::TempDir() + "divvy-apply-XXXXXX";
    dir_ = mkdtemp(pattern.data());
    setenv("DIVVY_NVML_SIM_STATE", (dir_ + "/node.json").c_str(), 1);
    setenv("DIVVY_NVML_SIM_GPUS", "H200-141GB+mig", 1);
    setenv("DIVVY_NVML_SIM_LOG", "1", 1);
    nvml_ = std::move(*NvmlLibrary::Open(DIVVY_NVML_SIM_LIBRARY));
  }
  ~ApplyTest() override {
    nvml_.reset();
    std::filesystem::remove_all(dir_);
  }

  // Applies instances of GPU 0, anywhere.
  Result<void> ApplyProfiles(const std::vector<std::string>& profiles, Listener& listener) {
    plan::Plan plan;
    plan.gpus.push_back({.gpu = 0, .kind = "H200-141GB"});
    for (const std::string& profile : profiles) {
      plan.gpus[0].instances.push_back({.profile = profile});
    }
    const auto node = ReadNode(*nvml_);
    if (!node) return Fail(node.error());
    const auto changes = MatchPlan(plan, "plan.yaml", *node, std::nullopt);
    if (!changes) return Fail(changes.error());
    const auto lock = ChangeLock::Acquire(dir_ + "/state");
    if (!lock) return Fail(lock.error());
    return Apply(*nvml_, *lock, dir_ + "/state", "plan.yaml", *changes, listener);
  }

  // The layout without what a new life of an instance changes.
  GpuTarget Layout() { return AsItIs(ReadNode(*nvml_)->gpus[0]); }

  // Puts a process on the first instance of the GPU.
  void StartProcess() {
    const std::string path = dir_ + "/node.json";
    nlohmann::json state = nlohmann::json::parse(std::ifstream(path));
    nlohmann::json& gpu = state.at("gpus").at(0);
    gpu["processes"].push_back({{"pid", 4242},
                                {"name", "python"},
                                {"memory_mib", 0},
                                {"kind", "compute"},
                                {"gpu_instance", gpu.at("instances").at(0).at("id")},
                                {"compute_instance", 0}});
    std::ofstream(path) << state.dump(2);
  }

  // Lines of the simulator's log about this function.
  int CountInLog(const std::string& function) {
    std::ifstream log(dir_ + "/node.json.log");
    int count = 0;
    for (std::string line; std::getline(log, line);) count += line.find(function) != line.npos;
    return count;
  }

  std::string dir_;
  std::unique_ptr<NvmlLibrary> nvml_;
};

TEST_F(ApplyTest, CancellingBetweenAnyTwoStepsGoesAllTheWayBack) {
  Listener first;
  ASSERT_TRUE(ApplyProfiles({"2g.35gb", "2g.35gb", "2g.35gb", "1g.18gb"}, first));
  const GpuTarget before = Layout();
  const std::vector<std::string> seven(7, "1g.18gb");
  for (int after = 0; after < 9; ++after) {
    Listener listener(after);
    const auto applied = ApplyProfiles(seven, listener);
    ASSERT_FALSE(applied) << "cancelled after " << after;
    EXPECT_EQ(applied.error().code, ErrorCode::kAborted);
    EXPECT_EQ(listener.rollbacks, 1);
    EXPECT_EQ(Layout(), before) << "cancelled after " << after;
    EXPECT_FALSE(*ReadUnfinished(dir_ + "/state"));
  }
  Listener listener(9);
  EXPECT_TRUE(ApplyProfiles(seven, listener));
  EXPECT_EQ(listener.steps, 9);
}

// Work that starts between planning and the step: NVML would refuse to destroy
// it, but it is not even asked to.
TEST_F(ApplyTest, LooksAgainJustBeforeItDestroys) {
  Listener first;
  ASSERT_TRUE(ApplyProfiles({"7g.141gb"}, first));
  const GpuTarget before = Layout();
  Listener listener;
  listener.on_begin = [&] {
    StartProcess();
    listener.on_begin = nullptr;
  };
  const auto applied = ApplyProfiles({"3g.71gb"}, listener);
  ASSERT_FALSE(applied);
  EXPECT_NE(applied.error().message.find("process 4242 has started"), std::string::npos);
  EXPECT_EQ(CountInLog("Destroy"), 0);
  EXPECT_EQ(Layout(), before);
}

TEST_F(ApplyTest, NothingToDoLeavesNoJournal) {
  Listener listener;
  ASSERT_TRUE(ApplyProfiles({"7g.141gb"}, listener));
  std::filesystem::remove(dir_ + "/state/journal.last");
  ASSERT_TRUE(ApplyProfiles({"7g.141gb"}, listener));
  EXPECT_FALSE(*ReadLast(dir_ + "/state"));
}

TEST_F(ApplyTest, RecoverWithoutAnUnfinishedChangeFindsNothing) {
  const auto lock = ChangeLock::Acquire(dir_ + "/state");
  Listener listener;
  const auto recovered = Recover(*nvml_, *lock, dir_ + "/state", listener);
  ASSERT_FALSE(recovered);
  EXPECT_EQ(recovered.error().code, ErrorCode::kNotFound);
}

// The process died after the outcome was noted, before the journal was retired.
TEST_F(ApplyTest, RecoverOnlyRetiresAJournalWhoseOutcomeIsKnown) {
  Listener listener;
  ASSERT_TRUE(ApplyProfiles({"3g.71gb"}, listener));
  const GpuTarget after = Layout();
  std::filesystem::rename(dir_ + "/state/journal.last", dir_ + "/state/journal");
  const auto lock = ChangeLock::Acquire(dir_ + "/state");
  EXPECT_EQ(Recover(*nvml_, *lock, dir_ + "/state", listener), Outcome::kApplied);
  EXPECT_EQ(Layout(), after);
  EXPECT_FALSE(*ReadUnfinished(dir_ + "/state"));
}

}  // namespace
}  // namespace divvy::device
