// `divvy profile MODEL`, with workers that take a known time and a stand-in for MPS.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "run_fixture.h"

namespace divvy::test {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

// Rows of a CSV file without quotes before the last column, by the header's names.
std::vector<std::map<std::string, std::string>> Rows(const std::string& text) {
  std::istringstream lines(text);
  std::vector<std::string> names;
  std::vector<std::map<std::string, std::string>> rows;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::vector<std::string> words;
    for (std::string word; std::getline(fields, word, ',');) words.push_back(word);
    if (names.empty()) {
      names = words;
      continue;
    }
    auto& row = rows.emplace_back();
    for (std::size_t i = 0; i < std::min(names.size(), words.size()); ++i) row[names[i]] = words[i];
  }
  return rows;
}

class ProfileMeasureTest : public RunTest {
 protected:
  Finished Profile(const std::vector<std::string>& words) const {
    std::vector<std::string> all = {DIVVY_PATH, "profile"};
    all.insert(all.end(), words.begin(), words.end());
    return RunProgram(all, environment_);
  }

  // A program for --command: writes down its environment and becomes a worker of a synthetic model.
  std::string Server(const std::string& latencies) const {
    return "sh " +
           node_.Write("server.sh", "env > " + node_.dir() + "/env-$$\nexec " + DIVVY_WORKER_PATH +
                                        " --model $DIVVY_MODEL --engine synthetic "
                                        "--input x:FP32:4 --output y:FP32:1 "
                                        "--max-batch $DIVVY_MAX_BATCH --latency-us " +
                                        latencies + " \"$@\"\n");
  }

  // The values that a variable had in the servers.
  std::multiset<std::string> Seen(const std::string& variable) const {
    std::multiset<std::string> values;
    for (const auto& entry : fs::directory_iterator(node_.dir())) {
      if (!entry.path().filename().string().starts_with("env-")) continue;
      std::istringstream lines(ReadFile(entry.path()));
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with(variable + "=")) values.insert(line.substr(variable.size() + 1));
      }
    }
    return values;
  }
};

TEST_F(ProfileMeasureTest, MeasuresWhatWorkersTakeAndWritesAProfile) {
  const std::string path = node_.Path("p.csv");
  const Finished done = Profile({"--synthetic", "1:2000,8:16000", "--max-batch", "8", "--on", "cpu",
                                 "--gpu-kind", "h200", "--partitions", "132sm", "--point-limit",
                                 "0.1", "--all-points", "--save", path, "-o", "csv"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("132sm, batch 8: "), HasSubstr(" left\n"),
                              HasSubstr("wrote " + path + ": 4 points")));
  EXPECT_EQ(done.out, ReadFile(path));
  const auto rows = Rows(done.out);
  ASSERT_EQ(rows.size(), 4U) << done.out;
  double items = 1;
  for (const auto& row : rows) {
    EXPECT_EQ(row.at("model"), "synthetic");
    EXPECT_EQ(row.at("partition"), "132sm");
    EXPECT_EQ(std::stod(row.at("batch")), items);
    // A busy machine takes longer, never less.
    EXPECT_GE(std::stod(row.at("latency_ms")), 2 * items);
    EXPECT_GE(std::stod(row.at("p50_ms")), 2 * items);
    EXPECT_GT(std::stod(row.at("memory_mib")), 1);
    EXPECT_FALSE(row.contains("power_w")) << "there is no meter";
    EXPECT_EQ(row.at("gpu"), "CPU");
    items *= 2;
  }
  EXPECT_THAT(done.out, AllOf(HasSubstr("measured 20"), HasSubstr("divvy profile --synthetic")));
  EXPECT_FALSE(fs::exists(path + ".partial"));
  EXPECT_EQ(Profile({"check", path}).exit_status, 0);
  ExpectNothingLeft();
}

TEST_F(ProfileMeasureTest, MpsPartitionsAreSharesOfADaemonOfItsOwn) {
  const Finished done = Profile({"--command", Server("300"), "--model", "m", "--on", "mps",
                                 "--gpu-kind", "h200", "--partitions", "16sm,132sm", "--processes",
                                 "1,2", "--max-batch", "2", "--point-limit", "0.05", "-o", "csv"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.err, HasSubstr("MPS (daemon of GPU 0 started)"));
  // Two processes have the SMs of the partition together.
  EXPECT_EQ(Seen("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"),
            (std::multiset<std::string>{"100", "13", "50", "50", "7", "7"}));
  const std::string pipe = node_.Path("run") + "/divvy/mps-0/pipe";
  EXPECT_EQ(Seen("CUDA_MPS_PIPE_DIRECTORY").count(pipe), 6U);
  EXPECT_EQ(Seen("DIVVY_MAX_BATCH").count("2"), 6U);
  EXPECT_EQ(Starts().size(), 1U);
  std::set<std::string> curves;
  for (const auto& row : Rows(done.out)) {
    curves.insert(row.at("partition") + " x" + row.at("processes"));
    EXPECT_EQ(row.at("gpu"), "H200-141GB");
    EXPECT_FALSE(row.contains("memory_mib")) << "no NVML tells it";
  }
  EXPECT_THAT(curves, ::testing::ElementsAre("132sm x1", "132sm x2", "16sm x1", "16sm x2"));
  EXPECT_THAT(done.out, HasSubstr(" MPS"));
  ExpectNothingLeft();
}

TEST_F(ProfileMeasureTest, ItsDaemonHasTheGateForJobsThatComeToIt) {
  environment_["CUDA_VISIBLE_DEVICES"] = "GPU-9c1054b9-388e-53e6-85f9-c237a036af06";
  const Finished done =
      Profile({"--command", Server("300"), "--model", "m", "--on", "mps", "--gpu-kind", "h200",
               "--partitions", "132sm", "--max-batch", "1", "--point-limit", "0.05", "-o", "csv"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  ASSERT_EQ(Starts().size(), 1U);
  EXPECT_THAT(Starts().front(), EndsWith("/src/gate/libdivvy_gate.so"));
  EXPECT_EQ(Seen("DIVVY_MPS").size() + Seen("DIVVY_APART").size(), 0U) << "no gate is in them";
  ExpectNothingLeft();
}

TEST_F(ProfileMeasureTest, ACrowdedGpuHasAllSharesAtWork) {
  const Finished done =
      Profile({"--command", Server("300"), "--model", "m", "--on", "mps", "--gpu-kind", "h200",
               "--partitions", "16sm,60sm,132sm", "--max-batch", "1", "--point-limit", "0.05",
               "--crowded", "-o", "csv"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  const auto percentages = Seen("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE");
  EXPECT_EQ(percentages.count("13"), 7U);
  EXPECT_EQ(percentages.count("46"), 2U);
  EXPECT_EQ(percentages.count("100"), 1U);
  const auto rows = Rows(done.out);
  ASSERT_EQ(rows.size(), 3U) << done.out;
  for (const auto& row : rows) EXPECT_FALSE(row.contains("processes")) << "one a partition";
  EXPECT_THAT(done.out, HasSubstr("all shares at work"));
  const Finished refused = Profile({"--synthetic", "300", "--on", "cpu", "--crowded"});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.err, HasSubstr("--crowded is for shares of the SMs"));
}

TEST_F(ProfileMeasureTest, MigInstancesAreThoseThatAreThereAndIdle) {
  node_.Sim("init", {"--gpus", "H200-141GB+mig"});
  node_.Sim("create", {"--profile", "3g.71gb", "--start", "4"});
  node_.Sim("create", {"--profile", "1g.18gb", "--start", "0"});
  node_.Sim("create", {"--profile", "1g.18gb", "--start", "1"});
  node_.Sim("start", {"--gpu", "0", "--start", "0", "--pid", "4242", "--name", "train.py"});
  environment_["DIVVY_NVML"] = node_.Environment().at("DIVVY_NVML");
  const Finished done = Profile({"--command", Server("300"), "--model", "m", "--max-batch", "1",
                                 "--point-limit", "0.05", "-o", "csv"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  const auto rows = Rows(done.out);
  ASSERT_EQ(rows.size(), 2U) << done.out;
  EXPECT_EQ(rows[0].at("partition"), "1g.18gb");
  EXPECT_EQ(rows[1].at("partition"), "3g.71gb");
  const auto devices = Seen("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(std::set<std::string>(devices.begin(), devices.end()).size(), 2U);
  for (const std::string& device : devices) EXPECT_THAT(device, ::testing::StartsWith("MIG-"));
  EXPECT_TRUE(Starts().empty()) << "one process an instance needs no daemon";
  ExpectNothingLeft();
}

TEST_F(ProfileMeasureTest, GoesOnWhereItWasStopped) {
  const std::string path = node_.Path("p.csv");
  const std::vector<std::string> words = {"profile", "--synthetic",   "20000", "--max-batch",
                                          "64",      "--on",          "cpu",   "--partitions",
                                          "132sm",   "--point-limit", "0.05",  "--save",
                                          path,      "--all-points"};
  std::vector<std::string> loud = {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh", DIVVY_PATH};
  loud.insert(loud.end(), words.begin(), words.end());
  for (const int signal : {SIGTERM, SIGKILL}) {
    RunningProgram first(loud, environment_);
    ASSERT_TRUE(first.AwaitOutput(signal == SIGTERM ? "batch 64: " : "batch 8: "));
    first.Signal(signal);
    const Finished ended = first.Wait();
    EXPECT_FALSE(fs::exists(path));
    ASSERT_TRUE(fs::exists(path + ".partial"));
    if (signal != SIGTERM) continue;
    EXPECT_EQ(ended.exit_status, 1);
    EXPECT_THAT(ended.out, AllOf(HasSubstr("stopped by a signal"), HasSubstr(".partial has ")));
  }
  std::vector<std::string> other(words.begin() + 1, words.end());
  other.insert(other.end(), {"--precision", "3"});
  const Finished refused = Profile(other);
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.err, HasSubstr("--restart"));

  const Finished done = Profile({words.begin() + 1, words.end()});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("going on after "), Not(HasSubstr("batch 1:")),
                              Not(HasSubstr("batch 64:"))));
  EXPECT_EQ(Rows(ReadFile(path)).size(), 7U);
  EXPECT_FALSE(fs::exists(path + ".partial"));
}

TEST_F(ProfileMeasureTest, ARunningServerIsOnePartition) {
  const std::string socket = node_.Path("w.sock");
  RunningProgram worker(
      {DIVVY_WORKER_PATH, "--listen", "unix:" + socket, "--model", "m", "--engine", "synthetic",
       "--input", "x:FP32:-1", "--output", "y:FP32:1", "--max-batch", "4", "--latency-us", "500"},
      environment_);
  ASSERT_TRUE(worker.AwaitOutput("ready"));
  const Finished done = Profile({"http://unix:" + socket, "--model", "m", "--partitions", "7g",
                                 "--input", "x:FP32:8", "--point-limit", "0.05", "-o", "json"});
  ASSERT_EQ(done.exit_status, 0) << done.err;
  // The server takes four items at most.
  EXPECT_THAT(done.out, AllOf(HasSubstr("\"partition\": \"7g\""), HasSubstr("\"batch\": 4,"),
                              Not(HasSubstr("\"batch\": 8,")), HasSubstr("\"gpu\": null")));
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait().exit_status, 0);
}

TEST_F(ProfileMeasureTest, SaysWhatIsWrong) {
  struct Case {
    std::vector<std::string> words;
    int status;
    std::string message;
  };
  const std::string model = node_.Write("m.pt", "no model");
  const std::vector<Case> cases = {
      {{}, 2, "say what to measure"},
      {{"/nowhere.pt", "--input", "x:FP32:4", "--engine", "e.so"}, 2, "no file '/nowhere.pt'"},
      {{model, "--engine", "e.so"}, 2, "--input: say what the model takes"},
      {{model, "--synthetic", "1:5"}, 2, "measure one thing"},
      {{"--synthetic", "1:5", "--on", "cpu", "--partitions", "5g"}, 2, "it has 1g.18gb"},
      {{"--synthetic", "1:5", "--on", "cpu", "--gpu-kind", "h20x"}, 2, "--gpu-kind: "},
      {{"--synthetic", "1:5", "--on", "mps"}, 1, "--gpu-kind"},
      {{"http://127.0.0.1:1", "--partitions", "7g"}, 2, "--model"},
      {{"http://127.0.0.1:1", "--model", "m"}, 2, "--partitions"},
      {{"--command", "false", "--on", "cpu"}, 1, "a worker ended"},
      {{"check", "p.csv", "--on", "mps"}, 2, "--on"},
  };
  for (const Case& one : cases) {
    const Finished done = Profile(one.words);
    EXPECT_EQ(done.exit_status, one.status) << one.message << ": " << done.err;
    EXPECT_THAT(done.err, HasSubstr(one.message));
  }
  ExpectNothingLeft();
}

}  // namespace
}  // namespace divvy::test
