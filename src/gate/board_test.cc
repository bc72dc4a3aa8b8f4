#include "gate/board.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace divvy::gate {
namespace {

JobIdentity Job(JobClass job_class, const char* name = "job") {
  JobIdentity job;
  job.job_class = job_class;
  std::strncpy(job.name, name, sizeof job.name - 1);
  return job;
}

// Runs `body` in a child process that ends without destructors, as a killed one does.
pid_t Start(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  return child;
}

int End(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int RunChild(const std::function<int()>& body) { return End(Start(body)); }

std::vector<std::atomic<std::uint64_t>*> Counters(Slot& slot) {
  return {&slot.launches,   &slot.graphs,         &slot.markers,   &slot.gpu_ns,
          &slot.virtual_ns, &slot.last_launch_ns, &slot.closed_ns, &slot.memory_bytes,
          &slot.requests,   &slot.late,           &slot.p50_ns,    &slot.p99_ns,
          &slot.rescued,    &slot.short_since_ns, &slot.alone_ns};
}

int LiveSlots(const Board& board) {
  int live = 0;
  for (const Slot& slot : board.slots) live += slot.live.load() != 0 ? 1 : 0;
  return live;
}

class BoardTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/divvy-board-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = directory_ + "/board";
  }

  void TearDown() override {
    for (Board* board : opened_) CloseBoard(board);
    unlink(path_.c_str());
    EXPECT_EQ(rmdir(directory_.c_str()), 0) << "something else was left in " << directory_;
  }

  Board* Open() {
    error_ = {};
    Board* board = OpenBoard(path_.c_str(), error_.data(), sizeof error_);
    if (board != nullptr) opened_.push_back(board);
    return board;
  }

  bool Exists() const { return access(path_.c_str(), F_OK) == 0; }
  std::string Error() const { return error_.data(); }

  std::string directory_;
  std::string path_;
  std::array<char, 512> error_{};
  std::vector<Board*> opened_;
};

TEST_F(BoardTest, FirstMakesItAndSecondSeesTheSame) {
  Board* first = Open();
  ASSERT_NE(first, nullptr) << Error();
  struct stat status{};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
  Board* second = Open();
  ASSERT_NE(second, nullptr) << Error();
  const int slot = Join(first, Job(JobClass::kLatency, "serve"));
  ASSERT_EQ(slot, 0);
  EXPECT_STREQ(IdentityOf(second->slots[slot]).name, "serve");
  EXPECT_EQ(second->latency_jobs.load(), 1U);
  EXPECT_EQ(second->slots[slot].level.load(), kOpen);
}

TEST_F(BoardTest, ModeIsPrivateWhateverTheUmask) {
  for (const mode_t mask : {0U, 0277U}) {
    const mode_t before = umask(mask);
    Board* board = Open();
    umask(before);
    ASSERT_NE(board, nullptr) << Error();
    struct stat status{};
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600U);
    ASSERT_TRUE(RemoveIfEmpty(board, path_.c_str()));
  }
}

TEST_F(BoardTest, RefusesAFileThatOthersMayOpen) {
  ASSERT_NE(Open(), nullptr);
  for (const mode_t mode : {0660U, 0604U, 0610U}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_EQ(Open(), nullptr) << std::oct << mode;
    EXPECT_NE(Error().find(path_), std::string::npos) << Error();
    EXPECT_NE(Error().find("0600"), std::string::npos) << Error();
  }
}

TEST_F(BoardTest, RefusesAFileOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  ASSERT_NE(Open(), nullptr);
  ASSERT_EQ(chown(path_.c_str(), 12345, static_cast<gid_t>(-1)), 0);
  EXPECT_EQ(Open(), nullptr);
  EXPECT_NE(Error().find("user 0"), std::string::npos) << Error();
}

TEST_F(BoardTest, RefusesALinkAndLeavesItsTargetAlone) {
  const std::string target = directory_ + "/target";
  const int fd = open(target.c_str(), O_RDWR | O_CREAT, 0600);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_EQ(Open(), nullptr);
  EXPECT_NE(Error(), "");
  struct stat status{};
  ASSERT_EQ(fstat(fd, &status), 0);
  EXPECT_EQ(status.st_size, 0);
  close(fd);
  unlink(target.c_str());
}

TEST_F(BoardTest, RefusesAFolder) {
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(Open(), nullptr);
  EXPECT_NE(Error(), "");
  ASSERT_EQ(rmdir(path_.c_str()), 0);
}

TEST_F(BoardTest, RefusesAnotherSize) {
  for (const off_t size : {off_t{1}, off_t{sizeof(Board) - 1}, off_t{sizeof(Board) + 1}}) {
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, size), 0);
    close(fd);
    EXPECT_EQ(Open(), nullptr) << size;
    EXPECT_NE(Error().find(std::to_string(size) + " bytes"), std::string::npos) << Error();
    EXPECT_TRUE(Exists()) << "another version's board is not ours to remove";
  }
}

TEST_F(BoardTest, RefusesAnotherVersion) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  board->version = kBoardVersion + 1;
  EXPECT_EQ(Open(), nullptr);
  EXPECT_NE(Error().find("version " + std::to_string(kBoardVersion + 1)), std::string::npos)
      << Error();
}

TEST_F(BoardTest, SaysWhyItCannotBeMade) {
  error_ = {};
  const std::string path = directory_ + "/missing/board";
  EXPECT_EQ(OpenBoard(path.c_str(), error_.data(), sizeof error_), nullptr);
  EXPECT_NE(Error().find(path), std::string::npos) << Error();
}

TEST_F(BoardTest, WhatAMakerLeftUnfinishedIsMadeAnew) {
  for (const off_t size :
       {off_t{0}, off_t{sizeof(Board)}}) {  // Died before and after giving it its size.
    const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(ftruncate(fd, size), 0);
    close(fd);
    Board* board = Open();
    ASSERT_NE(board, nullptr) << Error();
    EXPECT_TRUE(IsCurrent(board));
    ASSERT_TRUE(RemoveIfEmpty(board, path_.c_str()));
  }
}

TEST_F(BoardTest, SeveralThatFindItUnfinishedAtOnceAgreeOnOne) {
  constexpr int kJobs = 6;
  const int fd = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  ASSERT_GE(fd, 0);
  close(fd);
  int joined[2];
  int done[2];
  ASSERT_EQ(pipe(joined), 0);
  ASSERT_EQ(pipe(done), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < kJobs; ++i) {
    children.push_back(Start([&] {
      close(done[1]);
      char error[512];
      Board* board = OpenBoard(path_.c_str(), error, sizeof error);
      const char said = board != nullptr && Join(board, Job(JobClass::kBatch)) >= 0 ? 'j' : 'x';
      if (write(joined[1], &said, 1) != 1) return 2;
      char end = 0;
      return read(done[0], &end, 1) == 0 ? 0 : 3;  // Stays until the parent has counted.
    }));
  }
  for (int i = 0; i < kJobs; ++i) {
    char said = 0;
    ASSERT_EQ(read(joined[0], &said, 1), 1);
    EXPECT_EQ(said, 'j');
  }
  Board* board = Open();
  ASSERT_NE(board, nullptr) << Error();
  EXPECT_EQ(LiveSlots(*board), kJobs) << "some of them are on a board that nobody else sees";
  close(done[1]);
  for (const pid_t child : children) EXPECT_EQ(End(child), 0);
  for (const int end : {joined[0], joined[1], done[0]}) close(end);
}

TEST_F(BoardTest, LeavingOpensTheGateAndFreesTheSlot) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int slot = Join(board, Job(JobClass::kLatency));
  ASSERT_GE(slot, 0);
  board->slots[slot].level.store(kClosed);
  board->slots[slot].closed_since_ns.store(NowNs());
  Leave(board, slot);
  EXPECT_EQ(board->slots[slot].live.load(), 0U);
  EXPECT_EQ(board->slots[slot].level.load(), kOpen);
  EXPECT_EQ(board->slots[slot].closed_since_ns.load(), 0U);
  EXPECT_EQ(board->latency_jobs.load(), 0U);
  Leave(board, slot);
  Leave(board, -1);
}

TEST_F(BoardTest, OneDoesNotLeaveForAnother) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int slot = Join(board, Job(JobClass::kBatch));
  ASSERT_GE(slot, 0);
  // A child that was forked with its parent's slot number.
  EXPECT_EQ(RunChild([&] {
              Leave(board, slot);
              return 0;
            }),
            0);
  EXPECT_EQ(board->slots[slot].live.load(), 1U);
}

TEST_F(BoardTest, ASlotIsHandedOnClean) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int first = Join(board, Job(JobClass::kLatency));
  ASSERT_GE(first, 0);
  Slot& slot = board->slots[first];
  slot.openness.store(kNoProtection);
  for (auto* counter : Counters(slot)) {
    counter->store(7);
  }
  slot.marked.store(1);
  slot.mode.store(3);
  Leave(board, first);

  ASSERT_EQ(Join(board, Job(JobClass::kBatch)), first);

  EXPECT_EQ(slot.openness.load(), 0U);
  for (auto* counter : Counters(slot)) {
    EXPECT_EQ(counter->load(), 0U);
  }
  EXPECT_EQ(slot.marked.load(), 0U);
  EXPECT_EQ(slot.mode.load(), 0U);
  EXPECT_EQ(board->latency_jobs.load(), 0U);
  EXPECT_EQ(board->batch_jobs.load(), 1U);
}

TEST_F(BoardTest, ABatchJobStartsLevelWithTheLeastAdvanced) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int latency = Join(board, Job(JobClass::kLatency));
  const int ahead = Join(board, Job(JobClass::kBatch));
  const int behind = Join(board, Job(JobClass::kBatch));
  ASSERT_EQ(latency, 0);
  board->slots[ahead].virtual_ns.store(900);
  board->slots[behind].virtual_ns.store(400);
  const int late = Join(board, Job(JobClass::kBatch));
  EXPECT_EQ(board->slots[late].virtual_ns.load(), 400U);
}

TEST_F(BoardTest, AFullBoardTakesNobodyMore) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  for (int i = 0; i < kSlots; ++i) ASSERT_EQ(Join(board, Job(JobClass::kBatch)), i);
  EXPECT_EQ(Join(board, Job(JobClass::kBatch)), -1);
  EXPECT_TRUE(IsCurrent(board)) << "full is not gone";
  Leave(board, 17);
  EXPECT_EQ(Join(board, Job(JobClass::kLatency)), 17);
  EXPECT_EQ(board->batch_jobs.load(), static_cast<std::uint32_t>(kSlots) - 1);
  EXPECT_EQ(board->latency_jobs.load(), 1U);
}

TEST_F(BoardTest, TheDeadAreReapedAndTheirGatesOpened) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int own = Join(board, Job(JobClass::kBatch));
  ASSERT_EQ(RunChild([&] {
              const int slot = Join(board, Job(JobClass::kLatency));
              board->slots[slot].level.store(kClosed);
              board->slots[slot].closed_since_ns.store(NowNs());
              return slot;
            }),
            1);
  EXPECT_EQ(board->slots[1].level.load(), kClosed);
  EXPECT_EQ(Reap(board), 1);
  EXPECT_EQ(Reap(board), 0);
  EXPECT_EQ(board->slots[1].level.load(), kOpen);
  EXPECT_EQ(board->slots[1].live.load(), 0U);
  EXPECT_EQ(board->slots[own].live.load(), 1U);
  EXPECT_EQ(board->latency_jobs.load(), 0U);
  EXPECT_EQ(board->batch_jobs.load(), 1U);
}

TEST_F(BoardTest, AZombieIsDead) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const pid_t child = Start([&] { return Join(board, Job(JobClass::kLatency)); });
  siginfo_t info{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(StartTime(child), 0U);
  EXPECT_EQ(Reap(board), 1);
  End(child);
}

// A program that has run out of them is full of others' work, and declares nobody dead.
TEST_F(BoardTest, WithoutFileDescriptorsNobodyIsTakenForDead) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const pid_t gone = Start([] { return 0; });
  End(gone);
  EXPECT_EQ(RunChild([&] {
              const int early = Join(board, Job(JobClass::kLatency));
              const rlimit none{0, 0};
              if (setrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
              const int late = Join(board, Job(JobClass::kBatch));
              if (Reap(board) != 0) return 2;
              if (board->slots[early].live.load() == 0 || board->slots[late].live.load() == 0)
                return 3;
              return IsAlive(gone, 1) ? 4 : 0;
            }),
            0);
  EXPECT_EQ(Reap(board), 2) << "one of them without having been looked up when it joined";
}

TEST_F(BoardTest, APidUsedAgainIsNotTheOneThatJoined) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int slot = Join(board, Job(JobClass::kBatch));
  ASSERT_GE(slot, 0);
  EXPECT_TRUE(IsAlive(getpid(), StartTime(getpid())));
  EXPECT_FALSE(IsAlive(getpid(), StartTime(getpid()) + 1));
  EXPECT_FALSE(IsAlive(getpid(), 0));
  board->slots[slot].start_time += 1;
  EXPECT_EQ(Reap(board), 1);
}

TEST_F(BoardTest, StartTimeIsReadPastAnAwkwardProgramName) {
  const std::uint64_t here = StartTime(getpid());
  EXPECT_NE(here, 0U);
  EXPECT_EQ(RunChild([&] {
              const std::uint64_t before = StartTime(getpid());
              const int fd = open("/proc/self/comm", O_WRONLY);
              if (fd < 0 || write(fd, "a) Z 1 (b", 9) != 9) return 2;
              return before != 0 && StartTime(getpid()) == before ? 0 : 1;
            }),
            0);
}

TEST_F(BoardTest, AHolderThatDiedDoesNotKeepTheLock) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  ASSERT_EQ(RunChild([&] { return pthread_mutex_lock(&board->lock); }), 0);
  EXPECT_EQ(Join(board, Job(JobClass::kBatch)), 0);
  EXPECT_EQ(Join(board, Job(JobClass::kBatch)), 1) << "the lock was made usable for good";
}

TEST_F(BoardTest, CountsAreRightAfterAJobDiedWhileItLeft) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  // Killed between giving its slot back and counting who is left.
  ASSERT_EQ(RunChild([&] {
              const int slot = Join(board, Job(JobClass::kLatency));
              if (pthread_mutex_lock(&board->lock) != 0) return 1;
              board->slots[slot].live.store(0);
              return 0;
            }),
            0);
  EXPECT_EQ(board->latency_jobs.load(), 1U);
  Reap(board);
  EXPECT_EQ(board->latency_jobs.load(), 0U) << "batch jobs put markers for nobody, for ever";
}

TEST_F(BoardTest, TheLastToLeaveRemovesItAndALateComerMakesANewOne) {
  Board* board = Open();
  Board* late = Open();
  ASSERT_NE(board, nullptr);
  ASSERT_NE(late, nullptr);
  const int slot = Join(board, Job(JobClass::kBatch));
  EXPECT_FALSE(RemoveIfEmpty(board, path_.c_str()));
  EXPECT_TRUE(Exists());
  Leave(board, slot);
  EXPECT_TRUE(RemoveIfEmpty(board, path_.c_str()));
  EXPECT_FALSE(Exists());

  // The late comer opened the old one in time, but comes to join it too late.
  EXPECT_FALSE(IsCurrent(late));
  EXPECT_EQ(Join(late, Job(JobClass::kLatency)), -1);
  Board* fresh = Open();
  ASSERT_NE(fresh, nullptr) << Error();
  EXPECT_EQ(Join(fresh, Job(JobClass::kLatency)), 0);
  // Nor does anybody who still has the old one remove the new.
  EXPECT_FALSE(RemoveIfEmpty(late, path_.c_str()));
  EXPECT_TRUE(Exists());
}

TEST_F(BoardTest, TheDeadDoNotKeepItFromBeingRemoved) {
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  ASSERT_EQ(RunChild([&] { return Join(board, Job(JobClass::kLatency)); }), 0);
  EXPECT_TRUE(RemoveIfEmpty(board, path_.c_str()));
  EXPECT_FALSE(Exists());
}

// Joins and leaves as jobs do, making the board again where the last to leave removed it.
int ComeAndGo(const std::string& path, int rounds) {
  for (int i = 0; i < rounds; ++i) {
    char error[512];
    int slot = -1;
    Board* board = nullptr;
    for (int attempt = 0; attempt < 1000 && slot < 0; ++attempt) {
      CloseBoard(board);
      board = OpenBoard(path.c_str(), error, sizeof error);
      if (board == nullptr) return 1;
      slot = Join(board, Job(i % 2 == 0 ? JobClass::kLatency : JobClass::kBatch));
    }
    if (slot < 0) return 2;
    if (board->slots[slot].pid != getpid() || board->slots[slot].live.load() != 1) return 3;
    Leave(board, slot);
    RemoveIfEmpty(board, path.c_str());
    CloseBoard(board);
  }
  return 0;
}

TEST_F(BoardTest, ComingAndGoingWhileAnotherReapsLosesNobody) {
  constexpr int kRounds = 300;
  std::vector<pid_t> children;
  for (int i = 0; i < 2; ++i) children.push_back(Start([&] { return ComeAndGo(path_, kRounds); }));
  children.push_back(Start([&] {
    for (int i = 0; i < kRounds; ++i) {
      char error[512];
      Board* board = OpenBoard(path_.c_str(), error, sizeof error);
      if (board == nullptr) return 1;
      if (Reap(board) != 0) return 4;  // Nobody died.
      CloseBoard(board);
    }
    return 0;
  }));
  for (const pid_t child : children) EXPECT_EQ(End(child), 0);
  Board* board = Open();
  ASSERT_NE(board, nullptr) << Error();
  EXPECT_EQ(LiveSlots(*board), 0);
  EXPECT_EQ(board->latency_jobs.load() + board->batch_jobs.load(), 0U);
  EXPECT_TRUE(RemoveIfEmpty(board, path_.c_str()));
}

TEST_F(BoardTest, CountersAreCountedByManyThreadsWhileOthersLook) {
  constexpr std::uint64_t kEach = 5'000;
  Board* board = Open();
  ASSERT_NE(board, nullptr);
  const int index = Join(board, Job(JobClass::kBatch));
  ASSERT_GE(index, 0);
  Slot& slot = board->slots[index];
  std::atomic<bool> over{false};
  std::thread reader([&] {
    std::uint64_t last = 0;
    while (!over.load()) {
      const std::uint64_t now = slot.launches.load();
      EXPECT_GE(now, last);
      last = now;
      Reap(board);
    }
  });
  std::thread comer([&] {
    for (int i = 0; i < 100; ++i) {
      const int other = Join(board, Job(JobClass::kLatency));
      EXPECT_NE(other, index);
      Leave(board, other);
    }
  });
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&] {
      for (std::uint64_t k = 0; k < kEach; ++k)
        slot.launches.fetch_add(1, std::memory_order_relaxed);
    });
  }
  for (std::thread& writer : writers) writer.join();
  comer.join();
  over.store(true);
  reader.join();
  EXPECT_EQ(slot.launches.load(), 4 * kEach);
  EXPECT_EQ(board->latency_jobs.load(), 0U);
}

TEST_F(BoardTest, PathNamesUserAndGpu) {
  const unsigned char uuid[16] = {0xde, 0xad, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0xff};
  char path[256];
  BoardPath("/dev/shm", uuid, path, sizeof path);
  EXPECT_EQ(path,
            "/dev/shm/divvy-" + std::to_string(geteuid()) + "-dead000102030405060708090a0b0cff");
  char small[24];  // Too small: cut off, never written past.
  std::memset(small, 'x', sizeof small);
  BoardPath("/dev/shm", uuid, small, 20);
  EXPECT_LT(std::strlen(small), 20U);
  EXPECT_EQ(small[20], 'x');
}

}  // namespace
}  // namespace divvy::gate
