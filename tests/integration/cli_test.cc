// What a user meets on the command line: outputs, errors, exit statuses.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kPlan = R"(version: 1
gpus:
  - gpu: 0
    kind: H200-141GB
    instances: [{profile: 3g.71gb}, {profile: 1g.18gb, count: 2}]
)";

class CliTest : public ::testing::Test {
 protected:
  void Init(const std::string& gpus) { node_.Sim("init", {"--gpus", gpus}); }

  // A plan for this node that must be refused with `message` and leave no trace.
  void ExpectRefused(const std::string& plan, const std::string& message, int status = 2) {
    const std::string before = node_.Layout();
    const std::string path = node_.Write("plan.yaml", plan);
    for (const char* how : {"--dry-run", "--yes"}) {
      const Finished finished = node_.Divvy({"apply", path, how});
      EXPECT_EQ(finished.exit_status, status) << plan << finished.err;
      EXPECT_THAT(finished.err, AllOf(StartsWith("divvy: "), HasSubstr(message))) << plan;
    }
    EXPECT_EQ(node_.Layout(), before);
    EXPECT_FALSE(node_.HasJournal());
  }

  SimulatedNode node_;
};

TEST_F(CliTest, GpusShowsLayoutInstancesAndProcesses) {
  Init("H200-141GB+mig,A30-24GB");
  node_.Sim("create", {"--gpu", "0", "--profile", "3g.71gb", "--start", "4"});
  node_.Sim("start", {"--gpu", "0", "--start", "4", "--pid", "4242", "--name", "train.py"});
  const Finished gpus = node_.Divvy({"gpus"});
  EXPECT_EQ(gpus.exit_status, 0);
  EXPECT_THAT(gpus.out, HasSubstr("|........|........|........|........|3g.71gb     "));
  EXPECT_THAT(gpus.out, HasSubstr("4242 train.py"));
  EXPECT_THAT(gpus.out, HasSubstr("4x 1g.18gb (at 0 1 2 3)"));
  EXPECT_THAT(gpus.out, HasSubstr("MIG disabled"));
  EXPECT_THAT(gpus.out, Not(HasSubstr("\x1b["))) << "colour in a pipe";
}

TEST_F(CliTest, GpusJsonIsWholeAndTrue) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "2g.35gb", "--start", "2"});
  const json node = json::parse(node_.Divvy({"gpus", "-o", "json"}).out);
  const json& gpu = node.at("gpus").at(0);
  EXPECT_EQ(gpu.at("kind"), "H200-141GB");
  EXPECT_EQ(gpu.at("instances").at(0).at("profile"), "2g.35gb");
  EXPECT_THAT(gpu.at("instances").at(0).at("compute_instances").at(0).at("uuid"),
              StartsWith("MIG-"));
  EXPECT_EQ(gpu.at("profiles").at(0).at("free_starts"), json({0, 1, 4, 5, 6}));
}

TEST_F(CliTest, GpusShowsAGpuInstanceThatNoMigListingShows) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  // Killed between a GPU instance and its compute instance.
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlGpuInstanceCreateComputeInstance@1=kill"}});
  const Finished gpus = node_.Divvy({"gpus"});
  EXPECT_THAT(gpus.out, HasSubstr("no compute instance"));
  EXPECT_THAT(gpus.err, HasSubstr("unfinished"));
}

TEST_F(CliTest, AnOrdinaryUserSeesWhatNvmlShowsHim) {
  Init("H200-141GB+mig");
  const Finished gpus = node_.Divvy({"gpus"}, {{"DIVVY_NVML_SIM_UNPRIVILEGED", "1"}});
  EXPECT_EQ(gpus.exit_status, 0) << gpus.err;
  EXPECT_THAT(gpus.out, HasSubstr("privileged users only"));
  const std::string plan = node_.Write("plan.yaml", kPlan);
  const Finished apply =
      node_.Divvy({"apply", plan, "--yes"}, {{"DIVVY_NVML_SIM_UNPRIVILEGED", "1"}});
  EXPECT_EQ(apply.exit_status, 1);
  EXPECT_THAT(node_.Layout(), "mig\n");
}

TEST_F(CliTest, WhatMayNotBeReadIsNotTakenForEmpty) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@3=kill"}});
  const std::string before = node_.Layout();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"apply", "--recover"},
                                                {"apply", plan, "--dry-run"},
                                                {"fit", "1g.18gb"}}) {
    const Finished refused = node_.Divvy(words, {{"DIVVY_NVML_SIM_UNPRIVILEGED", "1"}});
    EXPECT_EQ(refused.exit_status, 1) << words[0] << refused.out;
    EXPECT_THAT(refused.err, HasSubstr("privileged")) << words[0];
  }
  EXPECT_TRUE(node_.HasJournal());
  EXPECT_EQ(node_.Layout(), before);
}

TEST_F(CliTest, AGpuThatCannotBeReadDoesNotHideTheOthers) {
  Init("H200-141GB+mig:2");
  const Finished gpus =
      node_.Divvy({"gpus"}, {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceGetUUID@1=GPU_IS_LOST"}});
  EXPECT_EQ(gpus.exit_status, 0);
  EXPECT_THAT(gpus.out, AllOf(HasSubstr("GPU_IS_LOST"), HasSubstr("GPU 1  NVIDIA H200")));
  const Finished unopened = node_.Divvy(
      {"gpus"}, {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceGetHandleByIndex_v2@1=GPU_IS_LOST"}});
  EXPECT_THAT(unopened.out, AllOf(HasSubstr("GPU_IS_LOST"), HasSubstr("GPU 1  NVIDIA H200")));
}

TEST_F(CliTest, AGpuWithoutMigIsShownAndLeftAlone) {
  Init("H200-141GB");
  const std::map<std::string, std::string> no_mig = {
      {"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceGetMigMode@*=NOT_SUPPORTED"}};
  EXPECT_THAT(node_.Divvy({"gpus"}, no_mig).out, HasSubstr("MIG not available"));
  const Finished as_json = node_.Divvy({"gpus", "-o", "json"}, no_mig);
  EXPECT_EQ(as_json.exit_status, 0) << as_json.err;
  const std::string plan = node_.Write("plan.yaml", kPlan);
  EXPECT_THAT(node_.Divvy({"apply", plan, "--dry-run"}, no_mig).err, HasSubstr("cannot be cut"));
}

// The terminal goes away in the middle of a change.
TEST_F(CliTest, AChangeDoesNotStopBecauseNobodyListens) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  for (const char* listener : {"2>/dev/full", "2>&1 >/dev/null | true"}) {
    node_.Divvy({"apply",
                 node_.Write("none.yaml",
                             "version: 1\ngpus: [{gpu: 0, kind: h200, "
                             "instances: []}]\n"),
                 "--yes"});
    RunProgram({"/bin/sh", "-c", std::string(DIVVY_PATH) + " apply " + plan + " --yes " + listener},
               node_.Environment());
    EXPECT_THAT(node_.Layout(), HasSubstr("3g.71gb@4[3@0]")) << listener;
    EXPECT_FALSE(node_.HasJournal()) << listener;
  }
}

TEST_F(CliTest, ClosedStandardStreamsAreNotTakenForFiles) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  RunProgram({"/bin/sh", "-c", std::string(DIVVY_PATH) + " apply " + plan + " --yes >&- 2>&- <&-"},
             node_.Environment());
  EXPECT_THAT(node_.Layout(), HasSubstr("3g.71gb@4[3@0]"));
  std::string holder;
  std::getline(std::ifstream(node_.state_dir() + "/lock"), holder);
  EXPECT_THAT(holder, Not(HasSubstr("GPU")));
}

TEST_F(CliTest, WithoutADriverItSaysSo) {
  const Finished gpus = node_.Divvy({"gpus"}, {{"DIVVY_NVML", "libno-such-nvml.so.1"}});
  EXPECT_EQ(gpus.exit_status, 1);
  EXPECT_THAT(gpus.err, HasSubstr("NVIDIA driver"));
}

TEST_F(CliTest, AnOlderDriverWithoutSomeCallsWillDo) {
  Init("A100-40GB+mig");
  const Finished gpus = node_.Divvy({"gpus"}, {{"DIVVY_NVML", NVML_SIM_OLD_LIBRARY}});
  EXPECT_EQ(gpus.exit_status, 0) << gpus.err;
  for (const char* name : {"1g.5gb ", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "7g.40gb"}) {
    EXPECT_THAT(gpus.out, HasSubstr(name));
  }
  const std::string plan = node_.Write("plan.yaml", R"(version: 1
gpus: [{gpu: 0, kind: A100-40GB, instances: [{profile: 3g.20gb}]}]
)");
  EXPECT_EQ(
      node_.Divvy({"apply", plan, "--yes"}, {{"DIVVY_NVML", NVML_SIM_OLD_LIBRARY}}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), "mig 3g.20gb@4[3@0]\n");
}

TEST_F(CliTest, DryRunChangesNothingAndNeedsNoStateDirectory) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  const Finished dry = node_.Divvy({"apply", plan, "--dry-run"});
  EXPECT_EQ(dry.exit_status, 0) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("create 3g.71gb at 4"));
  EXPECT_EQ(node_.Layout(), "mig\n");
  EXPECT_FALSE(std::filesystem::exists(node_.state_dir()));
}

TEST_F(CliTest, ApplyAsksAndTakesSilenceForNo) {
  Init("H200-141GB+mig");
  const Finished apply = node_.Divvy({"apply", node_.Write("plan.yaml", kPlan)});
  EXPECT_EQ(apply.exit_status, 2);
  EXPECT_THAT(apply.err, HasSubstr("--yes"));
  EXPECT_EQ(node_.Layout(), "mig\n");
}

TEST_F(CliTest, ApplyingTwiceDoesNothingTheSecondTime) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  ASSERT_EQ(node_.Divvy({"apply", plan, "--yes"}).exit_status, 0);
  const std::string identity = node_.Identity(0, 4);
  const Finished again = node_.Divvy({"apply", plan, "--yes"});
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_THAT(again.out, HasSubstr("Nothing to do"));
  EXPECT_EQ(node_.Identity(0, 4), identity);
}

TEST_F(CliTest, RollbackGoesBackToTheLayoutBeforeTheLastChange) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "7g.141gb", "--start", "0"});
  const std::string before = node_.Layout();
  const std::string plan = node_.Write("plan.yaml", kPlan);
  const std::string other = node_.Write("other.yaml", kPlan);
  EXPECT_EQ(node_.Divvy({"apply", "--rollback", "--yes"}).exit_status, 1);
  ASSERT_EQ(node_.Divvy({"apply", plan, "--yes"}).exit_status, 0);
  EXPECT_NE(node_.Layout(), before);
  EXPECT_EQ(node_.Divvy({"apply", other, "--rollback", "--yes"}).exit_status, 1);
  EXPECT_EQ(node_.Divvy({"apply", plan, "--rollback", "--yes"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), before);
}

TEST_F(CliTest, OnlyTheGpuThatWasNamedIsChanged) {
  Init("H200-141GB+mig:2");
  const std::string plan = node_.Write("plan.yaml", std::string(kPlan) + R"(  - gpu: 1
    kind: H200-141GB
    instances: [{profile: 7g.141gb}]
)");
  EXPECT_EQ(node_.Divvy({"apply", plan, "--gpu", "1", "--yes"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), "mig\nmig 7g.141gb@0[7@0]\n");
  EXPECT_EQ(node_.Divvy({"apply", plan, "--gpu", "7", "--yes"}).exit_status, 2);
}

TEST_F(CliTest, ASecondApplyAtTheSameTimeGetsAClearError) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  std::filesystem::create_directories(node_.state_dir());
  const int lock = open((node_.state_dir() + "/lock").c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const Finished second = node_.Divvy({"apply", plan, "--yes"});
  close(lock);
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_THAT(second.err, HasSubstr("another divvy is changing this node"));
  EXPECT_EQ(node_.Layout(), "mig\n");
}

TEST_F(CliTest, AFailureRollsBackAndSaysWhatHappened) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "7g.141gb", "--start", "0"});
  const std::string before = node_.Layout();
  const Finished apply =
      node_.Divvy({"apply", node_.Write("plan.yaml", kPlan), "--yes"},
                  {{"DIVVY_NVML_SIM_FAULTS",
                    "nvmlDeviceCreateGpuInstanceWithPlacement@3=INSUFFICIENT_RESOURCES"}});
  EXPECT_EQ(apply.exit_status, 1);
  EXPECT_THAT(apply.err, HasSubstr("INSUFFICIENT_RESOURCES"));
  EXPECT_THAT(apply.err, HasSubstr("its slices are free"));
  EXPECT_THAT(apply.err, HasSubstr("rolled back"));
  EXPECT_EQ(node_.Layout(), before);
}

TEST_F(CliTest, WhenUndoingFailsTooTheJournalStays) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "7g.141gb", "--start", "0"});
  const std::string before = node_.Layout();
  const Finished apply = node_.Divvy(
      {"apply", node_.Write("plan.yaml", kPlan), "--yes"},
      {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@*=UNKNOWN"}});
  EXPECT_EQ(apply.exit_status, 1);
  EXPECT_THAT(apply.err, HasSubstr("--recover"));
  EXPECT_TRUE(node_.HasJournal());
  EXPECT_EQ(node_.Divvy({"apply", "--recover"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), before);
  EXPECT_THAT(node_.Divvy({"apply", "--recover"}).out, HasSubstr("Nothing to recover"));
  EXPECT_TRUE(
      json::parse(node_.Divvy({"apply", "--recover", "-o", "json"}).out)["outcome"].is_null());
}

TEST_F(CliTest, RecoveryGoesOnWhereTheWayBackIsTaken) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@3=kill"}});
  // Somebody starts work on what the unfinished change made.
  node_.Sim("start", {"--start", "0", "--pid", "77"});
  const Finished recover = node_.Divvy({"apply", "--recover"});
  EXPECT_EQ(recover.exit_status, 0) << recover.err;
  EXPECT_EQ(node_.Layout(), "mig 1g.18gb@0[1@0] 1g.18gb@1[1@0] 3g.71gb@4[3@0]\n");
}

TEST_F(CliTest, RecoveryLeavesOtherPeoplesInstancesAlone) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@3=kill"}});
  node_.Sim("create", {"--profile", "2g.35gb", "--start", "2"});
  EXPECT_EQ(node_.Divvy({"apply", "--recover"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), "mig 2g.35gb@2[2@0]\n");
}

TEST_F(CliTest, RecoveryDestroysNothingThatItNeverSetOutToCreate) {
  Init("H200-141GB+mig");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@1=kill"}});
  // In a place of the plan, but its step was never begun.
  node_.Sim("create", {"--profile", "3g.71gb", "--start", "4"});
  EXPECT_EQ(node_.Divvy({"apply", "--recover"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), "mig 3g.71gb@4[3@0]\n");
}

TEST_F(CliTest, RecoveryDoesNotDisableMigUnderSomebodyElsesInstance) {
  Init("H200-141GB");
  const std::string plan = node_.Write("plan.yaml", kPlan);
  node_.Divvy({"apply", plan, "--yes"},
              {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@1=kill"}});
  node_.Sim("create", {"--profile", "2g.35gb", "--start", "2"});
  const std::string foreign = node_.Identity(0, 2);
  // Back is out of the question, so it goes on, around it.
  EXPECT_EQ(node_.Divvy({"apply", "--recover"}).exit_status, 0);
  EXPECT_EQ(node_.Identity(0, 2), foreign);
  EXPECT_THAT(node_.Layout(), HasSubstr("3g.71gb@4"));
}

TEST_F(CliTest, AFailedChangeLeavesTheOneBeforeItToRollBack) {
  Init("H200-141GB+mig");
  const std::string first = node_.Write("first.yaml", kPlan);
  const std::string second =
      node_.Write("second.yaml",
                  "version: 1\ngpus: [{gpu: 0, kind: h200, instances: [{profile: 7g.141gb}]}]\n");
  ASSERT_EQ(node_.Divvy({"apply", first, "--yes"}).exit_status, 0);
  ASSERT_EQ(
      node_
          .Divvy({"apply", second, "--yes"},
                 {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@1=UNKNOWN"}})
          .exit_status,
      1);
  EXPECT_EQ(node_.Divvy({"apply", "--rollback", "--yes"}).exit_status, 0);
  EXPECT_EQ(node_.Layout(), "mig\n");
}

TEST_F(CliTest, ABusyInstanceInTheWayIsNamedWithTheNearestWayOut) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "1g.18gb", "--start", "0"});
  node_.Sim("start", {"--start", "0", "--pid", "77"});
  ExpectRefused(R"(version: 1
gpus: [{gpu: 0, kind: H200-141GB, instances: [{profile: 4g.71gb}, {profile: 1g.18gb}]}]
)",
                "nearest layout that can be reached", 1);
  ExpectRefused("version: 1\ngpus: [{gpu: 0, kind: H200-141GB, mig: false}]\n", "process 77", 1);
}

TEST_F(CliTest, ModeThatCannotBeActivatedIsTakenBack) {
  Init("A100-40GB");
  const std::string plan = node_.Write("plan.yaml", R"(version: 1
gpus: [{gpu: 0, kind: A100-40GB, instances: [{profile: 7g.40gb}]}]
)");
  for (const char* status : {"IN_USE", "RESET_REQUIRED"}) {
    const Finished apply = node_.Divvy(
        {"apply", plan, "--yes"},
        {{"DIVVY_NVML_SIM_FAULTS", std::string("nvmlDeviceSetMigMode@1=activation:") + status}});
    EXPECT_EQ(apply.exit_status, 1);
    EXPECT_THAT(apply.err, HasSubstr(status));
    EXPECT_EQ(node_.Layout(), "whole\n");
    EXPECT_FALSE(node_.HasJournal());
  }
}

TEST_F(CliTest, BadPlansAreRefusedWithPlaceValueAndWhatWouldBeRight) {
  Init("H200-141GB+mig");
  const std::string head = "version: 1\ngpus:\n  - gpu: 0\n    kind: H200-141GB\n    instances:\n";
  ExpectRefused("", "empty");
  ExpectRefused("version: 1\ngpsu: []\n", "plan.yaml:2: ");
  ExpectRefused("version: 1\ngpsu: []\n", "did you mean 'gpus'");
  ExpectRefused(head + "      - profile: 3g.70gb\n", "did you mean '3g.71gb'");
  ExpectRefused(head + "      - profile: 3g.20gb\n", "plan.yaml:6: ");
  ExpectRefused(head + "      - {profile: 3g.71gb, start: 2}\n", "plan.yaml:6: ");
  ExpectRefused(
      head + "      - {profile: 3g.71gb, start: 4}\n      - {profile: 1g.18gb, start: 5}\n",
      "plan.yaml:");
  ExpectRefused(head + "      - {profile: 3g.71gb, count: 3}\n", "plan.yaml:");
  ExpectRefused(head + "      - {profile: 3g.71gb, start: 4, runs: [{model: m, mps_share: 5ms}]}\n",
                "5ms");
  ExpectRefused("version: 1\ngpus: [{gpu: 0, kind: H100-80GB, instances: []}]\n",
                "the plan is for H100-80GB, but GPU 0 is H200-141GB");
  ExpectRefused("version: 1\ngpus: [{gpu: 0, kind: h20, instances: []}]\n",
                "could be H20-96GB or H200-141GB");
  ExpectRefused("version: 1\ngpus: [{gpu: 3, kind: H200-141GB, instances: []}]\n", "no GPU 3");
}

TEST_F(CliTest, FitFindsTheFewestMovesThatMakeRoom) {
  Init("H200-141GB+mig");
  node_.Sim("create", {"--profile", "1g.18gb", "--start", "1"});
  node_.Sim("create", {"--profile", "1g.18gb", "--start", "6"});
  EXPECT_THAT(node_.Divvy({"fit", "2g.35gb"}).out, HasSubstr("now"));
  const json fits = json::parse(node_.Divvy({"fit", "4g.71gb", "-o", "json"}).out);
  ASSERT_EQ(fits.at(0).at("moves").size(), 1U);
  EXPECT_EQ(fits.at(0).at("moves").at(0).at("from"), 1);
  EXPECT_EQ(fits.at(0).at("start"), 0);

  node_.Sim("start", {"--start", "1", "--pid", "77"});
  EXPECT_THAT(node_.Divvy({"fit", "4g.71gb"}).out, HasSubstr("no room"));
  EXPECT_THAT(node_.Divvy({"fit", "4g.71gb", "--drain"}).out, HasSubstr("after moving 1g.18gb"));
  EXPECT_THAT(node_.Divvy({"fit", "4g.70gb"}).err, HasSubstr("did you mean '4g.71gb'"));
}

TEST_F(CliTest, PlanFilesThatCannotBeReadAreNamed) {
  Init("H200-141GB+mig");
  EXPECT_THAT(node_.Divvy({"apply", "/no/such/plan.yaml"}).err, HasSubstr("/no/such/plan.yaml"));
  EXPECT_EQ(node_.Divvy({"apply", node_.dir(), "--dry-run"}).exit_status, 2);
  EXPECT_EQ(node_.Divvy({"apply"}).exit_status, 2);
  EXPECT_EQ(node_.Divvy({"apply", "--recover", "x.yaml"}).exit_status, 2);
}

TEST_F(CliTest, PlanExportAndImportRoundTripThroughMigParted) {
  const std::string plan = node_.Write("plan.yaml", kPlan);
  const std::string config = node_.dir() + "/parted.yaml";
  ASSERT_EQ(node_
                .Divvy({"plan", "export", plan, "--format", "mig-parted", "--name", "divvy",
                        "--save", config})
                .exit_status,
            0);
  const Finished imported = node_.Divvy(
      {"plan", "import", config, "--config", "divvy", "--kind", "H200-141GB", "--gpus", "1"});
  EXPECT_EQ(imported.exit_status, 0) << imported.err;
  const std::string back = node_.Write("back.yaml", imported.out);
  EXPECT_EQ(node_.Divvy({"plan", "check", back}).exit_status, 0);
  EXPECT_THAT(imported.out, AllOf(HasSubstr("3g.71gb"), HasSubstr("count: 2")));
}

TEST_F(CliTest, LayoutsJsonHasTheKnownCounts) {
  const auto count = [&](const std::vector<std::string>& words) {
    std::vector<std::string> all = {"layouts"};
    all.insert(all.end(), words.begin(), words.end());
    all.insert(all.end(), {"-o", "json"});
    return json::parse(node_.Divvy(all).out).size();
  };
  EXPECT_EQ(count({"A100-40GB"}), 19U);
  EXPECT_EQ(count({"h200", "--maximal", "--profiles", "double"}), 78U);
  EXPECT_EQ(count({"h200", "--all"}), 298U);
  EXPECT_EQ(count({"RTX-PRO-6000-Blackwell-96GB"}), 5U);
  const Finished unknown = node_.Divvy({"layouts", "H200-142GB"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("did you mean"));
}

TEST_F(CliTest, SlipsInOptionsAreNamed) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> slips = {
      {{"run", "--clas", "batch", "--", "true"},
       "divvy run has no option '--clas'; did you mean '--class'?"},
      {{"plan", "fleet.yaml", "--polcy=paris"}, "no option '--polcy'; did you mean '--policy'?"},
      {{"--nmvl", "x", "gpus"}, "no option '--nmvl'; did you mean '--nvml'?"},
      {{"gpus", "--zzzzzzzz"}, "divvy gpus has no option '--zzzzzzzz'\n"}};
  for (const auto& [words, message] : slips) {
    const Finished finished = node_.Divvy(words);
    EXPECT_EQ(finished.exit_status, 2) << message;
    EXPECT_THAT(finished.err, HasSubstr(message));
  }
}

TEST_F(CliTest, EveryCommandExplainsItself) {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"--help"},
                                                {"gpus", "--help"},
                                                {"layouts", "--help"},
                                                {"plan", "--help"},
                                                {"apply", "--help"},
                                                {"--version"}}) {
    const Finished help = node_.Divvy(words);
    EXPECT_EQ(help.exit_status, 0);
    EXPECT_THAT(help.out, Not(IsEmpty()));
  }
  EXPECT_EQ(node_.Divvy({}).exit_status, 2);
  EXPECT_EQ(node_.Divvy({"gpus", "-o", "xml"}).exit_status, 2);
}

TEST_F(CliTest, AFullDiskOnStandardOutputIsAnError) {
  const Finished full = RunProgram(
      {"/bin/sh", "-c", std::string(DIVVY_PATH) + " layouts h200 --all > /dev/full"}, {});
  EXPECT_EQ(full.exit_status, 1);
  EXPECT_THAT(full.err, HasSubstr("No space left"));
  Init("H200-141GB+mig");
  const std::string dry = std::string(DIVVY_PATH) + " apply " + node_.Write("plan.yaml", kPlan) +
                          " --dry-run > /dev/full";
  EXPECT_EQ(RunProgram({"/bin/sh", "-c", dry}, node_.Environment()).exit_status, 1);
}

}  // namespace
}  // namespace divvy::test
