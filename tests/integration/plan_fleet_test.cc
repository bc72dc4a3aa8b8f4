// `divvy plan FLEET` and `divvy profile` as a user meets them: answers, files, errors.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;
using ::testing::StartsWith;

const std::string kFleets = DIVVY_SOURCE_DIR "/examples/fleets/";

// One made-up model: on 7g a batch of one takes 2 ms and of eight 8 ms, on 1g 10 ms
// and 60 ms.
constexpr const char* kProfiles = R"(model,partition,batch,latency_ms,gpu,source
net,1g,1,10,A100-80GB,made up
net,1g,8,60,A100-80GB,made up
net,7g,1,2,A100-80GB,made up
net,7g,8,8,A100-80GB,made up
)";

constexpr const char* kTrace = R"(arrival_s,model,batch
0,net,1
0.5,other,4
1,net,3
2,net,1
)";

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class PlanFleetTest : public ::testing::Test {
 protected:
  PlanFleetTest() { node_.Write("profiles.csv", kProfiles); }

  // A fleet of one model on A100s; `rest` goes into the model's mapping.
  std::string OneModel(const std::string& count, const std::string& rest,
                       const std::string& more = "") const {
    return node_.Write("fleet.yaml", "gpus: {kind: A100-80GB, count: " + count +
                                         "}\nmodels:\n  - {name: net, " + rest + "}\n" + more);
  }

  Finished Plan(const std::string& fleet, std::vector<std::string> more = {}) const {
    std::vector<std::string> words = {"plan", fleet};
    words.insert(words.end(), more.begin(), more.end());
    return node_.Divvy(words);
  }

  json PlanJson(const std::string& fleet, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"-o", "json"});
    const Finished planned = Plan(fleet, more);
    EXPECT_THAT(planned.err, IsEmpty());
    return json::parse(planned.out);
  }

  // That the fleet is refused before anything is planned, with this message.
  void ExpectRefused(const std::string& fleet, const std::string& message) const {
    const Finished refused = Plan(fleet);
    EXPECT_EQ(refused.exit_status, 2) << refused.out;
    EXPECT_THAT(refused.out, IsEmpty());
    EXPECT_THAT(refused.err, AllOf(StartsWith("divvy: "), HasSubstr(message)));
  }

  SimulatedNode node_;
};

// What ships is read, and a plan from it stands.
TEST_F(PlanFleetTest, MeasuredProfilesAreReadAndPlannedFrom) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(DIVVY_SOURCE_DIR "/profiles/h200")) {
    if (entry.path().extension() != ".csv") continue;
    ++files;
    const Finished checked = node_.Divvy({"profile", "check", entry.path()});
    EXPECT_EQ(checked.exit_status, 0) << entry.path() << checked.err;
    for (const char* size : {" 16sm ", " 32sm ", " 60sm ", " 64sm ", " 132sm "}) {
      EXPECT_THAT(checked.out, HasSubstr(size)) << entry.path();
    }
  }
  EXPECT_GE(files, 8);
  const json planned = PlanJson(kFleets + "h200.yaml", {"--no-compare"});
  EXPECT_TRUE(planned["feasible"]) << planned;
}

TEST_F(PlanFleetTest, TheExamplesPlan) {
  for (const char* name : {"small.yaml", "two-models.yaml"}) {
    const Finished planned = Plan(kFleets + name);
    EXPECT_EQ(planned.exit_status, 0) << name << planned.out << planned.err;
    EXPECT_THAT(planned.err, IsEmpty()) << name;
    for (const char* part :
         {"A100-80GB for ", "\nGPU 0  A100-80GB  ", "\nModels\n", "\nWhy each instance is there\n",
          "\nCompared with the others\n", "\nNotes\n", "made up for the example"}) {
      EXPECT_THAT(planned.out, HasSubstr(part)) << name;
    }
    EXPECT_THAT(planned.out, Not(HasSubstr("\x1b["))) << "colour in a pipe";
  }
}

TEST_F(PlanFleetTest, EqualReasonsAreCounted) {
  const Finished planned = Plan(kFleets + "small.yaml", {"--no-compare"});
  EXPECT_THAT(planned.out, ContainsRegex("[2-9]x [1-7]g\\.[0-9]+gb: "));
  EXPECT_THAT(planned.out, Not(HasSubstr("Compared with")));
}

TEST_F(PlanFleetTest, JsonHasEveryKeyAndTheFiguresAgree) {
  const json report = PlanJson(kFleets + "small.yaml");
  EXPECT_EQ(report.at("feasible"), true);
  EXPECT_EQ(report.at("policy"), "exact");
  EXPECT_THAT(report.at("proof"), HasSubstr("fewest GPUs: proven"));
  EXPECT_EQ(report.at("gpus"), report.at("plan").at("gpus").size());
  ASSERT_EQ(report.at("models").size(), 3U);
  std::size_t instances = 0;
  for (const json& model : report.at("models")) {
    EXPECT_LE(model.at("utilization"), 1);
    EXPECT_NEAR(model.at("utilization").get<double>() * model.at("headroom").get<double>(), 1,
                1e-9);
    EXPECT_GE(model.at("capacity_items_per_s"), model.at("demand_items_per_s"));
    EXPECT_GT(model.at("slo_ms"), 0);
    EXPECT_GT(model.at("rate_rps"), 0);
    instances += model.at("instances").get<std::size_t>();
  }
  std::size_t serving = 0;
  for (const json& partition : report.at("partitions")) {
    for (const char* key : {"gpu", "start", "profile", "model", "processes", "batch", "why"}) {
      EXPECT_TRUE(partition.contains(key)) << key;
    }
    serving += partition.at("model").is_string() ? 1 : 0;
  }
  EXPECT_EQ(serving, instances);
  EXPECT_FALSE(report.at("notes").empty());
}

TEST_F(PlanFleetTest, NoPolicyNeedsFewerGpusThanTheExactOne) {
  const json report = PlanJson(kFleets + "small.yaml");
  std::vector<std::string> policies;
  for (const json& other : report.at("baselines")) {
    policies.push_back(other.at("policy"));
    EXPECT_TRUE(other.contains("max_utilization"));
    if (other.at("feasible") == false) continue;
    EXPECT_GE(other.at("gpus"), report.at("gpus")) << other;
  }
  EXPECT_THAT(policies, IsSupersetOf({"paris", "homogeneous-1g", "best-homogeneous", "random",
                                      "gpulet", "parvagpu"}));
  EXPECT_THAT(policies, Not(Contains("exact")));
}

TEST_F(PlanFleetTest, TheJobGetsItsInstance) {
  const json report = PlanJson(kFleets + "two-models.yaml", {"--no-compare"});
  EXPECT_EQ(report.at("policy"), "paris");
  EXPECT_TRUE(report.at("baselines").empty());
  std::vector<std::string> places;
  for (const json& partition : report.at("partitions")) {
    if (partition.at("job") == "train-recommender") places.push_back(partition.at("profile"));
  }
  EXPECT_EQ(places, std::vector<std::string>{"3g.40gb"});
}

TEST_F(PlanFleetTest, WhatIsSavedPassesTheCheckAndIsWhatWasShown) {
  const std::string plan = node_.dir() + "/plan.yaml";
  const json report = PlanJson(kFleets + "two-models.yaml", {"--save", plan});
  const Finished check = node_.Divvy({"plan", "check", plan});
  EXPECT_EQ(check.exit_status, 0) << check.err;
  EXPECT_EQ(json::parse(node_.Divvy({"plan", "show", plan, "-o", "json"}).out), report.at("plan"));

  const Finished again = Plan(kFleets + "two-models.yaml", {"--save", plan, "--no-compare"});
  EXPECT_THAT(again.out, HasSubstr("wrote " + plan));
  EXPECT_EQ(Plan(kFleets + "two-models.yaml", {"--save", "-"}).out, ReadAll(plan));
}

TEST_F(PlanFleetTest, APlanForMoreGpusThanANodeHasIsShownButNotSaved) {
  const std::string fleet = OneModel("300", "profile: profiles.csv, slo: 100ms, load: {rate: 50}");
  const std::string plan = node_.dir() + "/plan.yaml";
  const Finished planned =
      Plan(fleet, {"--save", plan, "--no-compare", "--policy", "homogeneous-1g"});
  EXPECT_EQ(planned.exit_status, 1);
  EXPECT_THAT(planned.out, HasSubstr("GPUs 1-299 are cut as GPU 0."));
  EXPECT_THAT(planned.err, HasSubstr("cannot save a plan for 300 GPUs"));
  EXPECT_FALSE(std::filesystem::exists(plan));
}

TEST_F(PlanFleetTest, TooFewGpusIsAnAnswerThatSaysHowManyWouldDo) {
  // A GPU answers 1000 items a second at most.
  const std::string fleet = OneModel("2", "profile: profiles.csv, slo: 100ms, load: {rate: 2500}");
  const std::string plan = node_.dir() + "/plan.yaml";
  const Finished text = Plan(fleet, {"--save", plan});
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.err, IsEmpty());
  EXPECT_THAT(text.out, AllOf(StartsWith("Infeasible: exact "), HasSubstr("2 x A100-80GB")));
  EXPECT_THAT(text.out, HasSubstr("3 would do"));
  EXPECT_THAT(text.out, ContainsRegex("exact \\(this\\) +needs 3 "));
  EXPECT_FALSE(std::filesystem::exists(plan)) << "nothing to save";

  const json report = PlanJson(fleet, {"--no-compare"});
  EXPECT_EQ(report.at("feasible"), false);
  EXPECT_EQ(report.at("gpus_needed"), 3);
  EXPECT_FALSE(report.contains("plan"));
}

TEST_F(PlanFleetTest, AnSloThatNoInstanceMeetsIsAnAnswerThatSaysWhichWould) {
  const std::string fleet = OneModel("auto", "profile: profiles.csv, slo: 3ms, load: {rate: 10}");
  const Finished text = Plan(fleet);
  EXPECT_EQ(text.exit_status, 1);
  EXPECT_THAT(text.out, AllOf(StartsWith("Infeasible: "), HasSubstr("net: "), HasSubstr("SLO")));

  const json report = PlanJson(fleet);
  EXPECT_EQ(report.at("feasible"), false);
  EXPECT_EQ(report.at("model"), "net");
  // 2 ms at best, and 0.45 of the SLO to do it in.
  const double needed = report.at("slo_needed_ms");
  EXPECT_NEAR(needed, 2 / 0.45, 0.01);
  for (const json& other : report.at("baselines")) EXPECT_EQ(other.at("feasible"), false) << other;

  const std::string relaxed = OneModel(
      "auto", "profile: profiles.csv, slo: " + std::to_string(needed) + "ms, load: {rate: 10}");
  EXPECT_EQ(Plan(relaxed, {"--no-compare"}).exit_status, 0) << "what would do does";
}

TEST_F(PlanFleetTest, AHeuristicThatFallsShortShowsWhatItHasAndWhatItNeeds) {
  // Seven 1g answer 933 items a second at most.
  const std::string fleet = OneModel("1", "profile: profiles.csv, slo: 100ms, load: {rate: 1500}");
  const Finished text = Plan(fleet, {"--policy", "homogeneous-1g", "--no-compare"});
  EXPECT_EQ(text.exit_status, 1) << text.out;
  EXPECT_THAT(text.out, AllOf(StartsWith("Infeasible: homogeneous-1g"), HasSubstr("would do"),
                              HasSubstr("The best that it has"), HasSubstr("GPU 0  A100-80GB")));
  const json report = PlanJson(fleet, {"--policy", "homogeneous-1g", "--no-compare"});
  EXPECT_EQ(report.at("feasible"), false);
  EXPECT_GT(report.at("models").at(0).at("utilization"), 1);
  EXPECT_GE(report.at("gpus_needed"), 2);
}

TEST_F(PlanFleetTest, UnknownPoliciesAreNamedWithTheNearest) {
  const Finished option = Plan(kFleets + "small.yaml", {"--policy", "exakt"});
  EXPECT_EQ(option.exit_status, 2);
  EXPECT_THAT(option.err, HasSubstr("no planner is called 'exakt'; did you mean 'exact'?"));
  ExpectRefused(OneModel("1", "profile: profiles.csv, slo: 20ms, load: {rate: 1}",
                         "policy:\n  planner: pariss\n"),
                "fleet.yaml:5: planner: no planner is called 'pariss'; did you mean 'paris'?");
}

TEST_F(PlanFleetTest, WhatAFleetNamesAndIsNotThereIsSaidWithTheLine) {
  ExpectRefused(OneModel("1", "profile: nowhere.csv, slo: 20ms, load: {rate: 1}"),
                "fleet.yaml:3: cannot read " + node_.dir() + "/nowhere.csv: No such file");
  ExpectRefused(OneModel("1",
                         "profile: {file: profiles.csv, model: nett}, slo: 20ms, "
                         "load: {rate: 1}"),
                "profiles.csv has no model 'nett'; did you mean 'net'?");
  ExpectRefused(OneModel("1", "profile: profiles.csv, slo: 20ms, load: {rate: 1, batch: 9}"),
                "requests have up to 9 items (constant 9), but 'net' was measured in batches of "
                "up to 8 only");
  ExpectRefused(OneModel("1", "profile: profiles.csv, slo: 20ms, load: {trace: nowhere.csv}"),
                "fleet.yaml:3: cannot read");
  node_.Write("profiles.csv", "model,partition,batch,latency_ms\nnet,1g,1,ten\n");
  ExpectRefused(OneModel("1", "profile: profiles.csv, slo: 20ms, load: {rate: 1}"),
                "profiles.csv:2: latency_ms: 'ten'");
  node_.Write("profiles.csv", "model,partition,batch,latency_ms\nnet,61sm,1,10\n");
  ExpectRefused(OneModel("1", "profile: profiles.csv, slo: 20ms, load: {rate: 1}"),
                "has 'net' on 61sm only, and A100-80GB has no such instance");
}

TEST_F(PlanFleetTest, ATraceIsPlannedForItsMeanRateAndItsSizes) {
  node_.Write("trace.csv", kTrace);
  const json report =
      PlanJson(OneModel("auto", "profile: profiles.csv, slo: 100ms, load: {trace: trace.csv}"),
               {"--no-compare"});
  // Three requests of five items in two seconds; those of `other` are not its own.
  EXPECT_DOUBLE_EQ(report.at("models").at(0).at("rate_rps"), 1.5);
  EXPECT_DOUBLE_EQ(report.at("models").at(0).at("demand_items_per_s"), 2.5);

  node_.Write("trace.csv", "arrival_s,model,batch\n0,nett,1\n1,nett,1\n");
  ExpectRefused(OneModel("auto", "profile: profiles.csv, slo: 100ms, load: {trace: trace.csv}"),
                "trace.csv has no arrivals of model 'net'; did you mean 'nett'?");
  node_.Write("trace.csv", "arrival_s,model,batch\n0,net,1\n");
  ExpectRefused(OneModel("auto", "profile: profiles.csv, slo: 100ms, load: {trace: trace.csv}"),
                "it has no rate");
}

TEST_F(PlanFleetTest, MeasurementsOfTheFleetsOwnKindAreTakenAndOthersNoted) {
  node_.Write("profiles.csv",
              "model,partition,batch,latency_ms,gpu,source\nnet,1g,1,10,A100-40GB,theirs\n"
              "net,1g,1,20,A100-80GB,ours\n");
  const std::string rest = "profile: profiles.csv, slo: 100ms, load: {rate: 1}";
  const json own = PlanJson(OneModel("1", rest), {"--no-compare"});
  EXPECT_EQ(own.at("notes"), json({"profiles of net: ours"}));
  const std::string other = node_.Write(
      "h200.yaml", "gpus: {kind: H200-141GB, count: 1}\nmodels:\n  - {name: net, " + rest + "}\n");
  EXPECT_EQ(PlanJson(other, {"--no-compare"}).at("notes"),
            json({"profiles of net: theirs; measured on A100-40GB, not on H200-141GB"}));
}

TEST_F(PlanFleetTest, AFleetOrASubcommandButNotBoth) {
  const Finished neither = node_.Divvy({"plan"});
  EXPECT_EQ(neither.exit_status, 2);
  EXPECT_THAT(neither.err, HasSubstr("plan needs a fleet file"));
  const Finished slip = node_.Divvy({"plan", "chekc"});
  EXPECT_EQ(slip.exit_status, 2);
  EXPECT_THAT(slip.err, HasSubstr("did you mean 'check'?"));
  const std::string plan = DIVVY_SOURCE_DIR "/examples/plans/h200-one.yaml";
  EXPECT_EQ(node_.Divvy({"plan", "show", plan}).exit_status, 0);
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"plan", "show", plan, "--policy", "exact"},
        {"plan", "check", plan, "-o", "json"},
        {"plan", kFleets + "small.yaml", "show", plan}}) {
    const Finished both = node_.Divvy(words);
    EXPECT_EQ(both.exit_status, 2) << words.back();
    EXPECT_THAT(both.out, IsEmpty());
  }
}

TEST_F(PlanFleetTest, AnUnknownCommandIsNamedWithTheNearest) {
  EXPECT_THAT(node_.Divvy({"plam"}).err, HasSubstr("called 'plam'; did you mean 'plan'?"));
  const Finished nonsense = node_.Divvy({"nonsense"});
  EXPECT_EQ(nonsense.exit_status, 2);
  EXPECT_THAT(nonsense.err, AllOf(HasSubstr("'nonsense'"), HasSubstr("profile")));
  EXPECT_EQ(node_.Divvy({"--help"}).exit_status, 0);
}

TEST_F(PlanFleetTest, ProfileCheckListsWhatThereIsAndWhatIsOdd) {
  const std::string profiles = node_.Write("odd.csv", std::string(kProfiles) +
                                                          "net,7g,4,1.5,A100-80GB,made up\n"
                                                          "net,2g,1,5,A100-80GB,made up\n");
  const Finished check = node_.Divvy({"profile", "check", profiles});
  EXPECT_EQ(check.exit_status, 0) << check.err;
  EXPECT_THAT(check.out, ContainsRegex("net +A100-80GB +1g +1 +1 8 +2\n"));
  EXPECT_THAT(check.out, ContainsRegex("7g +1 +1 4 8 +3\n"));
  EXPECT_THAT(check.out, HasSubstr(profiles + ":6: fall: net on 7g, 1 process, batch 4: 1.5 ms"));
  const json report = json::parse(node_.Divvy({"profile", "check", profiles, "-o", "json"}).out);
  EXPECT_EQ(report.at("models").at(0).at("curves").size(), 3U);
  EXPECT_EQ(report.at("findings").at(1).at("line"), 6);
  EXPECT_EQ(report.at("findings").at(1).at("kind"), "not_monotone");

  const Finished broken =
      node_.Divvy({"profile", "check", node_.Write("broken.csv", "model,batch\nnet,1\n")});
  EXPECT_EQ(broken.exit_status, 2);
  EXPECT_THAT(broken.err, HasSubstr("broken.csv:1: "));
}

TEST_F(PlanFleetTest, ManyFindingsOfAKindAreCutShortUnlessAllAreAskedFor) {
  std::string text = "model,partition,batch,latency_ms\n";
  for (int i = 0; i < 31; ++i) {
    text += "net,1g," + std::to_string(i + 1) + "," + std::to_string(100 - i) + "\n";
  }
  const std::string profiles = node_.Write("falling.csv", text);
  const std::string some = node_.Divvy({"profile", "check", profiles}).out;
  EXPECT_THAT(some, AllOf(HasSubstr(":22: "), Not(HasSubstr(":23: ")),
                          HasSubstr("and 10 more falls; --all lists them")));
  const std::string all = node_.Divvy({"profile", "check", profiles, "--all"}).out;
  EXPECT_THAT(all, AllOf(HasSubstr(":32: "), Not(HasSubstr("more falls"))));
}

TEST_F(PlanFleetTest, AnImportedTableIsAProfileFile) {
  const std::string table =
      node_.Write("table.csv",
                  "model,mig_gpc,batch,mps_procs,throughput_per_proc_rps,throughput_total_rps,"
                  "latency_ms_from_thr,status\n"
                  "net,1,1,1,100,100,10,ok\nnet,1,8,1,160,160,50,ok\nnet,1,8,2,0,0,0,oom\n");
  const std::string profiles = node_.dir() + "/imported.csv";
  const Finished import =
      node_.Divvy({"profile", "import", table, "--from", "parvagpu", "--save", profiles});
  EXPECT_EQ(import.exit_status, 0) << import.err;
  EXPECT_THAT(import.err, AllOf(HasSubstr("1 row left out"), HasSubstr("line 4")));
  EXPECT_THAT(import.out, HasSubstr("1 profile, 2 points"));
  EXPECT_THAT(node_.Divvy({"profile", "check", profiles}).out, HasSubstr("nothing odd"));
  const Finished printed = node_.Divvy({"profile", "import", table, "--from", "parvagpu"});
  EXPECT_EQ(printed.out, ReadAll(profiles));
  EXPECT_THAT(node_.Divvy({"profile", "show", profiles, "--model", "net"}).out,
              ContainsRegex("1g +1 +10 +50 +160\n"));
  EXPECT_THAT(node_.Divvy({"profile", "show", profiles, "--model", "nett"}).err,
              HasSubstr("did you mean 'net'?"));

  const Finished foreign = node_.Divvy({"profile", "import", table, "--from", "migperf"});
  EXPECT_EQ(foreign.exit_status, 2);
  EXPECT_THAT(foreign.err, HasSubstr("table.csv:1: "));
  EXPECT_THAT(foreign.out, IsEmpty());
}

}  // namespace
}  // namespace divvy::test
