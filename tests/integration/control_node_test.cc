// `divvy control` on simulated nodes: what it does to their GPUs, and what it leaves alone
// when something goes wrong.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kSomeCut = "mig 3g.40gb@4[3@0]\n";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
  return lines;
}

std::vector<json> Of(const std::vector<json>& lines, const std::string& event) {
  std::vector<json> some;
  for (const json& line : lines) {
    if (line.at("event") == event) some.push_back(line);
  }
  return some;
}

// The instances of GPU 0 in a plan file or a line's cells: "3g.40gb@4".
std::multiset<std::string> InstancesOf(const json& cells) {
  std::multiset<std::string> instances;
  for (const json& cell : cells) {
    instances.insert(cell.at("profile").get<std::string>() + "@" +
                     std::to_string(cell.at("start").get<int>()));
  }
  return instances;
}

class ControlTest : public ::testing::Test {
 protected:
  ControlTest() { node_.Sim("init", {"--gpus", "A100-80GB+mig"}); }

  Finished Control(std::vector<std::string> arguments,
                   const std::map<std::string, std::string>& environment = {}) const {
    arguments.insert(arguments.begin(), {"control", fleet_, "-o", "json"});
    return node_.Divvy(arguments, environment);
  }

  // A run over the fleet's own load.
  Finished Replay(int slots, const std::map<std::string, std::string>& environment = {}) const {
    return Control({"--replay", "--pace", "none", "--slots", std::to_string(slots)}, environment);
  }

  std::string PlanPath() const { return node_.state_dir() + "/control/plan.yaml"; }

  std::multiset<std::string> InstancesOfPlan(const std::string& path) const {
    const Finished shown = node_.Divvy({"plan", "show", path, "-o", "json"});
    EXPECT_EQ(shown.exit_status, 0) << shown.err;
    return InstancesOf(json::parse(shown.out).at("gpus").at(0).at("instances"));
  }

  std::multiset<std::string> InstancesOnGpu() const {
    std::multiset<std::string> instances;
    std::istringstream words(node_.Layout());
    for (std::string word; words >> word;) {
      if (const auto bracket = word.find('['); bracket != std::string::npos) {
        instances.insert(word.substr(0, bracket));
      }
    }
    return instances;
  }

  void ExpectUsageError(std::vector<std::string> arguments, const std::string& message) const {
    arguments.insert(arguments.begin(), "control");
    const Finished refused = node_.Divvy(arguments);
    EXPECT_EQ(refused.exit_status, 2) << refused.out;
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_THAT(refused.err, AllOf(StartsWith("divvy: "), HasSubstr(message)));
    EXPECT_EQ(node_.Layout(), "mig\n");
  }

  const std::string fleet_ =
      std::string(DIVVY_SOURCE_DIR) + "/examples/fleets/continuous-learning.yaml";
  SimulatedNode node_;
};

TEST_F(ControlTest, TheGpuFollowsThePlanInForce) {
  const Finished ran = Replay(60);
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_THAT(ran.err, IsEmpty());
  const auto lines = Lines(ran.out);
  const auto changes = Of(lines, "changed");
  ASSERT_GE(changes.size(), 2u) << "the load moves: there is something to change";
  EXPECT_EQ(changes.front().at("slot"), 0);
  EXPECT_THAT(changes.back().at("text").get<std::string>(), HasSubstr("% more goodput than"));
  EXPECT_EQ(Of(lines, "kept").size(), 0u);
  EXPECT_EQ(InstancesOnGpu(), InstancesOfPlan(PlanPath()));
  EXPECT_THAT(InstancesOnGpu(), IsSupersetOf(InstancesOf(changes.back().at("cells"))));
  EXPECT_FALSE(node_.HasJournal());
  EXPECT_EQ(lines.back().at("event"), "ended");
}

TEST_F(ControlTest, TheSameSeedDoesTheSame) {
  const std::string fresh = node_.Layout();
  const Finished first = Replay(30);
  const std::string layout = node_.Layout();
  SimulatedNode other;
  other.Sim("init", {"--gpus", "A100-80GB+mig"});
  const Finished second = other.Divvy({"control", fleet_, "-o", "json", "--replay", "--pace",
                                       "none", "--slots", "30", "--save", PlanPath()});
  EXPECT_EQ(other.Layout(), layout);
  EXPECT_NE(layout, fresh);
  EXPECT_EQ(Of(Lines(first.out), "changed").size(), Of(Lines(second.out), "changed").size());
}

TEST_F(ControlTest, ADryRunChangesAndWritesNothing) {
  node_.Sim("create", {"--profile", "3g.40gb", "--start", "4"});
  const Finished ran =
      node_.Divvy({"control", fleet_, "--replay", "--pace", "none", "--slots", "20", "--dry-run"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(node_.Layout(), kSomeCut);
  EXPECT_FALSE(std::filesystem::exists(node_.state_dir()));
  EXPECT_THAT(ran.out, AllOf(HasSubstr("a dry run, which changes nothing, for the GPUs of this "
                                       "node"),
                             HasSubstr("slot 0     changed"), HasSubstr("GPU 0: create ")));
}

TEST_F(ControlTest, ADryRunTellsWhatARunDoes) {
  const Finished dry = Control({"--replay", "--pace", "none", "--slots", "30", "--dry-run"});
  const Finished wet = Replay(30);
  const auto dry_changes = Of(Lines(dry.out), "changed");
  const auto wet_changes = Of(Lines(wet.out), "changed");
  ASSERT_EQ(dry_changes.size(), wet_changes.size());
  for (std::size_t i = 0; i < wet_changes.size(); ++i) {
    EXPECT_EQ(dry_changes[i].at("cells"), wet_changes[i].at("cells")) << i;
    EXPECT_EQ(dry_changes[i].at("gpus").at(0).at("after"),
              wet_changes[i].at("gpus").at(0).at("after"))
        << i;
  }
}

TEST_F(ControlTest, ADryRunNeedsNoNvml) {
  const Finished ran = node_.Divvy({"control", fleet_, "--replay", "--pace", "none", "--slots", "3",
                                    "--dry-run", "--nvml", "no-such-library.so"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_THAT(ran.out, AllOf(HasSubstr("for the GPUs of the fleet, uncut (cannot load"),
                             HasSubstr("GPU 0: create ")));
}

// The second change fails midway, once; what was there before comes back, and a later
// decision is carried out.
TEST_F(ControlTest, AChangeThatNvmlRefusesIsUndoneAndTriedAgain) {
  const Finished good = Replay(40);
  const auto changes = Of(Lines(good.out), "changed");
  ASSERT_GE(changes.size(), 2u);
  // The first creation after those of slot 0.
  const auto first = InstancesOf(changes[0].at("cells"));
  SimulatedNode other;
  other.Sim("init", {"--gpus", "A100-80GB+mig"});
  const std::string fault =
      "nvmlDeviceCreateGpuInstanceWithPlacement@" + std::to_string(first.size() + 1) + "=UNKNOWN";
  const int slot = changes[1].at("slot").get<int>();
  const Finished ran = other.Divvy({"control", fleet_, "-o", "json", "--replay", "--pace", "none",
                                    "--slots", std::to_string(slot + 1)},
                                   {{"DIVVY_NVML_SIM_FAULTS", fault}});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  const auto lines = Lines(ran.out);
  const auto kept = Of(lines, "kept");
  ASSERT_EQ(kept.size(), 1u) << ran.out;
  EXPECT_EQ(kept[0].at("slot"), slot);
  EXPECT_THAT(kept[0].at("text").get<std::string>(),
              AllOf(StartsWith("GPU 0: step "), HasSubstr("UNKNOWN"), HasSubstr("rolled back")));
  EXPECT_EQ(Of(lines, "changed").size(), 1u);
  std::multiset<std::string> there;
  std::istringstream words(other.Layout());
  for (std::string word; words >> word;) {
    if (word.find('[') != std::string::npos) there.insert(word.substr(0, word.find('[')));
  }
  EXPECT_EQ(there, first) << "the layout before the change that failed";
  EXPECT_FALSE(other.HasJournal());

  // Without the fault it goes on from there.
  const Finished again =
      other.Divvy({"control", fleet_, "-o", "json", "--replay", "--pace", "none", "--slots", "10"});
  EXPECT_EQ(again.exit_status, 0);
  EXPECT_THAT(Of(Lines(again.out), "changed"), Not(IsEmpty()));
}

TEST_F(ControlTest, NvmlThatRefusesEverythingLeavesTheLayoutAndEndsWell) {
  node_.Sim("create", {"--profile", "3g.40gb", "--start", "4"});
  const Finished ran =
      Replay(12, {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@*=UNKNOWN"}});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  const auto kept = Of(Lines(ran.out), "kept");
  // Nothing was destroyed either, or could not be made again.
  if (node_.HasJournal()) {
    EXPECT_EQ(node_.Divvy({"apply", "--recover"}).exit_status, 0);
  }
  EXPECT_EQ(node_.Layout(), kSomeCut);
  ASSERT_GE(kept.size(), 1u);
  EXPECT_THAT(Of(Lines(ran.out), "changed"), IsEmpty());
}

TEST_F(ControlTest, ABusyInstanceIsLeftAlone) {
  node_.Sim("create", {"--profile", "1g.10gb", "--start", "1"});
  node_.Sim("start", {"--start", "1", "--pid", "4242"});
  const std::string identity = node_.Identity(0, 1);
  const Finished ran = Replay(21);
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(node_.Identity(0, 1), identity);
  const auto kept = Of(Lines(ran.out), "kept");
  ASSERT_GE(kept.size(), 1u) << ran.out;
  EXPECT_THAT(kept[0].at("text").get<std::string>(), StartsWith("GPU 0: 1g.10gb at 1 is busy"));
}

// The same wish is refused for the same reason at each of five decisions.
TEST_F(ControlTest, WhatGoesOnBeingRefusedIsSaidOnce) {
  node_.Sim("create", {"--profile", "7g.80gb", "--start", "0"});
  node_.Sim("start", {"--start", "0", "--pid", "4242"});
  const std::string layout = node_.Layout();
  const Finished ran =
      Control({"--replay", "--pace", "none", "--slots", "21", "--policy", "static"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  EXPECT_EQ(node_.Layout(), layout);
  const auto lines = Lines(ran.out);
  EXPECT_EQ(Of(lines, "kept").size(), 1u) << ran.out;
  EXPECT_THAT(lines.back().at("text").get<std::string>(), HasSubstr("5 decisions not carried out"));
}

TEST_F(ControlTest, WhatIsNotDecidedHereIsRefusedWithTheReason) {
  ExpectUsageError({fleet_}, "--metrics FILE");
  ExpectUsageError({fleet_, "--replay", "--metrics", "m.prom"}, "one of the two");
  ExpectUsageError({fleet_, "--replay", "--pace", "none"}, "needs --slots N");
  ExpectUsageError({fleet_, "--replay", "--metric", "n"}, "--metric names a counter");
  ExpectUsageError({fleet_, "--replay", "--dry-run", "--save", "p"}, "leave --save out");
  ExpectUsageError({fleet_, "--replay", "--policy", "oracle"}, "it knows what will come");
  ExpectUsageError({fleet_, "--replay", "--policy", "ekya"}, "it shares GPUs by MPS");
  ExpectUsageError({fleet_, "--replay", "--policy", "migratr"}, "did you mean 'migrator'?");
  ExpectUsageError({"no-fleet.yaml", "--replay"}, "no-fleet.yaml");
  const std::string text = ReadAll(fleet_);
  std::filesystem::create_directories(node_.dir() + "/f");
  for (const char* file : {"made-up-profiles.csv", "made-up-training.csv"}) {
    std::filesystem::copy_file(std::filesystem::path(fleet_).parent_path() / file,
                               node_.dir() + "/f/" + file);
  }
  std::string open_count = text;
  open_count.replace(open_count.find("count: 1"), 8, "count: auto");
  ExpectUsageError({node_.Write("f/auto.yaml", open_count), "--replay"}, "auto.yaml:5: count");
  ExpectUsageError({node_.Write("f/policy.yaml", text + "  policy: astraea\n"), "--replay"},
                   "policy.yaml:56: the policy astraea");
}

TEST_F(ControlTest, AnotherNodeThanTheFleetsIsRefused) {
  SimulatedNode other;
  other.Sim("init", {"--gpus", "H200-141GB+mig"});
  const Finished ran = other.Divvy({"control", fleet_, "--replay", "--slots", "1"});
  EXPECT_EQ(ran.exit_status, 1);
  EXPECT_THAT(ran.err, HasSubstr("the fleet's GPUs are A100-80GB, but GPU 0 of this node is H200"));
  EXPECT_EQ(other.Layout(), "mig\n");
}

// Killed in the midst of its second change; the next run recovers, goes on with the slots,
// and in the end the GPU is as the plan says.
TEST_F(ControlTest, AKilledRunIsTakenUpByTheNext) {
  const auto changes = [&] {
    SimulatedNode scratch;
    scratch.Sim("init", {"--gpus", "A100-80GB+mig"});
    return Of(Lines(scratch
                        .Divvy({"control", fleet_, "-o", "json", "--replay", "--pace", "none",
                                "--slots", "40"})
                        .out),
              "changed");
  }();
  ASSERT_GE(changes.size(), 2u);
  const std::size_t created = changes[0].at("cells").size();
  for (const char* action : {"kill", "kill-after"}) {
    node_.Sim("init", {"--gpus", "A100-80GB+mig", "--force"});
    std::filesystem::remove_all(node_.state_dir());
    const Finished killed =
        Replay(40, {{"DIVVY_NVML_SIM_FAULTS", "nvmlDeviceCreateGpuInstanceWithPlacement@" +
                                                  std::to_string(created + 1) + "=" + action}});
    EXPECT_EQ(killed.signal, 9);
    EXPECT_TRUE(node_.HasJournal());
    const Finished next = Replay(15);
    EXPECT_EQ(next.exit_status, 0) << next.err;
    const auto lines = Lines(next.out);
    EXPECT_EQ(Of(lines, "recovered").size(), 1u);
    ASSERT_EQ(Of(lines, "resumes").size(), 1u) << next.out;
    EXPECT_GT(Of(lines, "resumes")[0].at("slot"), 0);
    EXPECT_EQ(InstancesOnGpu(), InstancesOfPlan(PlanPath()));
    EXPECT_FALSE(node_.HasJournal());
  }
}

TEST_F(ControlTest, ARunThatEndedIsContinuedAfterItsLastSlot) {
  EXPECT_EQ(Replay(7).exit_status, 0);
  const std::string layout = node_.Layout();
  const Finished next = Replay(1);
  EXPECT_EQ(Of(Lines(next.out), "resumes").at(0).at("slot"), 7);
  EXPECT_EQ(node_.Layout(), layout);
}

TEST_F(ControlTest, WhatOthersTookAwayIsNoticedAndDecidedAnew) {
  EXPECT_EQ(Replay(7).exit_status, 0);
  node_.Sim("init", {"--gpus", "A100-80GB+mig", "--force"});
  const Finished next = Replay(10);
  const auto lines = Lines(next.out);
  EXPECT_THAT(Of(lines, "lost"), Not(IsEmpty()));
  EXPECT_THAT(Of(lines, "changed"), Not(IsEmpty()));
  EXPECT_EQ(InstancesOnGpu(), InstancesOfPlan(PlanPath()));
}

TEST_F(ControlTest, AStateOfAnotherFleetOrNoStateAtAllBeginsAnew) {
  EXPECT_EQ(Replay(7).exit_status, 0);
  const Finished other =
      Control({"--replay", "--pace", "none", "--slots", "3", "--policy", "static"});
  EXPECT_THAT(Of(Lines(other.out), "anew")[0].at("text").get<std::string>(),
              HasSubstr("it is of the policy 'migrator'"));
  std::ofstream(node_.state_dir() + "/control/state.json") << "{\"divvy_control\": [";
  const Finished damaged = Replay(3);
  EXPECT_EQ(damaged.exit_status, 0);
  EXPECT_THAT(Of(Lines(damaged.out), "anew")[0].at("text").get<std::string>(),
              HasSubstr("it is damaged"));
}

TEST_F(ControlTest, CountersThatStandStillAreNoArrivals) {
  std::string text = "# TYPE nv_inference_request_success counter\n";
  for (const char* model : {"image-small", "image-large", "text-encoder"}) {
    text += std::string("nv_inference_request_success{model=\"") + model + "\"} 1000\n";
  }
  const std::string metrics = node_.Write("m.prom", text);
  const Finished ran = Control({"--metrics", metrics, "--pace", "none", "--slots", "11"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  const auto lines = Lines(ran.out);
  EXPECT_THAT(Of(lines, "no news"), IsEmpty());
  const auto windows = Of(lines, "window");
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].at("tenants").at(0).at("offered_per_s"), 0);
}

TEST_F(ControlTest, WithoutNewsNothingIsDecidedAndItIsSaidOnce) {
  const std::string metrics = node_.Write("m.prom", "other 1\n");
  const Finished ran = Control({"--metrics", metrics, "--pace", "none", "--slots", "30"});
  EXPECT_EQ(ran.exit_status, 0) << ran.err;
  const auto news = Of(Lines(ran.out), "no news");
  ASSERT_EQ(news.size(), 1u);
  EXPECT_THAT(news[0].at("text").get<std::string>(),
              HasSubstr("m.prom has no nv_inference_request_success of model 'image-small'"));
  EXPECT_THAT(Of(Lines(ran.out), "changed"), IsEmpty());
  EXPECT_EQ(node_.Layout(), "mig\n");
}

class PacedControlTest : public ControlTest {
 protected:
  // The fleet with other times in its control.
  std::string FleetWith(const std::string& times) const {
    const std::filesystem::path from = std::filesystem::path(fleet_).parent_path();
    for (const char* file : {"made-up-profiles.csv", "made-up-training.csv"}) {
      std::filesystem::copy_file(from / file, node_.dir() + "/" + file);
    }
    const std::string text = ReadAll(fleet_);
    return node_.Write("fleet.yaml", text.substr(0, text.find("control:")) + "control:\n" + times);
  }

  std::vector<std::string> Command(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {DIVVY_PATH, "control"});
    return arguments;
  }
};

// The next slot is an hour away: if it did not end at once, this test would not end.
TEST_F(PacedControlTest, ASignalEndsItAtOnceAndLeavesTheLayout) {
  const std::string fleet = FleetWith("  {slot: 1h, window: 200h, every: 5h}\n");
  for (const int signal : {SIGTERM, SIGINT}) {
    RunningProgram program(Command({fleet, "--replay"}), node_.Environment());
    ASSERT_TRUE(program.AwaitOutput(signal == SIGTERM ? "changed" : "begins"));
    program.Signal(signal);
    const Finished finished = program.Wait();
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    EXPECT_THAT(finished.out,
                AllOf(HasSubstr("ended     by a signal"), HasSubstr("the layout stays as it is")));
    EXPECT_EQ(InstancesOnGpu(), InstancesOfPlan(PlanPath()));
    EXPECT_THAT(InstancesOnGpu(), Not(IsEmpty()));
  }
}

TEST_F(PacedControlTest, NewsThatComeLaterAreTakenUp) {
  const std::string fleet = FleetWith("  {slot: 10ms, window: 2s, every: 50ms}\n");
  const std::string metrics = node_.dir() + "/m.prom";
  RunningProgram program(Command({fleet, "--metrics", metrics, "--metric", "requests_total"}),
                         node_.Environment());
  ASSERT_TRUE(program.AwaitOutput("no news   cannot read " + metrics));
  std::string text;
  for (const char* model : {"image-small", "image-large", "text-encoder"}) {
    text += std::string("requests_total{model=\"") + model + "\"} 7\n";
  }
  node_.Write("m.prom.new", text);
  std::filesystem::rename(metrics + ".new", metrics);
  ASSERT_TRUE(program.AwaitOutput("news      there is some again"));
  program.Signal(SIGTERM);
  const Finished finished = program.Wait();
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("ended     by a signal"));
}

TEST_F(PacedControlTest, ASecondControllerIsRefused) {
  const std::string fleet = FleetWith("  {slot: 1h, window: 200h, every: 5h}\n");
  RunningProgram program(Command({fleet, "--replay"}), node_.Environment());
  ASSERT_TRUE(program.AwaitOutput("begins"));
  const Finished second = Replay(3);
  EXPECT_EQ(second.exit_status, 1);
  EXPECT_THAT(second.err, HasSubstr("divvy control cannot begin: another divvy"));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Wait().exit_status, 0);
}

}  // namespace
}  // namespace divvy::test
