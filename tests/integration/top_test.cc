// `divvy top` on boards that this test writes, as jobs would.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "gate/board.h"
#include "run_fixture.h"

namespace divvy::test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class TopTest : public RunTest {
 protected:
  TopTest() {
    char path[512];
    gate::BoardPath(node_.Path("boards").c_str(), kUuid, path, sizeof path);
    path_ = path;
    char error[512] = {};
    board_ = gate::OpenBoard(path, error, sizeof error);
    Check(board_ != nullptr, error);
  }
  ~TopTest() override { gate::CloseBoard(board_); }

  gate::Slot& Join(gate::JobClass job_class, const std::string& name) {
    gate::JobIdentity job;
    job.job_class = job_class;
    name.copy(job.name, sizeof job.name - 1);
    if (job_class == gate::JobClass::kLatency) job.slo_ns = 20'000'000;
    const int slot = gate::Join(board_, job);
    Check(slot >= 0, "the board has room");
    return board_->slots[slot];
  }

  Finished Top(const std::vector<std::string>& options) const {
    std::vector<std::string> words = {DIVVY_PATH, "top"};
    words.insert(words.end(), options.begin(), options.end());
    return RunProgram(words, environment_);
  }

  static constexpr unsigned char kUuid[16] = {0x9c, 0x10, 0x54, 0xb9, 0x38, 0x8e, 0x53, 0xe6,
                                              0x85, 0xf9, 0xc2, 0x37, 0xa0, 0x36, 0xaf, 0x06};
  std::string path_;
  gate::Board* board_ = nullptr;
};

TEST_F(TopTest, NobodyIsSaid) {
  const Finished table = Top({"--once"});
  EXPECT_EQ(table.exit_status, 0) << table.err;
  EXPECT_THAT(table.out, HasSubstr("nobody runs under the gate here (/"));
  EXPECT_EQ(json::parse(Top({"--once", "-o", "json"}).out).at("gpus"), json::array());
}

TEST_F(TopTest, JobsAreShownByGpuWithWhatTheyDid) {
  gate::Slot& serve = Join(gate::JobClass::kLatency, "serve.py");
  serve.openness = 250;
  serve.requests = 200;
  serve.late = 3;
  serve.p50_ns = 2'400'000;
  serve.p99_ns = 5'100'000;
  serve.rescued = 7;
  serve.marked = 1;
  gate::Slot& train = Join(gate::JobClass::kBatch, "train\x1b[31m");
  train.job.weight = 250;
  train.job.memory_quota = 20ULL << 30U;
  train.memory_bytes = 5ULL << 30U;
  train.launches = 1'000'000;
  train.mode = static_cast<std::uint32_t>(gate::GateMode::kDevice);
  const std::string before = ReadFile(path_);

  const json jobs = json::parse(Top({"--once", "-o", "json"}).out).at("gpus").at(0).at("jobs");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs[0].at("pid"), getpid());
  EXPECT_EQ(jobs[0].at("name"), "serve.py");
  EXPECT_EQ(jobs[0].at("class"), "latency");
  EXPECT_EQ(jobs[0].at("slo_ms"), 20.0);
  EXPECT_EQ(jobs[0].at("openness"), 0.25);
  EXPECT_EQ(jobs[0].at("p99_ms"), 5.1);
  EXPECT_EQ(jobs[0].at("late"), 0.015);
  EXPECT_EQ(jobs[0].at("mode"), "marked");
  EXPECT_EQ(jobs[0].at("rescued"), 7);
  EXPECT_EQ(jobs[0].at("memory_quota_bytes"), nullptr);
  EXPECT_EQ(jobs[1].at("weight"), 2.5);
  EXPECT_EQ(jobs[1].at("memory_quota_bytes"), 20ULL << 30U);
  EXPECT_EQ(jobs[1].at("mode"), "device");
  EXPECT_EQ(jobs[1].at("slo_ms"), nullptr);
  EXPECT_GT(jobs[1].at("launches_per_s"), 0);

  const std::string table = Top({"--once"}).out;
  EXPECT_THAT(table,
              AllOf(HasSubstr("GPU 9c1054b9-388e-53e6-85f9-c237a036af06\n"), HasSubstr("serve.py"),
                    HasSubstr("20ms"), HasSubstr("25.0%"), HasSubstr("5.1"), HasSubstr("1.5%"),
                    HasSubstr("batch x2.5"), HasSubstr("5/20"), Not(HasSubstr("\x1b"))));
  EXPECT_EQ(ReadFile(path_), before) << "top only looks";
}

TEST_F(TopTest, JobThatIsApartIsShownSo) {
  gate::Slot& serve = Join(gate::JobClass::kLatency, "serve.py");
  serve.apart = 1;
  serve.marked = 1;
  gate::Slot& train = Join(gate::JobClass::kBatch, "train.py");
  train.apart = 1;  // Means nothing of a batch job.
  train.mode = static_cast<std::uint32_t>(gate::GateMode::kDevice);
  gate::Slot& other = Join(gate::JobClass::kLatency, "other.py");

  const json jobs = json::parse(Top({"--once", "-o", "json"}).out).at("gpus").at(0).at("jobs");
  ASSERT_EQ(jobs.size(), 3U);
  EXPECT_EQ(jobs[0].at("apart"), true);
  EXPECT_EQ(jobs[0].at("mode"), "marked");
  EXPECT_EQ(jobs[1].at("apart"), nullptr);
  EXPECT_EQ(jobs[1].at("slice_us"), nullptr);
  EXPECT_EQ(jobs[2].at("apart"), false);

  const std::string table = Top({"--once"}).out;
  EXPECT_THAT(table, AllOf(ContainsRegex("serve.py +latency +apart "),
                           ContainsRegex("train.py +batch +device "),
                           ContainsRegex("other.py +latency +inferred ")));
  EXPECT_EQ(table.find("apart"), table.rfind("apart"));
  other.apart = 1;
  EXPECT_THAT(Top({"--once"}).out, ContainsRegex("other.py +latency +apart "));
}

TEST_F(TopTest, ServerOfMpsIsNoJobButItsTimeSlicesAreTold) {
  gate::Slot& server = Join(gate::JobClass::kServer, "nvidia-cuda-mps-server");
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("nobody runs under the gate here"));
  Join(gate::JobClass::kBatch, "train.py").slice_us = 300;
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("MPS' server: time slices of its driver's\n"));
  server.slice_us = 200;
  const json gpu = json::parse(Top({"--once", "-o", "json"}).out).at("gpus").at(0);
  ASSERT_EQ(gpu.at("jobs").size(), 1U);
  EXPECT_EQ(gpu.at("jobs")[0].at("name"), "train.py");
  EXPECT_EQ(gpu.at("jobs")[0].at("slice_us"), 300);
  ASSERT_EQ(gpu.at("mps_servers").size(), 1U);
  EXPECT_EQ(gpu.at("mps_servers")[0].at("pid"), getpid());
  EXPECT_EQ(gpu.at("mps_servers")[0].at("slice_us"), 200);
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("MPS' server: time slices of 200 us\n"));
}

TEST_F(TopTest, IntervalCountsOnlyWhatHappenedInIt) {
  gate::Slot& train = Join(gate::JobClass::kBatch, "train");
  train.launches = 1'000'000;
  train.gpu_ns = 3'600'000'000'000;
  const json job = json::parse(Top({"--once", "--interval", "50ms", "-o", "json"}).out)
                       .at("gpus")
                       .at(0)
                       .at("jobs")
                       .at(0);
  EXPECT_EQ(job.at("launches_per_s"), 0.0);
  EXPECT_EQ(job.at("gpu_share"), 0.0);
  EXPECT_GE(job.at("seconds"), 0.05);
}

TEST_F(TopTest, TheDeadAreNotShown) {
  gate::Slot& slot = Join(gate::JobClass::kBatch, "dead");
  slot.start_time += 1;  // As if the pid had been used again.
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("nobody runs under the gate here"));
}

TEST_F(TopTest, BoardOfAnotherVersionIsNamedNotRead) {
  Join(gate::JobClass::kBatch, "job");
  board_->version = gate::kBoardVersion + 1;
  EXPECT_THAT(Top({"--once"}).out, AllOf(HasSubstr("nobody"), HasSubstr("is of version")));
  std::ofstream(path_, std::ios::app) << "more";
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("has not the size of a board"));
}

TEST_F(TopTest, GpusGoByTheirNamesWhereNvmlKnowsThem) {
  Join(gate::JobClass::kBatch, "job");
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB"});
  const Finished list = RunProgram({DIVVY_PATH, "gpus", "-o", "json"}, environment_);
  std::string uuid = json::parse(list.out).at("gpus").at(0).at("uuid");
  const std::string given = uuid;
  uuid.erase(0, 4);
  std::erase(uuid, '-');
  std::filesystem::rename(path_, path_.substr(0, path_.size() - 32) + uuid);
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("GPU 0  NVIDIA H200"));
  EXPECT_EQ(json::parse(Top({"--once", "-o", "json"}).out).at("gpus").at(0).at("uuid"), given);
}

TEST_F(TopTest, WhoHasTheGpuPastTheGateIsNamed) {
  Join(gate::JobClass::kBatch, "job");
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB"});
  node_.Sim("start", {"--pid", "4242", "--name", "rogue.py", "--memory", "1GiB"});
  node_.Sim("start", {"--pid", "4243", "--name", "nvidia-cuda-mps-server"});
  EXPECT_THAT(Top({"--once"}).out, Not(HasSubstr("not under the gate")))
      << "the job is not in the list, so its pids are not ours";
  node_.Sim("start", {"--pid", std::to_string(getpid())});
  EXPECT_THAT(Top({"--once"}).out, HasSubstr("\nnot under the gate: 4242 'rogue.py' (1 GiB)\n"));
  const json others =
      json::parse(Top({"--once", "-o", "json"}).out).at("gpus").at(0).at("not_under_the_gate");
  EXPECT_EQ(others,
            json::parse(R"([{"pid": 4242, "name": "rogue.py", "memory_bytes": 1073741824}])"));
}

// NVML is not asked at every reading: what it said must not outlive the jobs that it was said of.
TEST_F(TopTest, JobThatEndsIsNotNamedAsPastTheGate) {
  gate::Slot& stays = Join(gate::JobClass::kBatch, "stays");
  gate::Slot& ends = Join(gate::JobClass::kBatch, "ends");
  ends.pid = 1;  // Another process that is there.
  ends.start_time = gate::StartTime(1);
  environment_["DIVVY_NVML"] = NVML_SIM_LIBRARY;
  node_.Sim("init", {"--gpus", "H200-141GB"});
  node_.Sim("start", {"--pid", std::to_string(getpid())});
  node_.Sim("start", {"--pid", "1"});
  RunningProgram top({DIVVY_PATH, "top", "--interval", "10ms", "-o", "json"}, environment_);
  ASSERT_TRUE(top.AwaitOutput("\"name\":\"ends\""));
  node_.Sim("stop", {"--pid", "1"});
  ends.live = 0;
  stays.launches = 4321;
  ASSERT_TRUE(top.AwaitOutput("\"launches\":4321,"));
  top.Signal(SIGTERM);
  const Finished finished = top.Wait();
  EXPECT_EQ(finished.exit_status, 0) << finished.err;
  EXPECT_THAT(finished.out, Not(HasSubstr("\"not_under_the_gate\":[{")));
}

TEST_F(TopTest, GoesOnUntilASignalAndLeavesTheTerminalAsItWas) {
  Join(gate::JobClass::kBatch, "job");
  RunningProgram lines({DIVVY_PATH, "top", "--interval", "20ms", "-o", "json"}, environment_);
  ASSERT_TRUE(lines.AwaitOutput("}\n{"));
  lines.Signal(SIGTERM);
  EXPECT_EQ(lines.Wait().exit_status, 0);

  for (const auto& [name, value] : environment_) setenv(name.c_str(), value.c_str(), 1);
  int terminal = -1;
  const pid_t top = forkpty(&terminal, nullptr, nullptr, nullptr);
  if (top == 0) {
    execl(DIVVY_PATH, "divvy", "top", "--interval", "20ms", nullptr);
    _exit(127);
  }
  std::string seen;
  char buffer[512];
  for (ssize_t got = 0; (got = read(terminal, buffer, sizeof buffer)) > 0;) {
    const bool first = seen.find("\x1b[2J") == std::string::npos;
    seen.append(buffer, static_cast<std::size_t>(got));
    if (first && seen.find("\x1b[2J") != std::string::npos) kill(top, SIGINT);
  }
  int status = 0;
  EXPECT_EQ(waitpid(top, &status, 0), top);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_THAT(seen, AllOf(HasSubstr("\x1b[?1049h"), HasSubstr("\x1b[?25h\x1b[?1049l")));
  close(terminal);
}

}  // namespace
}  // namespace divvy::test
