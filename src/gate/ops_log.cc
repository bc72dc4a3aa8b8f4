#include "gate/ops_log.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "gate/board.h"

namespace divvy::gate {
namespace {

// A process may replace itself by another program, and that by a third.
constexpr int kPrograms = 1000;

OpsLog* MapLog(int fd) {
  void* memory = mmap(nullptr, sizeof(OpsLog), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<OpsLog*>(memory);
}

std::uint64_t HashOfName(const char* name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char* at = name; *at != '\0'; ++at)
    hash = (hash ^ static_cast<unsigned char>(*at)) * 0x100000001b3U;
  return hash;
}

// Where the name stands already: one function comes in many shapes. -1: nowhere.
long FindName(const OpsLog& log, std::uint64_t hash, std::size_t bytes) {
  const std::uint32_t count = log.kind_count.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (log.kinds[i].name_hash == hash && log.kinds[i].name_bytes == bytes)
      return static_cast<long>(log.kinds[i].name_at);
  }
  return -1;
}

}  // namespace

OpsLog* CreateOpsLog(const char* directory, const char* program, char* error, unsigned error_size) {
  char path[512];
  int fd = -1;
  for (int i = 0; i < kPrograms && fd < 0; ++i) {
    snprintf(path, sizeof path, "%s/ops-%d-%d", directory, static_cast<int>(getpid()), i);
    fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && errno != EEXIST) break;
  }
  // Allocated at once: a store to a page for which there is no room would end the program.
  int failure = fd < 0 ? errno : posix_fallocate(fd, 0, sizeof(OpsLog));
  OpsLog* log = failure == 0 ? MapLog(fd) : nullptr;
  if (log == nullptr) {
    if (failure == 0) failure = errno;
    snprintf(error, error_size, "cannot make the kernel log %s: %s", path, strerror(failure));
    if (fd >= 0) unlink(path);
  } else {
    log->version = kOpsLogVersion;
    log->bytes = sizeof(OpsLog);
    log->pid = getpid();
    log->parent = getppid();
    log->pid_namespace = OwnPidNamespace();
    log->start_time = StartTime(log->pid);
    log->start_ns = NowNs();
    snprintf(log->program, sizeof log->program, "%s", program);
    log->magic.store(kOpsLogMagic, std::memory_order_release);
  }
  if (fd >= 0) close(fd);
  return log;
}

OpsLog* OpenOpsLog(const char* path, char* error, unsigned error_size) {
  const int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  struct stat status{};
  if (fd < 0 || fstat(fd, &status) != 0) {
    snprintf(error, error_size, "cannot read the kernel log %s: %s", path, strerror(errno));
    if (fd >= 0) close(fd);
    return nullptr;
  }
  const bool whole = S_ISREG(status.st_mode) && status.st_size == off_t{sizeof(OpsLog)};
  OpsLog* log = whole ? MapLog(fd) : nullptr;
  close(fd);
  if (log != nullptr && log->magic.load(std::memory_order_acquire) == kOpsLogMagic &&
      log->version == kOpsLogVersion && log->bytes == sizeof(OpsLog)) {
    return log;
  }
  CloseOpsLog(log);
  snprintf(error, error_size, "%s is no kernel log of version %u", path, kOpsLogVersion);
  return nullptr;
}

void CloseOpsLog(OpsLog* log) {
  if (log != nullptr) munmap(log, sizeof(OpsLog));
}

bool HasEnded(const OpsLog& log) {
  if (log.pid <= 0 || log.start_time == 0 || log.pid_namespace == 0 ||
      log.pid_namespace != OwnPidNamespace())
    return false;
  const std::uint64_t now = StartTime(log.pid);
  if (now != 0 && now != kUnknownStart && log.start_time != kUnknownStart)
    return now != log.start_time;
  // A process whose first thread has ended looks like a zombie, and its others may go on.
  return kill(log.pid, 0) != 0 && errno == ESRCH;
}

int AddOpKind(OpsLog& log, const OpFacts& facts, const char* name) {
  const std::uint32_t index = log.kind_count.load(std::memory_order_relaxed);
  if (index >= kOpKinds) return -1;
  const std::size_t bytes = strlen(name);
  const std::uint64_t hash = HashOfName(name);
  long at = FindName(log, hash, bytes);
  if (at < 0) {
    if (bytes + 1 > kOpNameBytes - log.names_used) return -1;
    at = static_cast<long>(log.names_used);
    memcpy(log.names + at, name, bytes + 1);
    log.names_used += static_cast<std::uint32_t>(bytes + 1);
  }
  OpKind& kind = log.kinds[index];
  kind.facts = facts;
  kind.name_hash = hash;
  kind.name_at = static_cast<std::uint32_t>(at);
  kind.name_bytes = static_cast<std::uint32_t>(bytes);
  log.kind_count.store(index + 1, std::memory_order_release);
  return static_cast<int>(index);
}

bool PushOpSample(OpsLog& log, const OpSample& sample) {
  std::uint64_t ticket = log.pushed.load(std::memory_order_relaxed);
  do {
    if (ticket - log.drained.load(std::memory_order_acquire) >= kOpSamples) {
      log.dropped.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!log.pushed.compare_exchange_weak(ticket, ticket + 1, std::memory_order_relaxed));
  OpsLog::Place& place = log.ring[ticket % kOpSamples];
  place.sample = sample;
  place.turn.store(ticket + 1, std::memory_order_release);
  return true;
}

bool TakeOpSample(OpsLog& log, bool ended, OpSample& sample) {
  for (;;) {
    const std::uint64_t next = log.drained.load(std::memory_order_relaxed);
    const OpsLog::Place& place = log.ring[next % kOpSamples];
    const bool written = place.turn.load(std::memory_order_acquire) == next + 1;
    if (!written && (!ended || next >= log.pushed.load(std::memory_order_relaxed))) return false;
    if (written) sample = place.sample;
    log.drained.store(next + 1, std::memory_order_release);
    if (written) return true;
  }
}

std::uint32_t CountOpKinds(const OpsLog& log) {
  const std::uint32_t count = log.kind_count.load(std::memory_order_acquire);
  return count > kOpKinds ? kOpKinds : count;
}

const char* NameOfOpKind(const OpsLog& log, std::uint32_t kind) {
  if (kind >= CountOpKinds(log)) return "";
  const std::uint32_t at = log.kinds[kind].name_at;
  const std::uint32_t bytes = log.kinds[kind].name_bytes;
  if (at >= kOpNameBytes || bytes >= kOpNameBytes - at || log.names[at + bytes] != '\0') return "";
  return log.names + at;
}

}  // namespace divvy::gate
