#include "gate/alone.h"
#include "gate/library/hold.h"
#include "gate/library/log.h"
#include "gate/library/occupancy.h"
#include "gate/library/time_slices.h"
#include "gate/library/timing.h"

#include <dlfcn.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <cctype>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace divvy::gate {

ProcessState process;
PinnedWords* pinned;

namespace {

pthread_key_t thread_key;
thread_local int own_thread;  // its number and one; 0: none yet

// A timed launch takes microseconds, and a stream is held for no more than 2 ms and the watch's
// round.
constexpr int kLockPauses = 1'000;
constexpr long kLockPauseNs = 100'000;
// Memory that was pinned in a context before this one, where the driver keeps it so.
constexpr auto kAlreadyRegistered = static_cast<cuda::Result>(712);

std::uint64_t Number(const char* name, std::uint64_t otherwise) {
  const char* text = getenv(name);
  if (text == nullptr || *text == '\0') return otherwise;
  char* end = nullptr;
  const std::uint64_t value = strtoull(text, &end, 10);
  if (*end == '\0') return value;
  Say("%s=%s is not a number: ignored", name, text);
  return otherwise;
}

JobClass ClassByName(const char* name) {
  if (name == nullptr || *name == '\0') return JobClass::kNone;
  if (strcmp(name, "latency") == 0) return JobClass::kLatency;
  if (strcmp(name, "batch") == 0) return JobClass::kBatch;
  if (strcmp(name, "log") == 0) return JobClass::kLog;
  if (strcmp(name, "server") == 0) return JobClass::kServer;
  Say("DIVVY_CLASS=%s: must be latency, batch or log; this job is not gated", name);
  return JobClass::kNone;
}

std::uint32_t OpennessByName(const char* name) {
  if (name == nullptr || *name == '\0' || strcmp(name, "tight") == 0) return kTight;
  if (strcmp(name, "balanced") == 0) return kBalanced;
  if (strcmp(name, "off") == 0) return kNoProtection;
  Say("DIVVY_PROTECT=%s: must be tight, balanced or off; tight is taken", name);
  return kTight;
}

void ReleaseThread(void* number) {
  const auto index = reinterpret_cast<std::intptr_t>(number) - 1;
  for (GpuState& gpu : process.gpus) {
    if (gpu.phase.load(std::memory_order_acquire) == kJoined) Abandon(gpu, gpu.workers[index]);
  }
  own_thread = 0;
  process.thread_taken[index].store(0, std::memory_order_release);
}

// Without it there is nothing that the GPU and we could tell each other by.
void MapPinned() {
  if (process.settings.job.job_class == JobClass::kNone) return;
  void* const memory =
      mmap(nullptr, sizeof(PinnedWords), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pinned = memory == MAP_FAILED ? nullptr : static_cast<PinnedWords*>(memory);
  if (pinned != nullptr) return;
  Say("no memory to be shared with the GPU: %s; this job is not gated", strerror(errno));
  process.settings.job.job_class = JobClass::kNone;
}

void AfterForkInChild() {
  // Threads, slot and pinned memory stayed with the parent. A child that uses CUDA itself joins
  // anew.
  for (GpuState& gpu : process.gpus) {
    if (gpu.board != nullptr) CloseBoard(gpu.board);
    memset(static_cast<void*>(&gpu), 0, sizeof gpu);
  }
  DropLog();
  DropMemory();
  ForgetSlices();
  if (pinned != nullptr) munmap(pinned, sizeof *pinned);
  MapPinned();
  for (std::atomic<std::uint32_t>& taken : process.thread_taken) taken.store(0);
  own_thread = 0;
  pthread_setspecific(thread_key, nullptr);
  process.captures.store(0);
  process.captured_collective.store(false);
  process.keeper_runs.store(0);
  process.settings.report = nullptr;  // what the parent launched is the parent's to tell
}

void Configure() {
  Settings& settings = process.settings;
  settings.job.job_class = ClassByName(getenv("DIVVY_CLASS"));
  settings.job.weight = static_cast<std::uint32_t>(Number("DIVVY_WEIGHT", 100));
  settings.job.slo_ns = Number("DIVVY_SLO_US", 0) * 1000;
  settings.job.memory_quota = Number("DIVVY_MEMORY_BYTES", 0);
  settings.openness = settings.job.slo_ns == 0 ? OpennessByName(getenv("DIVVY_PROTECT")) : kTight;
  const char* name = getenv("DIVVY_NAME");
  snprintf(settings.job.name, sizeof settings.job.name, "%s",
           name != nullptr && *name != '\0' ? name : program_invocation_short_name);
  if (const char* directory = getenv("DIVVY_BOARD_DIR"); directory != nullptr && *directory != '\0')
    settings.board_directory = directory;
  settings.apart = Number("DIVVY_APART", 0) != 0;
  settings.served = Number("DIVVY_MPS", 0) != 0;
  settings.report = getenv("DIVVY_REPORT");
  settings.log_directory = getenv("DIVVY_LOG");
  settings.log_cost_ppm =
      static_cast<std::uint32_t>(Number("DIVVY_LOG_COST_PPM", kDefaultOpsCostPpm));
  if (const char* ops = getenv("DIVVY_OPS"); ops != nullptr && *ops != '\0') {
    char error[512] = "";
    const bool loaded = process.known.Load(ops, error, sizeof error);
    if (error[0] != '\0') Say("%s%s", error, loaded ? "" : "; kernels are learned as they run");
  }
  MapPinned();
  pthread_key_create(&thread_key, ReleaseThread);
  pthread_atfork(nullptr, nullptr, AfterForkInChild);
}

// Some drivers have the call and refuse it.
bool TakesWaits(const Driver& driver, const GpuState& gpu) {
  cuda::Stream stream = nullptr;
  if (driver.cuStreamCreate(&stream, cuda::kStreamNonBlocking) != cuda::kSuccess) return false;
  const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const char*>(&gpu.slot->level) -
                                                 reinterpret_cast<const char*>(gpu.board));
  const bool taken = driver.cuStreamWaitValue32_v2(stream, gpu.board_on_gpu + offset, kClosed,
                                                   cuda::kWaitValueGeq) == cuda::kSuccess;
  driver.cuStreamDestroy_v2(stream);
  return taken;
}

void PrepareBatch(const Driver& driver, GpuState& gpu) {
  gpu.board_on_gpu = MapForGpu(driver, gpu.board, sizeof(Board));
  if (gpu.board_on_gpu != 0 && !TakesWaits(driver, gpu)) gpu.board_on_gpu = 0;
  const bool on_device = gpu.board_on_gpu != 0;
  gpu.mode.store(on_device ? GateMode::kDevice : GateMode::kHost);
  gpu.interval_ns.store(kMarkerIntervalNs);
  if (gpu.scale == 0) gpu.scale.store(kUnscaled);
  for (std::atomic<cuda::Stream>& track : gpu.tracks) track.store(nullptr);
  gpu.unmeasurable.store(false);
  PrepareTiming(driver, gpu, /*may_hold=*/false);
  if (!on_device) {
    for (cuda::Event& event : gpu.host_marks)
      driver.cuEventCreate(&event, cuda::kEventDisableTiming);
    Say("this driver has no waits on memory in streams: kernels are held back on the CPU, which "
        "costs more");
  }
}

void PrepareLatency(const Driver& driver, GpuState& gpu) {
  gpu.marks_on_gpu = MapForGpu(driver, pinned->marks[gpu.index], sizeof pinned->marks[gpu.index]);
  gpu.mode.store(GateMode::kDevice);
  gpu.slot->openness.store(process.settings.openness, std::memory_order_relaxed);
  if (!process.settings.apart) return;
  if (!HasLongSlices()) {
    Say("the driver does not set time slices: batch jobs are held back by markers instead");
    return;
  }
  gpu.slot->apart.store(1, std::memory_order_release);
  PrepareHold(driver, gpu);
}

// Opens the GPU's board and takes a place there.
bool JoinBoard(GpuState& gpu, const cuda::Uuid& uuid) {
  BoardPath(process.settings.board_directory, uuid.bytes, gpu.board_path, sizeof gpu.board_path);
  // The last to leave may remove the board between our opening and joining it.
  for (int attempt = 0; attempt < 10; ++attempt) {
    char error[512] = "";
    // Programs that make one context after the other come here again and again.
    Board* const last = gpu.last_board.load(std::memory_order_relaxed);
    Board* const board =
        last != nullptr && IsCurrent(last) ? last : OpenBoard(gpu.board_path, error, sizeof error);
    if (board == nullptr) {
      Say("%s; this job is not gated", error);
      return false;
    }
    gpu.slot_index = Join(board, process.settings.job);
    if (gpu.slot_index >= 0) {
      gpu.board = board;
      gpu.last_board.store(board, std::memory_order_release);
      gpu.slot = &board->slots[gpu.slot_index];
      gpu.own_pid = getpid();
      gpu.left = false;
      return true;
    }
    const bool full = IsCurrent(board);
    if (board != last) CloseBoard(board);
    if (full) break;
  }
  Say("the board %s has no free place (%d jobs share this GPU), or a stopped process holds it; "
      "this "
      "job is not gated",
      gpu.board_path, kSlots);
  return false;
}

bool OpenAndJoin(const Driver& driver, GpuState& gpu) {
  cuda::Uuid uuid{};
  int multiprocessors = 0;
  if (driver.cuDeviceGetUuid_v2 == nullptr ||
      driver.cuDeviceGetUuid_v2(&uuid, gpu.index) != cuda::kSuccess) {
    Say("the driver does not tell which GPU this is (CUDA 11.4 or later does); this job is not "
        "gated");
    return false;
  }
  driver.cuDeviceGetAttribute(&multiprocessors, cuda::kMultiprocessorCount, gpu.index);
  gpu.multiprocessors = static_cast<std::uint32_t>(multiprocessors);
  return JoinBoard(gpu, uuid);
}

void JoinGpu(const Driver& driver, GpuState& gpu) {
  const RelaxedCapture relaxed(driver);
  gpu.context = nullptr;
  if (driver.cuCtxGetCurrent != nullptr) driver.cuCtxGetCurrent(&gpu.context);
  if (process.settings.job.job_class == JobClass::kLog) {
    gpu.phase.store(JoinLog(driver, gpu) ? kJoined : kOff, std::memory_order_release);
    return;
  }
  if (!OpenAndJoin(driver, gpu)) {
    gpu.phase.store(kOff, std::memory_order_release);
    return;
  }
  if (process.settings.job.job_class == JobClass::kBatch) {
    PrepareBatch(driver, gpu);
  } else {
    PrepareLatency(driver, gpu);
  }
  gpu.slot->mode.store(static_cast<std::uint32_t>(gpu.mode.load()), std::memory_order_relaxed);
  gpu.phase.store(kJoined, std::memory_order_release);
  StartKeeper();
}

const char* const kModes[] = {"unknown", "device", "host", "pass"};

void ReportLatency(FILE* out, const GpuState& gpu) {
  const std::uint64_t since = gpu.slot->closed_since_ns.load();
  const std::uint64_t closed_ns = gpu.slot->closed_ns.load() + (since == 0 ? 0 : NowNs() - since);
  fprintf(out,
          "divvy: GPU %d: mode %s, gate closed for %.1f ms by this job, %llu requests, p99 %.3f "
          "ms, opened by others %llu times\n",
          gpu.index, kModes[static_cast<int>(gpu.mode.load())],
          static_cast<double>(closed_ns) / 1e6, static_cast<unsigned long long>(gpu.times.Count()),
          static_cast<double>(gpu.times.Quantile(990)) / 1e6,
          static_cast<unsigned long long>(gpu.slot->rescued.load()));
  if (gpu.slot->apart.load() == 0) return;
  const HoldTrials& trials = gpu.hold_trials;
  fprintf(out,
          "divvy: GPU %d: apart: of requests in a row %u found the GPU held and took %.3f ms, %u "
          "did not and took %.3f\n",
          gpu.index, trials.Count(true), static_cast<double>(trials.MedianNs(true)) / 1e6,
          trials.Count(false), static_cast<double>(trials.MedianNs(false)) / 1e6);
}

void Report(FILE* out) {
  const Coverage& seen = process.coverage;
  fprintf(out,
          "divvy: %llu kernels and %llu graphs launched under the gate (%llu into captures), %llu "
          "of %llu driver look-ups and %llu "
          "symbols replaced\n",
          static_cast<unsigned long long>(seen.kernels.load()),
          static_cast<unsigned long long>(seen.graphs.load()),
          static_cast<unsigned long long>(seen.captured.load()),
          static_cast<unsigned long long>(seen.replaced.load()),
          static_cast<unsigned long long>(seen.lookups.load()),
          static_cast<unsigned long long>(seen.dlsyms.load()));
  const std::uint64_t refused = seen.out_of_memory.load();
  if (seen.kernels.load() + seen.graphs.load() == 0 && refused == 0) {
    fprintf(out,
            "divvy: no launch was seen: either the program used no GPU, or it reached the driver "
            "past the gate\n");
  }
  for (const GpuState& gpu : process.gpus) {
    if (gpu.phase.load() != kJoined || gpu.slot == nullptr) continue;
    if (process.settings.job.job_class == JobClass::kLatency) {
      ReportLatency(out, gpu);
    } else {
      fprintf(out, "divvy: GPU %d: mode %s, %llu markers, %.1f s of GPU time charged\n", gpu.index,
              kModes[static_cast<int>(gpu.mode.load())],
              static_cast<unsigned long long>(gpu.slot->markers.load()),
              static_cast<double>(gpu.slot->gpu_ns.load()) / 1e9);
    }
  }
  if (refused != 0)
    fprintf(out, "divvy: memory refused %llu times\n", static_cast<unsigned long long>(refused));
}

// The driver was loaded, and yet nobody asked the gate for anything: that is what a report is for.
bool PassedBy() {
  const char* report = getenv("DIVVY_REPORT");
  return report != nullptr && *report != '\0' &&
         dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

// `divvy run` names its own open file by its process id, which elsewhere, or later, is another's.
bool IsTheReport(const char* path) {
  constexpr const char* kMemory = "/memfd:divvy-report";
  if (strncmp(path, "/proc/", 6) != 0) return true;
  char target[64] = "";
  return readlink(path, target, sizeof target - 1) > 0 &&
         strncmp(target, kMemory, strlen(kMemory)) == 0;
}

__attribute__((destructor)) void AtExit() {
  if (process.configured.load() == 0) {
    if (!PassedBy()) return;
    Configure();
  }
  if (const char* path = process.settings.report; path != nullptr && *path != '\0') {
    FILE* out = strcmp(path, "-") == 0 || !IsTheReport(path) ? stderr : fopen(path, "ae");
    if (out != nullptr) {
      Report(out);
      if (out != stderr) fclose(out);
    }
  }
  for (GpuState& gpu : process.gpus) {
    const bool joined = gpu.phase.exchange(kOff) == kJoined;
    Board* const board = gpu.last_board.load();
    if (board == nullptr) continue;
    if (joined) {
      StopPublishing(gpu);  // other threads may still be in a call
      Leave(board, gpu.slot_index);
    }
    // A program that ended its contexts before has left, and the file was not removed then.
    RemoveIfEmpty(board, gpu.board_path);
  }
}

// Nobody waits for the lock on a launch; here, before its events go, somebody has to. Not for ever:
// it is taken over then from a thread that is stopped, which finds its events gone.
void AwaitSamplingLock(GpuState& gpu) {
  for (int i = 0; i < kLockPauses && gpu.sampling.exchange(1, std::memory_order_acquire) != 0;
       ++i) {
    const timespec pause{0, kLockPauseNs};
    nanosleep(&pause, nullptr);
  }
}

// As nvidia-smi writes it, GPU-01234567-89ab-... or MIG-...; false if it is none.
bool ParseUuid(const char* text, cuda::Uuid& uuid) {
  const char* at = text == nullptr ? nullptr : strchr(text, '-');
  for (unsigned char& byte : uuid.bytes) {
    while (at != nullptr && *at == '-') ++at;
    unsigned value = 0;
    if (at == nullptr || isxdigit(at[0]) == 0 || isxdigit(at[1]) == 0 ||
        sscanf(at, "%2x", &value) != 1)
      return false;
    byte = static_cast<unsigned char>(value);
    at += 2;
  }
  return *at == '\0';
}

// What was prepared to time kernels, or to hold the GPU, went with the context.
void ForgetTiming(GpuState& gpu) {
  SuspendHold(gpu);
  AwaitSamplingLock(gpu);
  for (Sample& sample : gpu.samples) sample = {};
  gpu.samples_out = 0;
  gpu.hold_on_gpu = 0;
  gpu.clock_event = nullptr;
  gpu.clock_ns = 0;
  gpu.sampling.store(0, std::memory_order_release);
}

}  // namespace

void Say(const char* format, ...) {
  char line[768];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  dprintf(STDERR_FILENO, "divvy: %s\n", line);
}

cuda::DevicePointer MapForGpu(const Driver& driver, void* memory, std::size_t bytes) {
  if (driver.cuMemHostRegister_v2 == nullptr || driver.cuStreamWaitValue32_v2 == nullptr ||
      driver.cuStreamWriteValue32_v2 == nullptr) {
    return 0;
  }
  const cuda::Result registered = driver.cuMemHostRegister_v2(
      memory, bytes, cuda::kHostRegisterDeviceMap | cuda::kHostRegisterPortable);
  cuda::DevicePointer pointer = 0;
  if ((registered != cuda::kSuccess && registered != kAlreadyRegistered) ||
      driver.cuMemHostGetDevicePointer_v2(&pointer, memory, 0) != cuda::kSuccess)
    return 0;
  return pointer;
}

void ForgetGpu(cuda::Device device) {
  if (device < 0 || device >= kDevices) return;
  GpuState& gpu = process.gpus[device];
  std::uint32_t expected = kJoined;
  if (!gpu.phase.compare_exchange_strong(expected, kJoining)) return;
  if (gpu.board != nullptr) {
    StopPublishing(gpu);
    Leave(gpu.board, gpu.slot_index);
  }
  // The board stays mapped: the keeper may be looking at it.
  ForgetTiming(gpu);
  for (Worker& worker : gpu.workers) {
    worker.active = 0;
    worker.waiting = 0;
    worker.since_mark = worker.marks = worker.in_request = 0;
  }
  for (ProgressMark& mark : pinned->marks[device]) mark.passed = 0;
  gpu.active = 0;
  gpu.waiting = 0;
  gpu.heavy = 0;
  gpu.rest_until_ns = 0;
  gpu.open_at_ns = 0;
  gpu.phase.store(kUnseen, std::memory_order_release);
}

void ForgetContext(cuda::Context context) {
  if (context == nullptr) return;
  for (const GpuState& gpu : process.gpus) {
    if (gpu.phase.load(std::memory_order_acquire) != kJoined || gpu.context != context) continue;
    ForgetGpu(gpu.index);
    // Its functions went as well, and their handles may come again for others.
    if (process.log != nullptr) process.costs.ForgetKinds();
  }
}

void JoinAsServer() {
  GpuState& gpu = process.gpus[0];
  std::uint32_t expected = kUnseen;
  if (!gpu.phase.compare_exchange_strong(expected, kJoining)) return;
  cuda::Uuid uuid{};
  const bool joined = ParseUuid(getenv("DIVVY_GPU_UUID"), uuid) && JoinBoard(gpu, uuid);
  gpu.phase.store(joined ? kJoined : kOff, std::memory_order_release);
  if (joined) StartKeeper();
}

void ReadSettings() {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (process.configured.load(std::memory_order_acquire) != 0) return;
  pthread_once(&once, Configure);
  process.configured.store(1, std::memory_order_release);
}

GpuState* CurrentGpu(const Driver& driver) {
  ReadSettings();
  const JobClass job_class = process.settings.job.job_class;
  if (job_class == JobClass::kNone || job_class == JobClass::kServer) return nullptr;
  int device = 0;
  int count = process.device_count.load(std::memory_order_relaxed);
  if (count == 0) {
    if (driver.cuDeviceGetCount == nullptr || driver.cuDeviceGetCount(&count) != cuda::kSuccess)
      return nullptr;
    process.device_count.store(count, std::memory_order_relaxed);
  }
  // With one GPU there is nothing to ask on every launch.
  if (count != 1 && driver.cuCtxGetDevice(&device) != cuda::kSuccess) return nullptr;
  if (device < 0 || device >= kDevices) return nullptr;
  GpuState& gpu = process.gpus[device];
  const std::uint32_t phase = gpu.phase.load(std::memory_order_acquire);
  if (phase == kJoined) return &gpu;
  // What joining does may not be done while somebody captures, and needs a context; the next call
  // after it will.
  if (phase != kUnseen || process.captures.load() != 0 ||
      driver.cuCtxGetDevice(&device) != cuda::kSuccess)
    return nullptr;
  std::uint32_t expected = kUnseen;
  if (!gpu.phase.compare_exchange_strong(expected, kJoining)) return nullptr;
  gpu.index = device;
  JoinGpu(driver, gpu);
  return gpu.phase.load() == kJoined ? &gpu : nullptr;
}

Worker* ThisWorker(GpuState& gpu) {
  if (own_thread != 0) return &gpu.workers[own_thread - 1];
  for (int i = 0; i < kThreads; ++i) {
    std::uint32_t expected = 0;
    if (process.thread_taken[i].load() != 0 ||
        !process.thread_taken[i].compare_exchange_strong(expected, 1))
      continue;
    own_thread = i + 1;
    pthread_setspecific(thread_key,
                        reinterpret_cast<void*>(static_cast<std::intptr_t>(own_thread)));
    return &gpu.workers[i];
  }
  return nullptr;
}

}  // namespace divvy::gate
