// `divvy simulate --control` as a user runs it, on an example fleet.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kFolder = std::string(DIVVY_SOURCE_DIR) + "/examples/fleets/";
const std::string kExample = kFolder + "continuous-learning.yaml";

// One small model that learns, served by one A100 many times over: such runs are quick.
std::string LightFleet(const std::string& count, const std::string& control = "{window: 20s}") {
  return "gpus: {kind: A100-80GB, count: " + count +
         "}\n"
         "models:\n"
         "  - name: '</script><u>&\"'\n"
         "    profile: {file: " +
         kFolder +
         "made-up-profiles.csv, model: text-encoder}\n"
         "    slo: 120ms\n"
         "    load: {rate: 50}\n"
         "    weight: 2\n"
         "    learning:\n"
         "      accuracy: 0.6\n"
         "      drift: 0.03\n"
         "      speed: {file: " +
         kFolder +
         "made-up-training.csv, model: text-encoder}\n"
         "      options: [{name: quick, samples: 600, accuracy: 0.9}]\n"
         "  - name: steady\n"
         "    profile: {file: " +
         kFolder +
         "made-up-profiles.csv, model: image-small}\n"
         "    slo: 25ms\n"
         "    load: {rate: 50}\n"
         "control: " +
         control + "\n";
}

std::vector<std::string> NamesIn(const json& rows, const char* key) {
  std::vector<std::string> names;
  for (const json& row : rows) names.push_back(row.at(key).get<std::string>());
  return names;
}

class SimulateControlTest : public ::testing::Test {
 protected:
  SimulateControlTest() : light_(node_.Write("light.yaml", LightFleet("1"))) {}

  Finished Simulate(const std::string& fleet, std::vector<std::string> words) const {
    words.insert(words.begin(), {"simulate", fleet});
    return node_.Divvy(words);
  }

  json SimulateJson(const std::string& fleet, std::vector<std::string> words) const {
    words.insert(words.end(), {"-o", "json"});
    const Finished finished = Simulate(fleet, words);
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    return json::parse(finished.out);
  }

  SimulatedNode node_;
  const std::string light_;
};

TEST_F(SimulateControlTest, AllPoliciesRunOnTheExample) {
  const Finished finished = Simulate(
      kExample, {"--control", "all", "--duration", "10s", "--html", node_.Path("all.html")});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.err, IsEmpty()) << "no progress in a pipe";
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("1 x A100-80GB for 3 models: 10 s, windows of 200 s"),
                    HasSubstr("GOODPUT/S"), HasSubstr("VS MIGRATOR"), HasSubstr("OF ORACLE"),
                    HasSubstr("WORST GAP"), HasSubstr("  text-encoder  ekya ")));
  for (const char* name : {"migrator", "ekya", "astraea", "static", "hindsight", "oracle"}) {
    EXPECT_THAT(finished.out, HasSubstr("\n  " + std::string(name) + " ")) << name;
  }
  EXPECT_LT(node_.Read("all.html").size(), 400'000U);
}

TEST_F(SimulateControlTest, FiguresAgreeWithEachOther) {
  const json all = SimulateJson(
      light_, {"--control", "migrator,static", "--duration", "40s", "--seed", "3", "--seeds", "2"});
  EXPECT_EQ(all.at("control").at("seeds"), json({3, 4}));
  EXPECT_EQ(all.at("control").at("duration_s"), 40);
  EXPECT_EQ(all.at("control").at("gpus"), 1);
  EXPECT_THAT(NamesIn(all.at("policies"), "policy"), ElementsAre("migrator", "static"));
  EXPECT_THAT(NamesIn(all.at("runs"), "policy"),
              ElementsAre("migrator", "migrator", "static", "static"));
  for (const json& run : all.at("runs")) {
    const json& learner = run.at("models").at(0);
    const json& steady = run.at("models").at(1);
    EXPECT_TRUE(steady.at("accuracy").is_null()) << "it does not learn";
    EXPECT_EQ(run.at("accuracy"), learner.at("accuracy")) << "the only one that does";
    const double worth =
        2 * learner.at("in_time").get<double>() * learner.at("accuracy").get<double>() +
        steady.at("in_time").get<double>();
    EXPECT_NEAR(run.at("goodput_per_s").get<double>(), worth / 40, 1e-6 * worth);
    EXPECT_NEAR(learner.at("offered").get<double>(), 2000, 250);
    const double offered = learner.at("offered").get<double>() + steady.at("offered").get<double>();
    const double in_time = learner.at("in_time").get<double>() + steady.at("in_time").get<double>();
    EXPECT_NEAR(run.at("slo_attainment").get<double>(), in_time / offered, 1e-12);
  }
}

TEST_F(SimulateControlTest, MeansAreOverSeedsAndComparisonsSeedBySeed) {
  const json all = SimulateJson(
      light_, {"--control", "static,migrator,oracle", "--duration", "40s", "--seeds", "3"});
  const auto goodput = [&](std::size_t policy, std::size_t seed) {
    const json& run = all.at("runs").at(3 * policy + seed);
    EXPECT_EQ(run.at("seed"), seed + 1) << "from the fleet's on";
    return run.at("goodput_per_s").get<double>();
  };
  for (std::size_t policy = 0; policy < 3; ++policy) {
    const json& row = all.at("policies").at(policy);
    double mean = 0;
    double more = 0;
    double of_oracle = 0;
    for (std::size_t seed = 0; seed < 3; ++seed) {
      mean += goodput(policy, seed) / 3;
      more += (goodput(policy, seed) / goodput(0, seed) - 1) / 3;
      of_oracle += goodput(policy, seed) / goodput(2, seed) / 3;
    }
    double squares = 0;
    for (std::size_t seed = 0; seed < 3; ++seed) {
      squares += std::pow(goodput(policy, seed) - mean, 2);
    }
    EXPECT_NEAR(row.at("goodput_per_s").get<double>(), mean, 1e-9);
    EXPECT_NEAR(row.at("goodput_standard_error").get<double>(), std::sqrt(squares / 2 / 3), 1e-9);
    EXPECT_NEAR(row.at("against_first").get<double>(), more, 1e-9);
    EXPECT_NEAR(row.at("of_oracle").get<double>(), of_oracle, 1e-9);
  }
  EXPECT_NE(goodput(0, 0), goodput(0, 1)) << "seeds differ";
  const json one = SimulateJson(light_, {"--control", "static", "--duration", "40s"});
  EXPECT_EQ(one.at("runs").at(0), all.at("runs").at(0)) << "a run stands for itself";
  EXPECT_TRUE(one.at("policies").at(0).at("goodput_standard_error").is_null());
  EXPECT_TRUE(one.at("policies").at(0).at("of_oracle").is_null()) << "it did not run";
}

TEST_F(SimulateControlTest, OneSeedGivesTheSameBytes) {
  const auto run = [&](const std::string& format, const std::string& page) {
    const Finished finished = Simulate(light_, {"--control", "all", "--duration", "40s", "--seeds",
                                                "2", "--html", node_.Path(page), "-o", format});
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    return finished.out;
  };
  EXPECT_EQ(run("json", "a.html"), run("json", "b.html"));
  EXPECT_EQ(run("table", "c.html"), run("table", "c.html"));
  EXPECT_EQ(node_.Read("a.html"), node_.Read("b.html"));
  EXPECT_EQ(node_.Read("a.html"), node_.Read("c.html"));
}

TEST_F(SimulateControlTest, OptionsTakeThePlaceOfTheFleets) {
  const json all =
      SimulateJson(light_, {"--control", "migrator", "--gpus", "2", "--restart", "6s", "--every",
                            "10s", "--forecast", "ewma", "--quantile", "0.9", "--route", "elsa"});
  const json& control = all.at("control");
  EXPECT_EQ(control.at("gpus"), 2);
  EXPECT_EQ(control.at("restart_s"), 6);
  EXPECT_EQ(control.at("every_s"), 10);
  EXPECT_EQ(control.at("forecast"), "ewma");
  EXPECT_EQ(control.at("quantile"), 0.9);
  EXPECT_EQ(control.at("route"), "elsa");
  EXPECT_EQ(control.at("duration_s"), 60) << "three windows";

  const std::string any_number = node_.Write("auto.yaml", LightFleet("auto"));
  EXPECT_EQ(SimulateJson(any_number, {"--control", "static", "--duration", "5s", "--gpus", "1"})
                .at("control")
                .at("gpus"),
            1);
}

TEST_F(SimulateControlTest, ASlowerStartCostsGoodput) {
  const auto lost = [&](const std::string& restart) {
    const json all = SimulateJson(
        kExample, {"--control", "migrator", "--duration", "12s", "--restart", restart});
    EXPECT_GT(all.at("policies").at(0).at("starts"), 0) << "seeing loads changes its mind";
    return all.at("policies").at(0).at("lost_share").get<double>();
  };
  EXPECT_EQ(lost("0s"), 0);
  EXPECT_GT(lost("1s"), 0.01);
}

TEST_F(SimulateControlTest, HtmlIsOnePageThatShowsWhatEachPolicyDid) {
  const Finished finished = Simulate(
      light_, {"--control", "migrator,ekya", "--duration", "40s", "--html", node_.Path("r.html")});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  const std::string page = node_.Read("r.html");
  EXPECT_THAT(page, AllOf(Not(HasSubstr("http")), Not(HasSubstr("src=")), Not(HasSubstr("@import")),
                          Not(HasSubstr("<link")), Not(HasSubstr("{{"))));
  EXPECT_EQ(CountOf(page, "</script>"), 2) << "a name ended a script";
  EXPECT_EQ(CountOf(page, "<u>"), 0);

  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data.at("tenants").at(0).at("name"), "</script><u>&\"");
  EXPECT_EQ(data.at("tenants").at(0).at("load").size(), 40U);
  EXPECT_THAT(NamesIn(data.at("policies"), "name"), ElementsAre("migrator", "ekya"));
  for (const json& policy : data.at("policies")) {
    const json& series = policy.at("series");
    EXPECT_EQ(series.at("goodput").size(), 40U);
    EXPECT_EQ(series.at("lost").size(), 40U);
    EXPECT_EQ(series.at("tenants").at(0).at("accuracy").size(), 40U);
    EXPECT_TRUE(series.at("tenants").at(1).at("accuracy").is_null());
    bool retrains = false;
    std::vector<double> serving(40);  // Slices, by slot.
    for (const json& box : policy.at("layout").at("boxes")) {
      const int size = box.at(2).get<int>();
      EXPECT_EQ(box.at(0), 0);
      EXPECT_LE(box.at(1).get<int>() + size, policy.at("slices").get<int>());
      ASSERT_LT(box.at(4).get<int>(), box.at(6).get<int>());
      ASSERT_LE(box.at(6).get<int>(), 40);
      EXPECT_LT(box.at(10).get<std::size_t>(), policy.at("layout").at("reasons").size());
      retrains |= box.at(7) == 1;
      for (int slot = box.at(4).get<int>(); slot < box.at(6).get<int>(); ++slot) {
        serving[static_cast<std::size_t>(slot)] += size;
      }
    }
    EXPECT_TRUE(retrains) << policy.at("name") << ": so much accuracy is to be had";
    for (const double slices : serving) {
      EXPECT_GT(slices, 0);
      EXPECT_LE(slices, policy.at("slices").get<double>()) << "no slice is there twice";
    }
  }
}

TEST_F(SimulateControlTest, MistakesAreNamedAndNothingIsWritten) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } kMistakes[] = {
      {{"--control", "migratr"}, "did you mean 'migrator'?"},
      {{"--control", "nothing-like-it"},
       "there are migrator, ekya, astraea, static, hindsight, oracle, and all"},
      {{"--control", "static", "--plan", "exact"}, "--plan does not go with --control"},
      {{"--control", "static", "--change", "exact@2s"}, "--change does not go with --control"},
      {{"--control", "static", "--change-cost", "start=2s"}, "--restart says what"},
      {{"--control", "static", "--route", "divvy", "--route", "elsa"}, "a second --route"},
      {{"--control", "static", "--sweep", "1:2:1"}, "--sweep does not go with --control"},
      {{"--control", "static", "--bounded"}, "--bounded does not go with --control"},
      {{"--control", "static", "--requests", "10"}, "--duration says how long"},
      {{"--control", "static", "--spread", "0.1"}, "--spread does not go with --control"},
      {{"--control", "static", "--events", node_.Path("events")},
       "--events does not go with --control"},
      {{"--control", "static", "--duration", "1.5s"}, "whole number of the fleet's slots of 1 s"},
      {{"--control", "static", "--duration", "0s"}, "whole number of the fleet's slots of 1 s"},
      {{"--control", "static", "--every", "soon"}, "with its unit"},
      {{"--control", "static", "--every", "300ms"}, "whole number of the fleet's slots"},
      {{"--control", "static", "--restart", "6"}, "with its unit"},
      {{"--control", "static", "--forecast", "weather"}, "--forecast: "},
      {{"--control", "static", "--quantile", "1"}, "0.999"},
      {{"--control", "static", "--seeds", "0"}, "--seeds"},
      {{"--seeds", "2"}, "--seeds requires --control"},
      {{"--gpus", "2"}, "--gpus requires --control"},
  };
  for (const auto& [words, message] : kMistakes) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--html", node_.Path("r.html")});
    const Finished finished = Simulate(light_, all);
    EXPECT_EQ(finished.exit_status, 2) << message << '\n' << finished.err;
    EXPECT_THAT(finished.err, HasSubstr(message));
    EXPECT_THAT(finished.out, IsEmpty()) << message;
  }
  EXPECT_FALSE(std::filesystem::exists(node_.Path("r.html")));

  const Finished unknown =
      Simulate(node_.Write("auto.yaml", LightFleet("auto")), {"--control", "static"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("auto.yaml:1: count is auto"), HasSubstr("--gpus N")));
  const Finished foretold =
      Simulate(node_.Write("f.yaml", LightFleet("1", "{window: 20s, forecast: weather}")),
               {"--control", "static"});
  EXPECT_EQ(foretold.exit_status, 2);
  EXPECT_THAT(foretold.err, HasSubstr("f.yaml:17: "));
  const Finished flooded = Simulate(light_, {"--control", "static", "--trace",
                                             node_.Write("t.csv",
                                                         "arrival_s,model,batch\n0,steady,1\n"
                                                         "0.000001,steady,1\n")});
  EXPECT_EQ(flooded.exit_status, 2);
  EXPECT_THAT(flooded.err, HasSubstr("--duration makes it shorter")) << "2e6/s for a minute";
}

TEST_F(SimulateControlTest, NotesSayWhatIsLeftOut) {
  const std::string fleet =
      node_.Write("jobs.yaml", LightFleet("1") + "jobs: [{name: train, instance: 7g.80gb}]\n");
  const json all = SimulateJson(fleet, {"--control", "static", "--duration", "5s"});
  EXPECT_THAT(all.at("notes").get<std::vector<std::string>>(),
              Contains(HasSubstr("jobs of the fleet are left out")));
  EXPECT_GT(all.at("policies").at(0).at("slo_attainment"), 0.9) << "the job has no instance";
}

TEST_F(SimulateControlTest, HelpNamesThePolicies) {
  const Finished help = node_.Divvy({"simulate", "--help"});
  EXPECT_THAT(help.out, AllOf(HasSubstr("Policies of --control:\n  migrator "),
                              HasSubstr("\n  oracle "), HasSubstr("--seeds N")));
}

}  // namespace
}  // namespace divvy::test
