// `divvy simulate` as a user runs it, on the example fleets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

const std::string kFleets = std::string(DIVVY_SOURCE_DIR) + "/examples/fleets/";

// Two models, which instance of GPU 0 has which; nothing else is cut.
std::string PlanOf(const std::string& first, const std::string& second) {
  return "version: 1\ngpus:\n  - gpu: 0\n    kind: A100-80GB\n    instances:\n"
         "      - {profile: 3g.40gb, start: 0, runs: [{model: " +
         first +
         "}]}\n"
         "      - {profile: 3g.40gb, start: 4, runs: [{model: " +
         second + "}]}\n";
}

class SimulateTest : public ::testing::Test {
 protected:
  // Few requests: these runs are about the program, not about the figures.
  Finished Simulate(const std::string& fleet, std::vector<std::string> words) {
    words.insert(words.begin(), {"simulate", kFleets + fleet, "--requests", "600"});
    return node_.Divvy(words);
  }

  json SimulateJson(const std::string& fleet, std::vector<std::string> words) {
    words.insert(words.end(), {"-o", "json"});
    const Finished finished = Simulate(fleet, words);
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    return json::parse(finished.out);
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(node_.dir())) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

  SimulatedNode node_;
};

TEST_F(SimulateTest, TableHasARowForEveryModelAndEveryPartition) {
  const Finished finished = Simulate("two-models.yaml", {});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("P95 MS"), HasSubstr("SLO MS"), HasSubstr("GOODPUT")));
  EXPECT_THAT(finished.out,
              AllOf(HasSubstr("paris  divvy  classifier"), HasSubstr("paris  divvy  encoder")))
      << "the fleet's own planner and route";
  EXPECT_THAT(finished.out, HasSubstr("train-recommender (job)  100.0%")) << "a job does not serve";
  EXPECT_THAT(finished.out, Not(HasSubstr("Best:"))) << "there is nothing to compare";
  EXPECT_THAT(finished.err, IsEmpty()) << "no progress in a pipe";
}

TEST_F(SimulateTest, JsonHasEveryKeyAndTheFiguresAgree) {
  const json all = SimulateJson("two-models.yaml", {"--plan", "paris", "--route", "elsa"});
  EXPECT_EQ(all.at("seed"), 7) << "the fleet's";
  EXPECT_EQ(all.at("requests"), 600);
  ASSERT_EQ(all.at("rows").size(), 2U);
  std::uint64_t offered = 0;
  for (const json& row : all.at("rows")) {
    for (const char* key :
         {"plan", "route", "model", "rate", "p50_ms", "p95_ms", "p99_ms", "slo_attainment",
          "goodput_rps", "shed", "utilization", "latency_bounded_rps", "gpus", "slo_ms"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    offered += row.at("offered").get<std::uint64_t>();
    EXPECT_LE(row.at("p50_ms").get<double>(), row.at("p95_ms").get<double>());
    EXPECT_LE(row.at("p95_ms").get<double>(), row.at("p99_ms").get<double>());
    EXPECT_GT(row.at("latency_bounded_rps").get<double>(), row.at("rate").get<double>())
        << "in time at this load, so it carries more";
  }
  EXPECT_EQ(offered, 600U);
  std::uint64_t served = 0;
  for (const json& partition : all.at("partitions")) {
    served += partition.at("requests").get<std::uint64_t>();
  }
  EXPECT_EQ(served, 600U) << "elsa refuses nothing";
}

TEST_F(SimulateTest, EveryPlanMeetsEveryRoute) {
  const Finished finished = Simulate(
      "two-models.yaml",
      {"--plan", "paris", "--plan", "best-homogeneous", "--route", "elsa", "--route", "fifs+shed"});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  for (const char* pair :
       {"paris             elsa       classifier", "paris             fifs+shed  encoder",
        "best-homogeneous  elsa       encoder", "best-homogeneous  fifs+shed  classifier"}) {
    EXPECT_THAT(finished.out, HasSubstr(pair));
  }
  EXPECT_THAT(finished.out, HasSubstr("All 4 carry")) << "at a light load";
}

TEST_F(SimulateTest, TheBestIsNamedAndIsTheBest) {
  const json all = SimulateJson("two-models.yaml",
                                {"--route", "divvy", "--route", "fifs", "--sweep", "12:12:1"});
  const Finished finished = Simulate("two-models.yaml", {"--route", "divvy", "--route", "fifs",
                                                         "--sweep", "12:12:1", "--bounded"});
  std::map<std::string, double> bounded;
  for (const json& row : all.at("rows")) {
    bounded[row.at("route").get<std::string>()] = row.at("latency_bounded_rps").get<double>();
  }
  ASSERT_EQ(bounded.size(), 2U);
  const std::string best = bounded["divvy"] > bounded["fifs"] ? "divvy" : "fifs";
  EXPECT_THAT(finished.out, HasSubstr("Best: paris with " + best + " carries"));
}

TEST_F(SimulateTest, OneSeedGivesTheSameBytesAndAnotherSeedOthers) {
  const auto run = [&](const std::string& seed, const std::string& log) {
    const Finished finished = Simulate(
        "two-models.yaml", {"--seed", seed, "--spread", "measured", "--events", node_.Path(log),
                            "--html", node_.Path(log + ".html"), "-o", "json"});
    EXPECT_EQ(finished.exit_status, 0) << finished.err;
    return finished.out;
  };
  const std::string first = run("5", "a");
  EXPECT_EQ(first, run("5", "b"));
  EXPECT_EQ(node_.Read("a"), node_.Read("b"));
  EXPECT_EQ(node_.Read("a.html"), node_.Read("b.html"));
  EXPECT_NE(first, run("6", "c"));
  EXPECT_NE(node_.Read("a"), node_.Read("c"));
  EXPECT_EQ(CountOf(node_.Read("a"), " arrive "), 600) << "of the one run, not of searches";
}

TEST_F(SimulateTest, SpreadMakesTheTailLonger) {
  const auto p99 = [&](const std::string& spread) {
    return SimulateJson("two-models.yaml", {"--route", "elsa", "--spread", spread})
        .at("rows")
        .at(0)
        .at("p99_ms")
        .get<double>();
  };
  EXPECT_EQ(p99("none"), p99("0"));
  EXPECT_GT(p99("0.8"), p99("none"));
}

TEST_F(SimulateTest, SweepRunsEveryFactor) {
  const json all = SimulateJson("two-models.yaml", {"--sweep", "0.5:1.5:0.25"});
  std::vector<double> rates;
  for (const json& row : all.at("rows")) {
    if (row.at("model") == "classifier") rates.push_back(row.at("rate").get<double>());
  }
  EXPECT_EQ(rates, (std::vector<double>{60, 90, 120, 150, 180}));
}

TEST_F(SimulateTest, WithAutoEachPlannerHasItsOwnGpus) {
  const json all = SimulateJson("small.yaml", {"--plan", "exact", "--plan", "homogeneous-7g"});
  std::map<std::string, int> gpus;
  for (const json& row : all.at("rows")) {
    gpus[row.at("plan").get<std::string>()] = row.at("gpus").get<int>();
  }
  EXPECT_LT(gpus.at("exact"), gpus.at("homogeneous-7g"));
}

TEST_F(SimulateTest, AnInfeasiblePlanIsSaidAndTheRestRuns) {
  const std::string fleet = node_.Write("fleet.yaml",
                                        "gpus: {kind: A100-80GB, count: 1}\n"
                                        "models:\n"
                                        "  - name: text-encoder\n"
                                        "    profile: " +
                                            kFleets +
                                            "made-up-profiles.csv\n"
                                            "    slo: 120ms\n"
                                            "    load: {rate: 100}\n"
                                            "jobs:\n"
                                            "  - {name: train, instance: 7g.80gb}\n");
  const std::string plan = node_.Write("plan.yaml", PlanOf("text-encoder", "text-encoder"));
  const Finished some =
      node_.Divvy({"simulate", fleet, "--plan", "exact", "--plan", plan, "--requests", "200"});
  EXPECT_EQ(some.exit_status, 0) << some.err;
  EXPECT_THAT(some.out, AllOf(HasSubstr("exact: no plan."), HasSubstr("plan.yaml")));
  const Finished none = node_.Divvy({"simulate", fleet, "--plan", "exact", "--requests", "200"});
  EXPECT_EQ(none.exit_status, 1) << none.out;
  EXPECT_THAT(none.out, HasSubstr("exact: no plan."));
}

TEST_F(SimulateTest, AModelWithoutInstanceIsRefusedAndNoted) {
  const std::string plan = node_.Write("plan.yaml", PlanOf("classifier", "classifier"));
  const Finished finished = Simulate("two-models.yaml", {"--plan", plan});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, AllOf(HasSubstr("refused"), HasSubstr("no instance for encoder")));
}

TEST_F(SimulateTest, TraceReplacesTheLoadOfTheModelsItNames) {
  std::string trace = "arrival_s,model,batch\n";
  for (int i = 0; i < 41; ++i) trace += std::to_string(i * 0.1) + ",encoder,2\n";
  const json all = SimulateJson("two-models.yaml", {"--trace", node_.Write("trace.csv", trace)});
  const json& encoder = all.at("rows").at(1);
  EXPECT_EQ(encoder.at("offered"), 41);
  EXPECT_NEAR(encoder.at("rate").get<double>(), 41 / 4.0, 1e-9);
  EXPECT_NEAR(all.at("rows").at(0).at("offered").get<double>(), 120 * 4.0, 120)
      << "its own load, as long as the trace";

  const Finished unknown =
      Simulate("two-models.yaml", {"--trace", node_.Write("u.csv",
                                                          "arrival_s,model,batch\n0,encodr,1\n"
                                                          "1,encodr,1\n")});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.err, AllOf(HasSubstr("u.csv"), HasSubstr("did you mean 'encoder'?")));
  const Finished nameless = Simulate(
      "two-models.yaml", {"--trace", node_.Write("azure.csv",
                                                 "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                                 "2023-11-16 18:17:03.97,4808,10\n"
                                                 "2023-11-16 18:17:05.97,80,10\n")});
  EXPECT_EQ(nameless.exit_status, 2);
  EXPECT_THAT(nameless.err, HasSubstr("names no model"));
}

TEST_F(SimulateTest, AChangeCostsWhatItTakes) {
  const std::string before = node_.Write("before.yaml", PlanOf("classifier", "encoder"));
  const std::string after = node_.Write("after.yaml", PlanOf("encoder", "classifier"));
  const auto shed = [&](const std::vector<std::string>& change) {
    std::vector<std::string> words = {"--plan", before,     "--duration",
                                      "3s",     "--events", node_.Path("e")};
    words.insert(words.end(), change.begin(), change.end());
    const json all = SimulateJson("two-models.yaml", words);
    return all.at("rows").at(0).at("shed").get<int>();
  };
  EXPECT_EQ(shed({}), 0);
  EXPECT_EQ(shed({"--change", before + "@1s"}), 0) << "nothing changes";
  EXPECT_THAT(node_.Read("e"), AllOf(Not(HasSubstr(" down ")), Not(HasSubstr(" up "))));
  const int quick =
      shed({"--change", after + "@1s", "--change-cost", "destroy=0s,create=0s,start=200ms"});
  const int slow =
      shed({"--change", after + "@1s", "--change-cost", "destroy=500ms,create=500ms,start=0s"});
  EXPECT_GT(quick, 5) << "120 requests a second for 0.2 s";
  EXPECT_GT(slow, 2 * quick);
  const std::string log = node_.Read("e");
  EXPECT_EQ(CountOf(log, "1.000000000 down "), 2);
  EXPECT_EQ(CountOf(log, "2.000000000 up "), 2);
}

TEST_F(SimulateTest, AChangeAfterTheEndIsPointedOut) {
  const Finished finished = Simulate("two-models.yaml", {"--change", "exact@1h"});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("comes after the last request"));
}

TEST_F(SimulateTest, HtmlIsOnePageThatNeedsNothingElse) {
  const std::string fleet = node_.Write("f.yaml",
                                        "gpus: {kind: A100-80GB, count: 1}\n"
                                        "models:\n"
                                        "  - name: '</script><u>&\"'\n"
                                        "    profile: {file: " +
                                            kFleets +
                                            "made-up-profiles.csv, model: text-encoder}\n"
                                            "    slo: 120ms\n"
                                            "    load: {rate: 100, batch: {lognormal: {median: 3, "
                                            "sigma: 0.5, max: 14}}}\n");
  const Finished finished =
      node_.Divvy({"simulate", fleet, "--requests", "600", "--plan", "exact", "--route", "divvy",
                   "--route", "fifs", "--html", node_.Path("r.html")});
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  const std::string page = node_.Read("r.html");
  EXPECT_LT(page.size(), 1U << 20);
  EXPECT_THAT(page, AllOf(Not(HasSubstr("http")), Not(HasSubstr("src=")), Not(HasSubstr("@import")),
                          Not(HasSubstr("<link")), Not(HasSubstr("{{"))));
  EXPECT_EQ(CountOf(page, "<html"), 1);
  EXPECT_EQ(CountOf(page, "</html>"), 1);
  EXPECT_EQ(CountOf(page, "</script>"), 2) << "a name ended a script";
  EXPECT_EQ(CountOf(page, "<u>"), 0);

  const std::string open = "id=\"data\">";
  const std::size_t begin = page.find(open) + open.size();
  const json data = json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  EXPECT_EQ(data.at("models").at(0).at("name"), "</script><u>&\"");
  EXPECT_EQ(data.at("pairs").size(), 2U);
  EXPECT_EQ(data.at("rows").size(), 2U);
  EXPECT_EQ(data.at("curve").size(), 16U) << "a sweep of its own";
  EXPECT_EQ(data.at("mix").at(0).at("labels").size(), data.at("mix").at(0).at("executed").size());
  EXPECT_EQ(data.at("cuts").at(0).at("stages").at(0).at("gpus").size(), 1U);
  EXPECT_THAT(data.at("partitions").at(0).at("busy").get<std::string>(), Not(IsEmpty()));
}

TEST_F(SimulateTest, MistakesAreNamedAndNothingIsWritten) {
  const struct {
    std::vector<std::string> words;
    const char* message;
  } kMistakes[] = {
      {{"--route", "elso"}, "did you mean 'elsa'?"},
      {{"--plan", "pariss"}, "did you mean 'paris'?"},
      {{"--plan", "no/such/plan"}, "no/such/plan"},
      {{"--sweep", "0.5:1.5"}, "FROM:TO:STEP"},
      {{"--sweep", "2:1:0.1"}, "FROM at most TO"},
      {{"--sweep", "0:1:0.1"}, "0.001"},
      {{"--spread", "wide"}, "none, measured"},
      {{"--duration", "60"}, "with its unit"},
      {{"--change", "exact"}, "PLAN@TIME"},
      {{"--change", "exact@soon"}, "with its unit"},
      {{"--change-cost", "stop=1s"}, "destroy=TIME"},
      {{"--route", "divvy", "--route", "elsa"}, "--events is the log of one run"},
  };
  for (const auto& [words, message] : kMistakes) {
    std::vector<std::string> all = words;
    all.insert(all.end(), {"--events", node_.Path("events"), "--html", node_.Path("r.html")});
    const Finished finished = Simulate("two-models.yaml", all);
    EXPECT_EQ(finished.exit_status, 2) << message;
    EXPECT_THAT(finished.err, HasSubstr(message));
    EXPECT_THAT(finished.out, IsEmpty()) << message;
  }
  EXPECT_THAT(Files(), Not(::testing::Contains(::testing::AnyOf(
                           HasSubstr("events"), HasSubstr("html"), HasSubstr("tmp")))));
}

TEST_F(SimulateTest, FilesThatCannotBeWrittenAreAnError) {
  EXPECT_THAT(Simulate("two-models.yaml", {"--events", "/no/such/folder/e"}).err,
              HasSubstr("cannot write /no/such/folder/e"));
  EXPECT_THAT(Simulate("two-models.yaml", {"--html", "/no/such/folder/h"}).err,
              HasSubstr("cannot write /no/such/folder/h"));
}

}  // namespace
}  // namespace divvy::test
