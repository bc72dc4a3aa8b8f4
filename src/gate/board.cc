#include "gate/board.h"

#include <fcntl.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

namespace divvy::gate {
namespace {

constexpr int kOpenTries = 200;
constexpr long kOpenPauseNs = 1'000'000;
constexpr int kLockTries = 200;
constexpr std::uint64_t kForeignGoneNs = 60'000'000'000;
constexpr std::int64_t kAbandonedAfterNs = 50'000'000;

void Pause() {
  const timespec pause{0, kOpenPauseNs};
  nanosleep(&pause, nullptr);
}

void CountJobs(Board* board) {
  std::uint32_t latency = 0;
  std::uint32_t batch = 0;
  for (const Slot& slot : board->slots) {
    if (slot.live.load(std::memory_order_relaxed) == 0) continue;
    if (slot.job.job_class.load(std::memory_order_relaxed) == JobClass::kLatency) ++latency;
    if (slot.job.job_class.load(std::memory_order_relaxed) == JobClass::kBatch) ++batch;
  }
  board->latency_jobs.store(latency, std::memory_order_release);
  board->batch_jobs.store(batch, std::memory_order_release);
}

// The kernel gives every program that it starts random bytes of its own.
std::uint64_t OwnImage() {
  std::uint64_t image = 0;
  const auto* random = reinterpret_cast<const void*>(getauxval(AT_RANDOM));
  if (random != nullptr) memcpy(&image, random, sizeof image);
  return image;
}

// A lock whose holder died is taken over: what it guards is a handful of words, each valid by
// itself, and two counts.
//
// A holder that is stopped (a debugger, a paused container) keeps it: nobody waits for that one.
bool Lock(Board* board) {
  int result = pthread_mutex_trylock(&board->lock);
  for (int i = 0; i < kLockTries && result == EBUSY; ++i) {
    Pause();
    result = pthread_mutex_trylock(&board->lock);
  }
  if (result == EOWNERDEAD) {
    pthread_mutex_consistent(&board->lock);
    CountJobs(board);
    return true;
  }
  return result == 0;
}

void Unlock(Board* board) { pthread_mutex_unlock(&board->lock); }

void Initialise(Board* board) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&board->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  board->version = kBoardVersion;
  board->bytes = sizeof(Board);
  for (Slot& slot : board->slots) slot.level.store(kOpen, std::memory_order_relaxed);
  for (std::atomic<std::uint32_t>& word : board->may_run)
    word.store(UINT32_MAX, std::memory_order_relaxed);
  board->magic.store(kBoardMagic, std::memory_order_release);
}

Board* Map(int fd) {
  void* memory = mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<Board*>(memory);
}

// Makes the file. Null with errno EEXIST if somebody else did.
Board* Create(const char* path) {
  const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return nullptr;
  flock(fd, LOCK_EX);  // until it is made: whoever finds it unfinished and not locked knows that
                       // its maker died
  Board* board = nullptr;
  // The umask may have taken bits away, which would lock out ourselves.
  if (fchmod(fd, 0600) == 0 && posix_fallocate(fd, 0, sizeof(Board)) == 0) board = Map(fd);
  if (board != nullptr) Initialise(board);
  const int saved = errno;
  close(fd);
  if (board == nullptr) {
    unlink(path);
    errno = saved == EEXIST ? EIO : saved;
  }
  return board;
}

// Removes a board that its maker left unfinished. Of several that come upon it, one does: the
// others find that the path leads elsewhere once they have its lock.
void RemoveAbandoned(const char* path) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return;
  struct stat opened{};
  struct stat named{};
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 && fstat(fd, &opened) == 0 && lstat(path, &named) == 0 &&
      opened.st_ino == named.st_ino && opened.st_dev == named.st_dev) {
    // Just made: its maker has not come to lock it yet. (Which also tells a file from a new one of
    // the same number.)
    const std::int64_t age_ns = (now.tv_sec - opened.st_ctim.tv_sec) * 1'000'000'000 +
                                (now.tv_nsec - opened.st_ctim.tv_nsec);
    std::uint32_t magic = 0;
    const bool made = pread(fd, &magic, sizeof magic, offsetof(Board, magic)) == sizeof magic &&
                      magic == kBoardMagic;
    if (!made && (age_ns < 0 || age_ns > kAbandonedAfterNs)) unlink(path);
  }
  close(fd);
}

bool Exists(std::int32_t pid) { return pid > 0 && (kill(pid, 0) == 0 || errno == EPERM); }

enum class Found { kBoard, kNone, kUnfinished, kWrong };

Found Attach(const char* path, Board** board, char* error, unsigned size) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) {
    if (errno == ENOENT) return Found::kNone;
    snprintf(error, size, "cannot open the board %s: %s", path, strerror(errno));
    return Found::kWrong;
  }
  struct stat status{};
  fstat(fd, &status);
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    snprintf(error, size,
             "the board %s must be a file of user %u that nobody else may open (mode 0600)", path,
             static_cast<unsigned>(geteuid()));
    close(fd);
    return Found::kWrong;
  }
  if (status.st_size == 0) {
    close(fd);
    return Found::kUnfinished;
  }
  if (static_cast<std::size_t>(status.st_size) != sizeof(Board)) {
    snprintf(error, size,
             "the board %s has %lld bytes where this version of Divvy has %zu: end the jobs of the "
             "other version, or remove the file if there are none",
             path, static_cast<long long>(status.st_size), sizeof(Board));
    close(fd);
    return Found::kWrong;
  }
  *board = Map(fd);
  close(fd);
  if (*board == nullptr) {
    snprintf(error, size, "cannot map the board %s: %s", path, strerror(errno));
    return Found::kWrong;
  }
  if ((*board)->magic.load(std::memory_order_acquire) != kBoardMagic) {
    CloseBoard(*board);
    return Found::kUnfinished;
  }
  if ((*board)->version != kBoardVersion || (*board)->bytes != sizeof(Board)) {
    snprintf(error, size,
             "the board %s is of version %u (%u bytes) where this Divvy has %u (%u): end the jobs "
             "of the "
             "other version, or remove the file if there are none",
             path, (*board)->version, static_cast<unsigned>((*board)->bytes), kBoardVersion,
             static_cast<unsigned>(sizeof(Board)));
    CloseBoard(*board);
    return Found::kWrong;
  }
  return Found::kBoard;
}

void Free(Board* board, Slot& slot) {
  slot.level.store(kOpen, std::memory_order_release);
  slot.closed_since_ns.store(0, std::memory_order_relaxed);
  slot.live.store(0, std::memory_order_release);
  if (slot.job.job_class.load(std::memory_order_relaxed) != JobClass::kBatch) return;
  // It may have been alone, or have been waiting for one that is.
  for (std::atomic<std::uint32_t>& word : board->may_run)
    word.store(UINT32_MAX, std::memory_order_release);
}

int ReapLocked(Board* board) {
  int freed = 0;
  for (Slot& slot : board->slots) {
    if (slot.live.load(std::memory_order_acquire) == 0 || !IsGone(slot)) continue;
    Free(board, slot);
    ++freed;
  }
  if (freed > 0) CountJobs(board);
  return freed;
}

// A program that replaced itself (exec) is the same process, and left its place behind.
void FreeOwn(Board* board) {
  for (Slot& slot : board->slots) {
    if (slot.live.load(std::memory_order_relaxed) != 0 && slot.pid == getpid() &&
        slot.pid_namespace == OwnPidNamespace() && slot.image != OwnImage()) {
      Free(board, slot);
    }
  }
}

// Batch jobs take turns by virtual time; one that joins late starts level with the others instead
// of far behind them.
std::uint64_t LeastVirtualTime(const Board* board) {
  std::uint64_t least = 0;
  bool any = false;
  for (const Slot& slot : board->slots) {
    if (slot.live.load(std::memory_order_relaxed) == 0 ||
        slot.job.job_class.load(std::memory_order_relaxed) != JobClass::kBatch)
      continue;
    const std::uint64_t time = slot.virtual_ns.load(std::memory_order_relaxed);
    if (!any || time < least) least = time;
    any = true;
  }
  return least;
}

void Clear(Slot& slot) {
  slot.level.store(kOpen, std::memory_order_relaxed);
  slot.openness.store(0, std::memory_order_relaxed);
  slot.heartbeat_ns.store(NowNs(), std::memory_order_relaxed);
  slot.closed_since_ns.store(0, std::memory_order_relaxed);
  for (std::atomic<std::uint64_t>* counter :
       {&slot.launches, &slot.graphs, &slot.markers, &slot.gpu_ns, &slot.virtual_ns,
        &slot.last_launch_ns, &slot.closed_ns, &slot.memory_bytes, &slot.requests, &slot.late,
        &slot.p50_ns, &slot.p99_ns, &slot.rescued, &slot.short_since_ns, &slot.alone_ns}) {
    counter->store(0, std::memory_order_relaxed);
  }
  for (int i = 0; i < kTracks; ++i) {
    slot.passed[i].store(0, std::memory_order_relaxed);
    slot.submitted[i].store(0, std::memory_order_relaxed);
  }
  slot.marked.store(0, std::memory_order_relaxed);
  for (std::atomic<std::uint32_t>* word : {&slot.mode, &slot.slice_us, &slot.apart,
                                           &slot.stepwise_us, &slot.scale, &slot.shared_from_us})
    word->store(0, std::memory_order_relaxed);
}

void Write(SharedIdentity& to, const JobIdentity& job) {
  to.job_class.store(job.job_class, std::memory_order_relaxed);
  to.weight.store(job.weight, std::memory_order_relaxed);
  to.slo_ns.store(job.slo_ns, std::memory_order_relaxed);
  to.memory_quota.store(job.memory_quota, std::memory_order_relaxed);
  for (std::size_t i = 0; i < sizeof job.name; ++i)
    to.name[i].store(job.name[i], std::memory_order_relaxed);
}

}  // namespace

JobIdentity IdentityOf(const Slot& slot) {
  JobIdentity job;
  job.job_class = slot.job.job_class.load(std::memory_order_relaxed);
  job.weight = slot.job.weight.load(std::memory_order_relaxed);
  job.slo_ns = slot.job.slo_ns.load(std::memory_order_relaxed);
  job.memory_quota = slot.job.memory_quota.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i + 1 < sizeof job.name; ++i)
    job.name[i] = slot.job.name[i].load(std::memory_order_relaxed);
  return job;
}

Board* OpenBoard(const char* path, char* error, unsigned error_size) {
  for (int attempt = 0; attempt < kOpenTries; ++attempt) {
    Board* board = nullptr;
    switch (Attach(path, &board, error, error_size)) {
      case Found::kBoard:
        return board;
      case Found::kWrong:
        return nullptr;
      case Found::kNone:
        board = Create(path);
        if (board != nullptr) return board;
        if (errno != EEXIST) {
          snprintf(error, error_size, "cannot make the board %s: %s", path, strerror(errno));
          return nullptr;
        }
        break;
      case Found::kUnfinished:
        RemoveAbandoned(path);
        Pause();
        break;
    }
  }
  snprintf(error, error_size,
           "the board %s is half made and stays so: remove it if no job is using it", path);
  return nullptr;
}

void CloseBoard(Board* board) {
  if (board != nullptr) munmap(board, sizeof(Board));
}

int Join(Board* board, const JobIdentity& job) {
  if (!Lock(board)) return -1;
  int taken = -1;
  if (IsCurrent(board)) {
    ReapLocked(board);
    FreeOwn(board);
    for (int i = 0; i < kSlots && taken < 0; ++i) {
      if (board->slots[i].live.load(std::memory_order_relaxed) == 0) taken = i;
    }
  }
  if (taken >= 0) {
    Slot& slot = board->slots[taken];
    const std::uint64_t virtual_ns = LeastVirtualTime(board);
    Clear(slot);
    slot.pid = getpid();
    slot.start_time = StartTime(slot.pid);
    slot.pid_namespace = OwnPidNamespace();
    slot.image = OwnImage();
    Write(slot.job, job);
    slot.virtual_ns.store(virtual_ns, std::memory_order_relaxed);
    slot.live.store(1, std::memory_order_release);
    CountJobs(board);
  }
  Unlock(board);
  return taken;
}

void Leave(Board* board, int slot) {
  if (slot < 0 || !Lock(board)) return;
  if (board->slots[slot].live.load(std::memory_order_relaxed) == 1 &&
      board->slots[slot].pid == getpid()) {
    Free(board, board->slots[slot]);
    CountJobs(board);
  }
  Unlock(board);
}

bool IsCurrent(const Board* board) {
  return board->magic.load(std::memory_order_acquire) == kBoardMagic;
}

int Reap(Board* board) {
  // Looked at without the lock first: this is done every second, and reads many small files. Counts
  // that are wrong were left so by somebody who died over them.
  bool any = false;
  std::uint32_t jobs = 0;
  for (const Slot& slot : board->slots) {
    if (slot.live.load(std::memory_order_acquire) == 0) continue;
    if (slot.job.job_class.load(std::memory_order_relaxed) != JobClass::kServer) ++jobs;
    any = any || IsGone(slot);
  }
  if (jobs != board->latency_jobs.load() + board->batch_jobs.load()) any = true;
  if (!any || !Lock(board)) return 0;
  const int freed = ReapLocked(board);
  Unlock(board);
  return freed;
}

bool RemoveIfEmpty(Board* board, const char* path) {
  if (!Lock(board)) return false;
  ReapLocked(board);
  bool empty = IsCurrent(board);
  for (const Slot& slot : board->slots)
    empty = empty && slot.live.load(std::memory_order_relaxed) == 0;
  if (empty) {
    // Whoever has it open and comes to join next sees that it is gone, and makes a new one. In this
    // order: a board without its magic may be removed by others, and what we unlinked then might be
    // theirs.
    unlink(path);
    board->magic.store(0, std::memory_order_release);
  }
  Unlock(board);
  return empty;
}

std::uint64_t StartTime(std::int32_t pid) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  char text[1024];
  const ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  if (got <= 0) return Exists(pid) ? kUnknownStart : 0;
  text[got] = '\0';
  // The program's name may hold spaces and brackets: fields are counted from its last bracket.
  const char* field = strrchr(text, ')');
  if (field == nullptr || field[1] == '\0') return 0;
  field += 2;
  if (*field == 'Z' || *field == 'X') return 0;
  for (int i = 3; i < 22; ++i) {
    field = strchr(field, ' ');
    if (field == nullptr) return 0;
    ++field;
  }
  return strtoull(field, nullptr, 10);
}

bool IsAlive(std::int32_t pid, std::uint64_t start_time) {
  if (start_time == 0) return false;
  const std::uint64_t now = StartTime(pid);
  return now == start_time || now == kUnknownStart || (now != 0 && start_time == kUnknownStart);
}

std::uint64_t OwnPidNamespace() {
  struct stat status{};
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool IsGone(const Slot& slot) {
  static const std::uint64_t own = OwnPidNamespace();
  if (slot.pid_namespace == own) return !IsAlive(slot.pid, slot.start_time);
  return NowNs() > slot.heartbeat_ns.load(std::memory_order_relaxed) + kForeignGoneNs;
}

std::uint64_t NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

void BoardPath(const char* directory, const unsigned char (&uuid)[16], char* path, unsigned size) {
  int used = snprintf(path, size, "%s/divvy-%u-", directory, static_cast<unsigned>(geteuid()));
  for (int i = 0; i < 16 && used > 0 && static_cast<unsigned>(used) + 3 < size; ++i) {
    used += snprintf(path + used, size - static_cast<unsigned>(used), "%02x", uuid[i]);
  }
}

}  // namespace divvy::gate
