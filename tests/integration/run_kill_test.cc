// What `divvy run` starts beside jobs is killed at random moments: the jobs do not notice.

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "run_fixture.h"

namespace divvy::test {
namespace {

constexpr int kKills = 60;
// A keeper gives up when daemons end so many times in a row within a quarter of a second, at this
// pace.
constexpr int kMostSoon = 2;
constexpr int kNotSoonMs = 300;
constexpr int kStatus = 7;

class RunKillTest : public RunTest {
 protected:
  RunningProgram StartJob(const std::string& name, const std::vector<std::string>& options) const {
    return Start(options, "echo $$ > " + node_.Path(name) + "; trap 'exit " +
                              std::to_string(kStatus) + "' EXIT;");
  }

  bool IsThere(const std::string& name) const {
    return kill(std::stoi(ReadFile(node_.Path(name))), 0) == 0;
  }

  void PauseUpTo(std::uint64_t ms) { poll(nullptr, 0, static_cast<int>(random_() % ms)); }

  // Keeper, daemon, or both.
  void KillSome() {
    const bool keeper = random_() % 2 != 0;
    const bool daemon = !keeper || random_() % 2 != 0;
    soon_ = keeper ? 0 : soon_ + 1;
    if (soon_ > kMostSoon) {
      poll(nullptr, 0, kNotSoonMs);
      soon_ = 0;
    }
    if (daemon) KillIfThere(Daemon());
    if (!keeper) return;
    ASSERT_NO_FATAL_FAILURE(KillKeeper());
    // The next one as well, whatever it has got to.
    if (random_() % 4 != 0) return;
    PauseUpTo(150);
    KillKeeper();
  }

  std::mt19937_64 random_{71};

 private:
  static void KillIfThere(pid_t pid) {
    if (pid > 0) kill(pid, SIGKILL);
  }

  // There is one, or one comes; while it asks its daemon something there are two of that name.
  void KillKeeper() const {
    pid_t keeper = -1;
    ASSERT_TRUE(Eventually([&] { return (keeper = Keeper()) > 0; }));
    KillIfThere(keeper);
  }

  int soon_ = 0;  // Daemons of this keeper that were killed in a row, soon after their start.
};

TEST_F(RunKillTest, JobsGoOnWhenDaemonsAndKeepersAreKilled) {
  RunningProgram training = StartJob("training", {"--class", "batch"});
  RunningProgram serving = StartJob("serving", {"--class", "latency", "--mps"});
  ASSERT_TRUE(training.AwaitOutput("ready"));
  ASSERT_TRUE(serving.AwaitOutput("ready"));
  for (int i = 0; i < kKills; ++i) {
    PauseUpTo(100);
    const pid_t before = Daemon();
    ASSERT_NO_FATAL_FAILURE(KillSome());
    ASSERT_TRUE(Eventually([&] { return Daemon() > 0 && Daemon() != before && Keeper() > 0; }))
        << "after kill " << i;
    ASSERT_TRUE(IsThere("training") && IsThere("serving")) << "after kill " << i;
    if (i % 10 != 9) continue;
    // Who comes finds a daemon, and leaves it a server.
    EXPECT_EQ(
        Run({"--class", "batch"}, "echo start_server -uid 0 | nvidia-cuda-mps-control").exit_status,
        0);
  }
  EXPECT_GT(Starts().size(), static_cast<std::size_t>(kKills));
  Release();
  for (RunningProgram* const job : {&training, &serving}) {
    const Finished done = job->Wait();
    EXPECT_EQ(done.exit_status, kStatus) << done.out;
    EXPECT_GT(CountOf(done.out, "was started anew"), 0);
    EXPECT_EQ(CountOf(done.out, "cannot be started again"), 0) << done.out;
  }
  ExpectNothingLeft();
}

}  // namespace
}  // namespace divvy::test
