#include "gate/ops_log.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gate/ops_pace.h"

namespace divvy::gate {
namespace {

class OpsLogTest : public ::testing::Test {
 protected:
  OpsLogTest() {
    std::string pattern = ::testing::TempDir() + "/divvy-ops-log-XXXXXX";
    directory_ = mkdtemp(pattern.data());
    log_ = Create();
  }
  ~OpsLogTest() override {
    CloseOpsLog(log_);
    std::filesystem::remove_all(directory_);
  }

  OpsLog* Create() const {
    char error[512] = "";
    OpsLog* const log = CreateOpsLog(directory_.c_str(), "train", error, sizeof error);
    EXPECT_NE(log, nullptr) << error;
    return log;
  }

  std::string directory_;
  OpsLog* log_;
};

TEST_F(OpsLogTest, SamplesComeOutAsTheyWentInUntilTheRingIsFull) {
  OpSample taken;
  EXPECT_FALSE(TakeOpSample(*log_, false, taken));
  for (std::uint64_t lap = 0; lap < 3; ++lap) {
    for (std::uint64_t i = 0; i < kOpSamples; ++i)
      ASSERT_TRUE(PushOpSample(*log_, {.start_ns = lap * 1'000'000 + i, .stream = 7}));
    EXPECT_FALSE(PushOpSample(*log_, {.start_ns = 1}));
    EXPECT_EQ(log_->dropped.load(), lap + 1);
    for (std::uint64_t i = 0; i < kOpSamples; ++i) {
      ASSERT_TRUE(TakeOpSample(*log_, false, taken));
      ASSERT_EQ(taken.start_ns, lap * 1'000'000 + i);
    }
    EXPECT_FALSE(TakeOpSample(*log_, true, taken));
  }
}

TEST_F(OpsLogTest, NothingOfManyThreadsIsLostOrMadeUp) {
  constexpr int kThreads = 3;
  constexpr std::uint64_t kEach = 20'000;
  std::vector<std::thread> threads;
  std::atomic<int> running{kThreads};
  for (std::uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (std::uint64_t i = 1; i <= kEach; ++i)
        PushOpSample(*log_, {.start_ns = i, .stream = thread, .duration_ns = 3});
      running.fetch_sub(1);
    });
  }
  std::uint64_t last[kThreads] = {};
  std::uint64_t taken = 0;
  for (bool done = false; !done;) {
    done = running.load() == 0;
    for (OpSample sample; TakeOpSample(*log_, false, sample); ++taken) {
      ASSERT_LT(sample.stream, std::uint64_t{kThreads});
      ASSERT_GT(sample.start_ns, last[sample.stream]) << "out of order, or twice";
      ASSERT_EQ(sample.duration_ns, 3U);
      last[sample.stream] = sample.start_ns;
    }
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(taken + log_->dropped.load(), kThreads * kEach);
}

TEST_F(OpsLogTest, ASampleThatItsWriterDidNotFinishIsSkippedWhenItIsDead) {
  log_->pushed.fetch_add(1);  // Killed between taking its place and writing it.
  ASSERT_TRUE(PushOpSample(*log_, {.start_ns = 2}));
  OpSample taken;
  EXPECT_FALSE(TakeOpSample(*log_, false, taken));
  ASSERT_TRUE(TakeOpSample(*log_, true, taken));
  EXPECT_EQ(taken.start_ns, 2U);
  EXPECT_FALSE(TakeOpSample(*log_, true, taken));
}

TEST_F(OpsLogTest, KindsShareNamesAndEndWhereTheRoomDoes) {
  EXPECT_EQ(AddOpKind(*log_, {}, "gemm"), 0);
  EXPECT_EQ(AddOpKind(*log_, {}, "relu"), 1);
  EXPECT_EQ(AddOpKind(*log_, {}, "gemm"), 2);
  EXPECT_STREQ(NameOfOpKind(*log_, 2), "gemm");
  EXPECT_EQ(log_->names_used, 10U);
  EXPECT_EQ(AddOpKind(*log_, {}, std::string(kOpNameBytes, 'x').c_str()), -1) << "no room";
  for (std::uint32_t i = 3; i < kOpKinds; ++i) ASSERT_GE(AddOpKind(*log_, {}, "relu"), 0);
  EXPECT_EQ(AddOpKind(*log_, {}, "relu"), -1);
  EXPECT_EQ(CountOpKinds(*log_), kOpKinds);
}

TEST_F(OpsLogTest, WhatAProgramScribbledOverIsNotFollowed) {
  ASSERT_EQ(AddOpKind(*log_, {}, "gemm"), 0);
  log_->kind_count.store(~0U);
  EXPECT_EQ(CountOpKinds(*log_), kOpKinds);
  for (const auto& [at, bytes] :
       {std::pair{kOpNameBytes, 0U}, {0U, kOpNameBytes}, {~0U, 1U}, {1U, ~0U}}) {
    log_->kinds[0].name_at = at;
    log_->kinds[0].name_bytes = bytes;
    EXPECT_STREQ(NameOfOpKind(*log_, 0), "");
  }
  EXPECT_STREQ(NameOfOpKind(*log_, ~0U), "");
}

TEST_F(OpsLogTest, EachProgramOfAProcessHasAFileOfItsOwnThatOthersMayNotRead) {
  OpsLog* const second = Create();
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    names.insert(entry.path().filename());
    struct stat status{};
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777U, 0600U);
    char error[512] = "";
    OpsLog* const opened = OpenOpsLog(entry.path().c_str(), error, sizeof error);
    EXPECT_NE(opened, nullptr) << error;
    CloseOpsLog(opened);
  }
  EXPECT_EQ(names.size(), 2U);
  CloseOpsLog(second);
}

TEST_F(OpsLogTest, OtherFilesAreRefusedAndNamed) {
  const std::string path = directory_ + "/ops-other";
  std::ofstream(path) << "no log";
  char error[512] = "";
  EXPECT_EQ(OpenOpsLog(path.c_str(), error, sizeof error), nullptr);
  EXPECT_EQ(std::string(error),
            path + " is no kernel log of version " + std::to_string(kOpsLogVersion));
  std::filesystem::resize_file(path, sizeof(OpsLog));
  EXPECT_EQ(OpenOpsLog(path.c_str(), error, sizeof error), nullptr) << "of the right size";
  EXPECT_EQ(CreateOpsLog((directory_ + "/none").c_str(), "p", error, sizeof error), nullptr);
  EXPECT_NE(std::strstr(error, "No such file"), nullptr) << error;
}

// A program of `kinds` kernels that launches one every `gap_ns` for three seconds; how many were
// timed.
std::uint64_t TimedIn3s(std::uint64_t gap_ns, std::size_t kinds, std::uint32_t ppm,
                        std::uint32_t sample_ns) {
  struct Kind {
    std::uint64_t launches = 0;
    std::uint32_t samples = 0;
  };
  std::vector<Kind> all(kinds);
  OpsPace pace{};
  pace.Begin(ppm, 1'000);
  std::uint64_t timed = 0;
  std::size_t at = 0;
  for (std::uint64_t now = 1'000; now < 3'000'000'000; now += gap_ns, at = (at + 1) % kinds) {
    Kind& kind = all[at];
    const std::uint64_t key = KeyOf({.handle = at});
    if (!pace.IsTurn(key, kind.launches++, kind.samples)) continue;
    if (!pace.Allows(now, kind.samples < OpsPace::kFirstSamples)) continue;
    pace.Charge(sample_ns);
    ++kind.samples;
    ++timed;
  }
  return timed;
}

TEST(OpsPaceTest, TimingCostsWhatItMayAndLittleLess) {
  // What one takes is found out as it goes: a slow driver has fewer, not more expensive ones.
  for (const std::uint32_t sample_ns : {6'000U, 300'000U}) {
    for (const std::uint64_t gap_ns : {2'000ULL, 10'000ULL, 100'000ULL}) {
      for (const std::size_t kinds : {1ULL, 300ULL}) {
        SCOPED_TRACE(std::to_string(sample_ns) + " ns a timing, a launch in " +
                     std::to_string(gap_ns) + " ns, " + std::to_string(kinds) + " kinds");
        const double cost =
            static_cast<double>(TimedIn3s(gap_ns, kinds, 5'000, sample_ns)) * sample_ns;
        const double most = 3e9 * 0.005 + OpsPace::kCreditAtFirstNs;
        EXPECT_LE(cost, most + sample_ns);
        EXPECT_GE(cost, most / 2.5);
      }
    }
  }
  // Where launches are rare nearly all of them are timed.
  EXPECT_GT(TimedIn3s(10'000'000, 1, 5'000, 6'000), 270U);
}

TEST(OpsPaceTest, AThreadThatWasStoppedInTheMiddleIsChargedForNoMoreThanTenMilliseconds) {
  OpsPace pace{};
  pace.Begin(kDefaultOpsCostPpm, 1'000);
  pace.Charge(3'600'000'000'000);
  EXPECT_FALSE(pace.Allows(2'000, false));
  EXPECT_TRUE(pace.Allows(2'000 + OpsPace::kMostChargeNs * 1'000'000 / kDefaultOpsCostPpm, false));
}

TEST(OpsPaceTest, KindsOfOneLoopAreNotTimedAllInTheSameRound) {
  OpsPace pace{};
  pace.Begin(kDefaultOpsCostPpm, 1'000);
  constexpr std::uint64_t kKinds = 320;
  for (std::uint64_t round = 100; round < 200; ++round) {
    std::uint64_t timed = 0;
    for (std::uint64_t kind = 0; kind < kKinds; ++kind)
      timed += pace.IsTurn(KeyOf({.handle = kind}), round, OpsPace::kFirstSamples) ? 1 : 0;
    EXPECT_GT(timed, kKinds / pace.Every() / 4);
    EXPECT_LT(timed, kKinds / pace.Every() * 4);
  }
}

TEST(OpsPaceTest, AKindIsTimedFromItsSecondLaunchOn) {
  OpsPace pace{};
  pace.Begin(kDefaultOpsCostPpm, 1'000);
  EXPECT_FALSE(pace.IsTurn(9, 0, 0));
  for (std::uint32_t i = 0; i < OpsPace::kFirstSamples; ++i) EXPECT_TRUE(pace.IsTurn(9, 1 + i, i));
}

TEST(OpsPaceTest, ALoopInTheProgramIsTimedInAllItsPlaces) {
  OpsPace pace{};
  pace.Begin(kDefaultOpsCostPpm, 1'000);
  for (const std::uint64_t period : {2U, 3U, 16U, 64U}) {
    std::vector<int> timed(period, 0);
    const std::uint64_t launches = 400 * period;
    for (std::uint64_t i = 0; i < launches; ++i) {
      if (pace.IsTurn(period, i, OpsPace::kFirstSamples)) ++timed[i % period];
    }
    for (const int count : timed) {
      EXPECT_GT(count, 400 / 16 / 3) << "of a loop of " << period;
      EXPECT_LT(count, 400 / 16 * 3) << "of a loop of " << period;
    }
  }
}

}  // namespace
}  // namespace divvy::gate
