#include "gate/gate_fixture.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "device/cuda_simulator/identity.h"

namespace divvy::tests {

namespace {

constexpr unsigned kPatienceSeconds = 120;
constexpr auto kAwaitAtMost = std::chrono::seconds(10);

}  // namespace

void GateTest::SetUp() {
  std::string pattern = ::testing::TempDir() + "/divvy-gate-XXXXXX";
  ASSERT_NE(mkdtemp(pattern.data()), nullptr);
  directory_ = pattern;
  ASSERT_TRUE(std::filesystem::create_directory(directory_ + "/boards"));
  alarm(kPatienceSeconds);
}

void GateTest::TearDown() {
  if (board_ != nullptr) {
    gate::Leave(board_, own_slot_);
    gate::RemoveIfEmpty(board_, BoardPath().c_str());
    gate::CloseBoard(board_);
  }
  for (const auto& left : std::filesystem::directory_iterator(directory_ + "/boards")) {
    ADD_FAILURE() << left.path() << " was left behind";
  }
  std::filesystem::remove_all(directory_);
  alarm(0);
}

std::unique_ptr<test::RunningProgram> GateTest::Start(As as, const Words& words,
                                                      const Environment& more) const {
  Environment environment{{"DIVVY_CUDA_SIM", directory_ + "/gpu"},
                          {"DIVVY_CUDA_SIM_STATS", directory_ + "/stats"},
                          {"DIVVY_BOARD_DIR", directory_ + "/boards"},
                          {"LD_LIBRARY_PATH", CUDA_SIM_DIRECTORY},
                          {"DIVVY_REPORT", "-"}};
  if (as != As::kUngated) {
    environment["LD_PRELOAD"] = GATE_LIBRARY;
    environment["DIVVY_CLASS"] = as == As::kLatency ? "latency" : "batch";
  }
  for (const auto& [name, value] : more) environment[name] = value;
  Words command = words;
  if (command.front().front() != '/') command.insert(command.begin(), SIM_JOB);
  return std::make_unique<test::RunningProgram>(command, environment);
}

test::Finished GateTest::Run(As as, const Words& words, const Environment& more) const {
  return Start(as, words, more)->Wait();
}

nlohmann::json GateTest::ResultOf(const test::Finished& finished) {
  const auto at = finished.out.find("RESULT ");
  if (at == std::string::npos) {
    ADD_FAILURE() << "no result, but:\n" << finished.out << finished.err;
    return {{"n", 0}, {"p50_ms", 1e9}, {"errors", -1}, {"first_error", -1}, {"child_status", -1}};
  }
  const auto begin = at + 7;
  return nlohmann::json::parse(finished.out.substr(begin, finished.out.find('\n', begin) - begin));
}

Coverage GateTest::CoverageIn(const std::string& text) {
  Coverage coverage;
  coverage.reports = test::CountOf(text, "launched under the gate");
  const auto line = [&](const char* what) {
    const auto at = text.rfind(what);
    return at == std::string::npos ? std::string() : text.substr(text.rfind('\n', at) + 1);
  };
  if (std::sscanf(line("launched under the gate").c_str(),
                  "divvy: %llu kernels and %llu graphs launched under the gate (%llu into",
                  &coverage.kernels, &coverage.graphs, &coverage.captured) != 3) {
    ADD_FAILURE() << "no report of what was launched in:\n" << text;
  }
  char mode[16] = "";
  if (std::sscanf(line("gate closed for").c_str(),
                  "divvy: GPU %*d: mode %15[a-z], gate closed for %lf ms by this job, %llu "
                  "requests, p99 %lf",
                  mode, &coverage.closed_ms, &coverage.requests, &coverage.p99_ms) == 4 ||
      std::sscanf(line("of GPU time charged").c_str(),
                  "divvy: GPU %*d: mode %15[a-z], %llu markers, %lf s of GPU time", mode,
                  &coverage.markers, &coverage.gpu_s) == 3) {
    coverage.mode = mode;
  }
  return coverage;
}

std::vector<nlohmann::json> GateTest::Stats() const {
  std::vector<nlohmann::json> stats;
  std::ifstream in(directory_ + "/stats");
  for (std::string line; std::getline(in, line);) stats.push_back(nlohmann::json::parse(line));
  return stats;
}

std::string GateTest::BoardPath() const {
  char path[512];
  gate::BoardPath((directory_ + "/boards").c_str(), device::cuda_simulator::UuidOf(0).bytes, path,
                  sizeof path);
  return path;
}

gate::Board* GateTest::OpenBoard() {
  if (board_ != nullptr && gate::IsCurrent(board_)) return board_;
  gate::CloseBoard(board_);
  char error[512] = "";
  board_ = gate::OpenBoard(BoardPath().c_str(), error, sizeof error);
  EXPECT_NE(board_, nullptr) << error;
  return board_;
}

gate::Slot* GateTest::SlotOf(gate::JobClass job_class) {
  for (gate::Slot& slot : OpenBoard()->slots) {
    const bool taken = slot.live.load(std::memory_order_acquire) != 0;
    if (taken && slot.job.job_class == job_class && slot.pid != getpid()) return &slot;
  }
  return nullptr;
}

gate::Slot* GateTest::JoinAsLatencyJob() {
  gate::JobIdentity job;
  job.job_class = gate::JobClass::kLatency;
  own_slot_ = gate::Join(OpenBoard(), job);
  if (own_slot_ < 0) {
    ADD_FAILURE() << "the board has no place";
    return nullptr;
  }
  gate::Slot& slot = board_->slots[own_slot_];
  // It has no keeper: never taken for stopped, however long this process has to wait for a CPU.
  slot.heartbeat_ns.store(gate::NowNs() + 1'000'000'000'000);
  return &slot;
}

bool GateTest::Await(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + kAwaitAtMost;
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

double GateTest::SecondsToLaunch(const gate::Slot& slot, std::uint64_t more) {
  const auto start = std::chrono::steady_clock::now();
  const std::uint64_t target = slot.launches.load() + more;
  if (!Await([&] { return slot.launches.load() >= target; })) return -1;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace divvy::tests
