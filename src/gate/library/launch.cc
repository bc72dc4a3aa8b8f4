// The calls that start work on the GPU.

#include "gate/library/hooks.h"
#include "gate/library/occupancy.h"
#include "gate/turns.h"

#include <time.h>
#include <cstring>

namespace divvy::gate {
namespace {

constexpr std::uint64_t kAccountNs =
    1'000'000;  // GPU time after which a batch job looks at the others' turns
constexpr long kTurnPauseNs = 200'000;
constexpr int kTurnPauses = 100;
constexpr std::uint32_t kRefusals = 3;  // in a row: the driver will not have it
constexpr int kHostPauses = 2'000;
constexpr long kHostPauseNs = 50'000;

StreamGauge& GaugeOf(GpuState& gpu, cuda::Stream stream) {
  const auto bits = reinterpret_cast<std::uintptr_t>(stream);
  return gpu.gauges[(bits ^ bits >> 8 ^ bits >> 16) % kGauges];
}

// Empty if the driver does not say.
const char* NameOf(const Driver& driver, cuda::Function function) {
  const char* name = nullptr;
  if (driver.cuKernelGetName != nullptr)
    driver.cuKernelGetName(&name, reinterpret_cast<cuda::Kernel>(function));
  if (name == nullptr && driver.cuFuncGetName != nullptr) driver.cuFuncGetName(&name, function);
  return name == nullptr ? "" : name;
}

// Collective operations of several GPUs: one that waits stops the others, perhaps on other
// machines.
bool IsCollective(const char* name) {
  return strncmp(name, "nccl", 4) == 0 || strstr(name, "ncclKernel") != nullptr ||
         strstr(name, "ncclDevKernel") != nullptr;
}

void Describe(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
              cuda::Function function, Cost& cost) {
  cost.fill.store(1000, std::memory_order_relaxed);
  if (function == nullptr) return;
  const char* name = NameOf(driver, function);
  cost.exempt.store(IsCollective(name) ? 1 : 0, std::memory_order_relaxed);
  if (const KnownOp* known = process.known.Find(OpKey(name, shape)); known != nullptr) {
    cost.ns.store(known->ns, std::memory_order_relaxed);
    cost.fill.store(known->fill, std::memory_order_relaxed);
    return;
  }
  const std::uint64_t threads =
      static_cast<std::uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2];
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  int per_multiprocessor = 0;
  if (driver.cuOccupancyMaxActiveBlocksPerMultiprocessor == nullptr ||
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, function,
                                                         static_cast<int>(threads),
                                                         shape.shared_bytes) != cuda::kSuccess ||
      per_multiprocessor <= 0 || gpu.multiprocessors == 0) {
    return;
  }
  const std::uint64_t fill =
      blocks * 1000 / (static_cast<std::uint64_t>(per_multiprocessor) * gpu.multiprocessors);
  cost.fill.store(static_cast<std::uint16_t>(fill > 1000 ? 1000 : fill), std::memory_order_relaxed);
}

void WaitOnHost(const Driver& driver, GpuState& gpu, cuda::Stream stream, std::uint32_t job_class) {
  for (const Slot& slot : gpu.board->slots) {
    if (slot.live.load(std::memory_order_acquire) == 0 || slot.job.job_class != JobClass::kLatency)
      continue;
    for (int i = 0; i < kHostPauses && slot.level.load(std::memory_order_acquire) < job_class;
         ++i) {
      const timespec pause{0, kHostPauseNs};
      nanosleep(&pause, nullptr);
    }
  }
  // No more than a few stretches between markers under way: what is launched cannot be called back.
  const std::uint32_t at = gpu.host_mark.fetch_add(1, std::memory_order_relaxed) % 4;
  driver.cuEventSynchronize(gpu.host_marks[(at + 2) % 4]);
  driver.cuEventRecord(gpu.host_marks[at], stream);
}

void PutMarker(const Driver& driver, GpuState& gpu, cuda::Stream stream, std::uint32_t job_class) {
  bool put = false;
  std::uint32_t least_openness = kNoProtection;
  if (gpu.mode.load(std::memory_order_relaxed) == GateMode::kHost) {
    const RelaxedCapture relaxed(driver);
    WaitOnHost(driver, gpu, stream, job_class);
    put = true;
  } else {
    for (int i = 0; i < kSlots; ++i) {
      const Slot& slot = gpu.board->slots[i];
      if (slot.live.load(std::memory_order_acquire) == 0 ||
          slot.job.job_class != JobClass::kLatency)
        continue;
      const std::uint32_t openness = slot.openness.load(std::memory_order_relaxed);
      if (openness >= kNoProtection) continue;
      if (openness < least_openness) least_openness = openness;
      const auto offset = static_cast<std::uint64_t>(reinterpret_cast<const char*>(&slot.level) -
                                                     reinterpret_cast<const char*>(gpu.board));
      if (driver.cuStreamWaitValue32_v2(stream, gpu.board_on_gpu + offset, job_class,
                                        cuda::kWaitValueGeq) != cuda::kSuccess) {
        // A stream that is no good fails the launch as well, and says nothing about others.
        if (gpu.refused.fetch_add(1, std::memory_order_relaxed) + 1 < kRefusals) return;
        gpu.mode.store(GateMode::kPass);
        gpu.slot->mode.store(static_cast<std::uint32_t>(GateMode::kPass),
                             std::memory_order_relaxed);
        Say("the driver refuses a wait in this program's stream: its kernels are no longer held "
            "back");
        return;
      }
      gpu.refused.store(0, std::memory_order_relaxed);
      put = true;
    }
  }
  gpu.interval_ns.store(MarkerIntervalNs(least_openness), std::memory_order_relaxed);
  if (put) gpu.slot->markers.fetch_add(1, std::memory_order_relaxed);
}

// Reads the timings that are ready. Under the sampling lock.
void Harvest(const Driver& driver, GpuState& gpu) {
  const RelaxedCapture relaxed(driver);
  for (Sample& sample : gpu.samples) {
    if (sample.cost == nullptr || driver.cuEventQuery(sample.end) == cuda::kNotReady) continue;
    float ms = 0.0F;
    if (driver.cuEventElapsedTime(&ms, sample.begin, sample.end) == cuda::kSuccess) {
      const float ns = ms * 1e6F - static_cast<float>(gpu.sample_overhead_ns);
      Learn(*sample.cost, ns < 1.0F   ? 1U
                          : ns > 4e9F ? 4'000'000'000U
                                      : static_cast<std::uint32_t>(ns));
    }
    sample.cost = nullptr;
  }
}

// Begins to time a launch; null if another thread is at it or all events are in use.
Sample* BeginSample(const Driver& driver, GpuState& gpu, cuda::Stream stream, Cost& cost) {
  if (gpu.sampling.exchange(1, std::memory_order_acquire) != 0) return nullptr;
  Sample& sample = gpu.samples[gpu.next_sample % kSamples];
  if (gpu.next_sample % 16 == 0 || sample.cost != nullptr) Harvest(driver, gpu);
  if (sample.cost == nullptr && sample.begin != nullptr &&
      driver.cuEventRecord(sample.begin, stream) == cuda::kSuccess) {
    ++gpu.next_sample;
    sample.cost = &cost;
    return &sample;
  }
  gpu.sampling.store(0, std::memory_order_release);
  return nullptr;
}

void EndSample(const Driver& driver, GpuState& gpu, cuda::Stream stream, Sample& sample) {
  if (driver.cuEventRecord(sample.end, stream) != cuda::kSuccess) sample.cost = nullptr;
  gpu.sampling.store(0, std::memory_order_release);
}

void TakeTurns(GpuState& gpu) {
  const std::uint64_t ns = gpu.account_ns.exchange(0, std::memory_order_relaxed);
  Slot& slot = *gpu.slot;
  std::uint64_t now = NowNs();
  if (now > slot.last_launch_ns.load(std::memory_order_relaxed) + kIdleAfterNs)
    CatchUp(*gpu.board, gpu.slot_index, now);
  slot.gpu_ns.fetch_add(ns, std::memory_order_relaxed);
  slot.virtual_ns.fetch_add(VirtualNs(ns, slot.job.weight), std::memory_order_relaxed);
  slot.last_launch_ns.store(now, std::memory_order_relaxed);
  for (int i = 0; i < kTurnPauses && LeadsTooFar(*gpu.board, gpu.slot_index, now); ++i) {
    const timespec pause{0, kTurnPauseNs};
    nanosleep(&pause, nullptr);
    now = NowNs();
    slot.last_launch_ns.store(now, std::memory_order_relaxed);
  }
}

bool Captures(const Driver& driver, cuda::Stream stream) {
  cuda::CaptureStatus status = cuda::kCaptureNone;
  return driver.cuStreamIsCapturing(stream, &status) == cuda::kSuccess &&
         status != cuda::kCaptureNone;
}

void EndCapture() {
  std::uint32_t captures = process.captures.load();
  while (captures > 0 && !process.captures.compare_exchange_weak(captures, captures - 1)) {
  }
}

bool IsCaptured(const Driver& driver, cuda::Stream stream) {
  if (process.captures.load(std::memory_order_relaxed) == 0) return false;
  cuda::CaptureStatus status = cuda::kCaptureNone;
  return driver.cuStreamIsCapturing(stream, &status) != cuda::kSuccess ||
         status != cuda::kCaptureNone;
}

template <typename Call>
cuda::Result LaunchBatch(const Driver& driver, GpuState& gpu, const LaunchShape& shape,
                         cuda::Function function, cuda::Stream stream, Call call) {
  bool fresh = false;
  Cost* cost = process.costs.Find(KeyOf(shape), &fresh);
  if (cost == nullptr) return call();
  if (fresh) Describe(driver, gpu, shape, function, *cost);
  const std::uint32_t ns = ChargedNs(*cost);
  if (gpu.account_ns.fetch_add(ns, std::memory_order_relaxed) + ns >= kAccountNs &&
      cost->exempt.load() == 0)
    TakeTurns(gpu);
  if (gpu.mode.load(std::memory_order_relaxed) != GateMode::kPass &&
      gpu.board->latency_jobs.load(std::memory_order_relaxed) != 0) {
    const Marking marking =
        Mark(GaugeOf(gpu, stream), *cost, gpu.interval_ns.load(std::memory_order_relaxed));
    if (marking.marker) PutMarker(driver, gpu, stream, marking.job_class);
  }
  Sample* sample = nullptr;
  const bool others = gpu.board->batch_jobs.load(std::memory_order_relaxed) > 1;
  if (WantsSample(*cost, others) && process.captures.load(std::memory_order_relaxed) == 0)
    sample = BeginSample(driver, gpu, stream, *cost);
  const cuda::Result result = call();
  if (sample != nullptr) EndSample(driver, gpu, stream, *sample);
  return result;
}

template <typename Call>
cuda::Result Launch(const LaunchShape& shape, cuda::Function function, cuda::Stream stream,
                    Call call) {
  const Driver* driver = RealDriver();
  (function != nullptr ? process.coverage.kernels : process.coverage.graphs)
      .fetch_add(1, std::memory_order_relaxed);
  if (IsCaptured(*driver, stream)) {
    process.coverage.captured.fetch_add(1, std::memory_order_relaxed);
    return call();
  }
  GpuState* gpu = CurrentGpu(*driver);
  if (gpu == nullptr) return call();
  gpu->slot->launches.fetch_add(1, std::memory_order_relaxed);
  if (function == nullptr) gpu->slot->graphs.fetch_add(1, std::memory_order_relaxed);
  if (process.settings.job.job_class == JobClass::kBatch)
    return LaunchBatch(*driver, *gpu, shape, function, stream, call);
  BeforeLaunch(*gpu, stream, function == nullptr);
  const cuda::Result result = call();
  if (function != nullptr) AfterLaunch(*driver, *gpu, stream);
  return result;
}

cuda::Stream OwnDefault(cuda::Stream stream) {
  return stream == nullptr ? cuda::PerThreadStream() : stream;
}

LaunchShape ShapeOf(const void* handle, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                    unsigned by, unsigned bz, unsigned shared) {
  return {.handle = reinterpret_cast<std::uintptr_t>(handle),
          .grid = {gx, gy, gz},
          .block = {bx, by, bz},
          .shared_bytes = shared};
}

LaunchShape ShapeOf(const cuda::LaunchConfig& c, const void* handle) {
  return ShapeOf(handle, c.grid_x, c.grid_y, c.grid_z, c.block_x, c.block_y, c.block_z,
                 c.shared_bytes);
}

LaunchShape ShapeOf(cuda::GraphExec graph) {
  return {.handle = reinterpret_cast<std::uintptr_t>(graph)};
}

}  // namespace

extern "C" {

#define DIVVY_LAUNCH_KERNEL(name, stream_of)                                              \
  DIVVY_HOOK cuda::Result name(cuda::Function f, unsigned gx, unsigned gy, unsigned gz,   \
                               unsigned bx, unsigned by, unsigned bz, unsigned shared,    \
                               cuda::Stream stream, void** parameters, void** extra) {    \
    DIVVY_REAL(name);                                                                     \
    return Launch(ShapeOf(f, gx, gy, gz, bx, by, bz, shared), f, stream_of(stream), [&] { \
      return real(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);          \
    });                                                                                   \
  }
DIVVY_LAUNCH_KERNEL(cuLaunchKernel, )
DIVVY_LAUNCH_KERNEL(cuLaunchKernel_ptsz, OwnDefault)

#define DIVVY_LAUNCH_EX(name, stream_of)                                           \
  DIVVY_HOOK cuda::Result name(const cuda::LaunchConfig* config, cuda::Function f, \
                               void** parameters, void** extra) {                  \
    DIVVY_REAL(name);                                                              \
    if (config == nullptr) return real(config, f, parameters, extra);              \
    return Launch(ShapeOf(*config, f), f, stream_of(config->stream),               \
                  [&] { return real(config, f, parameters, extra); });             \
  }
DIVVY_LAUNCH_EX(cuLaunchKernelEx, )
DIVVY_LAUNCH_EX(cuLaunchKernelEx_ptsz, OwnDefault)

#define DIVVY_LAUNCH_COOPERATIVE(name, stream_of)                                               \
  DIVVY_HOOK cuda::Result name(cuda::Function f, unsigned gx, unsigned gy, unsigned gz,         \
                               unsigned bx, unsigned by, unsigned bz, unsigned shared,          \
                               cuda::Stream stream, void** parameters) {                        \
    DIVVY_REAL(name);                                                                           \
    return Launch(ShapeOf(f, gx, gy, gz, bx, by, bz, shared), f, stream_of(stream),             \
                  [&] { return real(f, gx, gy, gz, bx, by, bz, shared, stream, parameters); }); \
  }
DIVVY_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, )
DIVVY_LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, OwnDefault)

#define DIVVY_LAUNCH_GRAPH(name, stream_of)                                  \
  DIVVY_HOOK cuda::Result name(cuda::GraphExec graph, cuda::Stream stream) { \
    DIVVY_REAL(name);                                                        \
    return Launch(ShapeOf(graph), nullptr, stream_of(stream),                \
                  [&] { return real(graph, stream); });                      \
  }
DIVVY_LAUNCH_GRAPH(cuGraphLaunch, )
DIVVY_LAUNCH_GRAPH(cuGraphLaunch_ptsz, OwnDefault)

DIVVY_HOOK cuda::Result cuGraphExecDestroy(cuda::GraphExec graph) {
  DIVVY_REAL(cuGraphExecDestroy);
  process.costs.Forget(KeyOf(ShapeOf(graph)));
  return real(graph);
}

// Captures: while one is under way anywhere in the process, the gate keeps its hands off streams
// that take part.
#define DIVVY_BEGIN_CAPTURE(name)                                             \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream, cuda::CaptureMode mode) { \
    DIVVY_REAL(name);                                                         \
    const cuda::Result result = real(stream, mode);                           \
    if (result == cuda::kSuccess) process.captures.fetch_add(1);              \
    return result;                                                            \
  }
DIVVY_BEGIN_CAPTURE(cuStreamBeginCapture_v2)
DIVVY_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz)

#define DIVVY_BEGIN_CAPTURE_TO_GRAPH(name)                                                         \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream, cuda::Graph graph,                             \
                               const cuda::GraphNode* nodes, const void* edges, std::size_t count, \
                               cuda::CaptureMode mode) {                                           \
    DIVVY_REAL(name);                                                                              \
    const cuda::Result result = real(stream, graph, nodes, edges, count, mode);                    \
    if (result == cuda::kSuccess) process.captures.fetch_add(1);                                   \
    return result;                                                                                 \
  }
DIVVY_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph)
DIVVY_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz)

#define DIVVY_END_CAPTURE(name, stream_of)                                \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream, cuda::Graph* graph) { \
    DIVVY_REAL(name);                                                     \
    const Driver* driver = RealDriver();                                  \
    const bool before = Captures(*driver, stream_of(stream));             \
    const cuda::Result result = real(stream, graph);                      \
    /* Failed or not: it is over if the stream no longer takes part. */   \
    if (before && !Captures(*driver, stream_of(stream))) EndCapture();    \
    return result;                                                        \
  }
DIVVY_END_CAPTURE(cuStreamEndCapture, )
DIVVY_END_CAPTURE(cuStreamEndCapture_ptsz, OwnDefault)

// The first form of the call, without a mode.
#define DIVVY_BEGIN_CAPTURE_OLD(name)                            \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream) {            \
    DIVVY_REAL(name);                                            \
    const cuda::Result result = real(stream);                    \
    if (result == cuda::kSuccess) process.captures.fetch_add(1); \
    return result;                                               \
  }
DIVVY_BEGIN_CAPTURE_OLD(cuStreamBeginCapture)
DIVVY_BEGIN_CAPTURE_OLD(cuStreamBeginCapture_ptsz)

#define DIVVY_RESET(name)                             \
  DIVVY_HOOK cuda::Result name(cuda::Device device) { \
    DIVVY_REAL(name);                                 \
    ForgetGpu(device);                                \
    const cuda::Result result = real(device);         \
    if (result == cuda::kSuccess) ForgetMemory();     \
    return result;                                    \
  }
DIVVY_RESET(cuDevicePrimaryCtxReset)
DIVVY_RESET(cuDevicePrimaryCtxReset_v2)

}  // extern "C"

}  // namespace divvy::gate
