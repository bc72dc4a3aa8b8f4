#include "device/cuda_simulator/machine.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <new>

#include "device/cuda_simulator/machine_file.h"
#include "device/cuda_simulator/process.h"

namespace divvy::device::cuda_simulator {
namespace {

constexpr std::uint64_t kMagic =
    0x3453'4144'5543'5644;  // With the layout's number in its last byte.
constexpr Nanos kReapEvery = 2 * kMillisecond;
constexpr Nanos kCreationTakesAtMost = 5'000 * kMillisecond;
// Over which a driver tells how busy a GPU is.
constexpr Nanos kWindow = 100 * kMillisecond;

auto Unavailable(const std::string& what) {
  return Fail(ErrorCode::kUnavailable, what + ": " + std::strerror(errno));
}

void Pause(Nanos span) {
  const timespec time{.tv_sec = 0, .tv_nsec = span};
  nanosleep(&time, nullptr);
}

}  // namespace

Result<Machine::File*> Machine::Create(int descriptor, const MachineSpec& spec) {
  if (descriptor >= 0 && ftruncate(descriptor, sizeof(File)) != 0) return Unavailable("ftruncate");
  void* memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE,
                      descriptor >= 0 ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS, descriptor, 0);
  if (memory == MAP_FAILED) return Unavailable("mmap");
  File* file = new (memory) File{};
  file->spec = spec;
  file->made = Now();
  for (File::Gpu& gpu : file->gpus) {
    gpu.owner = kNobody;
    gpu.last_owner = kNobody;
    gpu.window = file->made;
  }
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&file->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
  file->magic.store(kMagic, std::memory_order_release);
  return file;
}

Result<Machine::File*> Machine::Find(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return Unavailable(path);
  // Its maker may be in the middle of it.
  const Nanos patience = Now() + kCreationTakesAtMost;
  struct stat status{};
  while (fstat(descriptor, &status) == 0 && status.st_size == 0 && Now() < patience) {
    Pause(kMillisecond);
  }
  if (status.st_size != sizeof(File)) {
    close(descriptor);
    return Fail(ErrorCode::kFailedPrecondition,
                path + " is not the file of a simulated machine of this version");
  }
  void* memory = mmap(nullptr, sizeof(File), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  close(descriptor);
  if (memory == MAP_FAILED) return Unavailable(path);
  File* file = static_cast<File*>(memory);
  while (file->magic.load(std::memory_order_acquire) != kMagic) {
    if (Now() >= patience) {
      munmap(memory, sizeof(File));
      return Fail(ErrorCode::kFailedPrecondition,
                  path + " was never finished by who made it; remove it");
    }
    Pause(kMillisecond);
  }
  return file;
}

Result<std::unique_ptr<Machine>> Machine::Open(const std::string& path, const MachineSpec& spec) {
  Result<File*> file = nullptr;
  if (path.empty()) {
    file = Create(-1, spec);
  } else {
    const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (descriptor >= 0) {
      file = Create(descriptor, spec);
      close(descriptor);
    } else if (errno == EEXIST) {
      file = Find(path);
    } else {
      return Unavailable(path);
    }
  }
  if (!file) return Fail(file.error());
  return std::unique_ptr<Machine>(new Machine(*file));
}

Machine::~Machine() {
  Leave();
  munmap(file_, sizeof(File));
}

const MachineSpec& Machine::spec() const { return file_->spec; }

bool Machine::Join(bool low_priority, int percentage) {
  const Lock lock(*file_);
  Reap(kNever);
  const bool mps = spec().sharing == Sharing::kMps;
  for (int i = 0; i < kMaxProcesses; ++i) {
    File::Process& process = file_->processes[i];
    if (process.pid != 0) continue;
    Forget(i);
    self_ = i;
    joined_ = true;
    process.born = *BirthOf(getpid());
    process.pid = getpid();
    for (File::Gpu& gpu : file_->gpus) gpu.clients[i].low_priority = mps && low_priority ? 1 : 0;
    usable_sms_ = spec().sms;
    // SMs go in pairs, and of a pair that is not whole a client has nothing.
    if (mps && percentage < 100) {
      usable_sms_ = std::max(std::min(2, spec().sms), spec().sms * percentage / 100 / 2 * 2);
    }
    return true;
  }
  return false;
}

void Machine::Leave() {
  if (!joined_) return;
  joined_ = false;
  const Lock lock(*file_);
  Forget(self_);
  for (int gpu = 0; gpu < spec().gpus; ++gpu) RingWaiting(gpu);
}

Machine::Client& Machine::Mine(int gpu) { return file_->gpus[gpu].clients[self_]; }

int Machine::FreeSms(int gpu, Nanos now) const {
  int free = spec().sms;
  for (const Client& client : file_->gpus[gpu].clients) {
    if (client.busy_until + kLate > now) free -= client.held;
  }
  return std::max(free, 0);
}

// Whether another process that waits comes before one of ours that waits since `since`.
bool Machine::SomebodyFirst(int gpu, Nanos since, Nanos now) const {
  const auto& clients = file_->gpus[gpu].clients;
  const Client& mine = clients[self_];
  for (int i = 0; i < kMaxProcesses; ++i) {
    const Client& other = clients[i];
    if (i == self_ || other.waits == 0 || other.seen + kPatience < now) continue;
    if (other.low_priority != mine.low_priority) {
      if (mine.low_priority != 0) return true;
    } else if (other.waiting_since < since) {
      return true;
    }
  }
  return false;
}

std::optional<Grant> Machine::Begin(int gpu, const Demand& demand, Nanos now) {
  const Lock lock(*file_);
  Client& mine = Mine(gpu);
  mine.seen = now;
  const Nanos since = demand.waiting_since != 0 ? demand.waiting_since : now;
  // Who has the turn has the GPU alone, and is in nobody's way.
  const bool alone = spec().sharing == Sharing::kTimeSlice;
  const int left = usable_sms_ - mine.held;
  const int free = alone ? left : std::min(FreeSms(gpu, now), left);
  if (alone && free < 1) return std::nullopt;
  if (!alone && (free < 1 || SomebodyFirst(gpu, since, now))) {
    mine.waiting_since = mine.waits != 0 ? std::min(mine.waiting_since, since) : since;
    mine.waits = 1;
    Reap(now);
    return std::nullopt;
  }
  if (!alone) mine.waits = 0;
  const int granted = std::min(free, demand.wanted);
  // A kernel that did not have to wait began when it could, however late we come to see it.
  const Nanos begin = demand.waiting_since != 0 ? now : demand.ready;
  const Nanos end = begin + demand.work * demand.wanted / granted;
  Count(gpu, now);
  file_->gpus[gpu].CountRun(granted, begin, std::min(now, end));
  mine.busy_until = mine.held > 0 ? std::max(mine.busy_until, end) : end;
  mine.held += granted;
  return Grant{granted, end};
}

// What has run since the last time. Between two of these nobody takes or gives back SMs; a kernel
// whose end nobody has come to see yet is over all the same.
void Machine::Count(int gpu, Nanos now) {
  File::Gpu& state = file_->gpus[gpu];
  for (const Client& client : state.clients) {
    if (client.held > 0) {
      state.CountRun(client.held, state.counted, std::min(client.busy_until, now));
    }
  }
  state.counted = std::max(state.counted, now);
  if (now - state.window < kWindow) return;
  const auto passed = static_cast<double>(now - state.window);
  state.busy_share = static_cast<double>(state.busy - state.window_busy) / passed;
  state.sm_share = static_cast<double>(state.sm_busy - state.window_sm_busy) / passed / spec().sms;
  state.window = now;
  state.window_busy = state.busy;
  state.window_sm_busy = state.sm_busy;
}

Activity Machine::Observe(int gpu, Nanos now) {
  const Lock lock(*file_);
  Reap(kNever);
  Count(gpu, now);
  const File::Gpu& state = file_->gpus[gpu];
  return {.made = file_->made,
          .busy = state.busy,
          .sm_busy = state.sm_busy,
          .busy_share = std::min(1.0, state.busy_share),
          .sm_share = std::min(1.0, state.sm_share)};
}

std::vector<Holder> Machine::Holders(int gpu) {
  const Lock lock(*file_);
  Reap(kNever);
  std::vector<Holder> holders;
  for (int i = 0; i < kMaxProcesses; ++i) {
    const Client& client = file_->gpus[gpu].clients[i];
    if (client.contexts > 0) holders.push_back({file_->processes[i].pid, client.memory});
  }
  return holders;
}

void Machine::End(int gpu, int granted, Nanos now) {
  const Lock lock(*file_);
  Count(gpu, now);
  Mine(gpu).held -= granted;
  RingWaiting(gpu);
}

void Machine::AddContext(int gpu) {
  const Lock lock(*file_);
  ++Mine(gpu).contexts;
}

void Machine::RemoveContext(int gpu) {
  const Lock lock(*file_);
  --Mine(gpu).contexts;
}

bool Machine::TakeMemory(int gpu, std::uint64_t bytes) {
  const Lock lock(*file_);
  const auto fits = [&] {
    std::uint64_t used = 0;
    for (const Client& client : file_->gpus[gpu].clients) used += client.memory;
    return bytes <= spec().memory && used <= spec().memory - bytes;
  };
  if (!fits()) {
    Reap(kNever);
    if (!fits()) return false;
  }
  Mine(gpu).memory += bytes;
  return true;
}

void Machine::GiveMemory(int gpu, std::uint64_t bytes) {
  const Lock lock(*file_);
  Mine(gpu).memory -= bytes;
}

MemoryInfo Machine::Memory(int gpu) {
  const Lock lock(*file_);
  Reap(kNever);
  std::uint64_t used = 0;
  for (const Client& client : file_->gpus[gpu].clients) used += client.memory;
  return {spec().memory - std::min(used, spec().memory), spec().memory};
}

std::uint32_t Machine::ReadBell() const {
  return file_->processes[self_].bell.load(std::memory_order_acquire);
}

void Machine::WaitForBell(std::uint32_t seen, Nanos until) const {
  timespec time{};
  if (until != kNever) {
    const Nanos span = until - Now();
    if (span <= 0) return;
    time = {.tv_sec = span / 1'000'000'000, .tv_nsec = span % 1'000'000'000};
  }
  syscall(SYS_futex, &file_->processes[self_].bell, FUTEX_WAIT, seen,
          until == kNever ? nullptr : &time, nullptr, 0);
}

void Machine::Ring() { RingBell(self_); }

void Machine::RingBell(int process) {
  auto& bell = file_->processes[process].bell;
  bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &bell, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Machine::RingWaiting(int gpu) {
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (i != self_ && file_->gpus[gpu].clients[i].waits != 0) RingBell(i);
  }
}

// Drops the processes that died. `now` of kNever: whenever it was last done.
void Machine::Reap(Nanos now) {
  if (now != kNever && now - reaped_ < kReapEvery) return;
  reaped_ = now == kNever ? Now() : now;
  for (int i = 0; i < kMaxProcesses; ++i) {
    const File::Process& process = file_->processes[i];
    if (i == self_ || process.pid == 0) continue;
    if (BirthOf(process.pid) != process.born) Forget(i);
  }
}

void Machine::Forget(int process) {
  file_->processes[process].pid = 0;
  for (int i = 0; i < kMaxGpus; ++i) {
    File::Gpu& gpu = file_->gpus[i];
    if (gpu.clients[process].held > 0) Count(i, Now());
    gpu.clients[process] = Client{};
    if (gpu.owner == process) gpu.owner = kNobody;
    if (gpu.last_owner == process) gpu.last_owner = kGone;
  }
}

}  // namespace divvy::device::cuda_simulator
