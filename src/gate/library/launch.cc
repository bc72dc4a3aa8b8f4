// The calls that start work on the GPU.

#include "gate/library/batch.h"
#include "gate/library/hold.h"
#include "gate/library/hooks.h"
#include "gate/library/log.h"
#include "gate/library/occupancy.h"
#include "gate/library/timing.h"

namespace divvy::gate {
namespace {

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
  const BatchLaunch launch = BeforeBatchLaunch(driver, gpu, shape, function, stream);
  const cuda::Result result = call();
  AfterBatchLaunch(driver, gpu, launch);
  return result;
}

// Under the kernel log: counted, and timed now and then.
template <typename Call>
cuda::Result LaunchLogged(const Driver& driver, GpuState& gpu, const LaunchShape& shape,
                          cuda::Function function, cuda::Stream stream, Call call) {
  const LoggedKind logged = KindOf(driver, gpu, shape, function);
  if (logged.kind == nullptr) {
    // NOLINTNEXTLINE(clang-analyzer-core.CallAndMessage): who was joined to a log has one.
    process.log->unnoted.fetch_add(1, std::memory_order_relaxed);
    return call();
  }
  const std::uint64_t before = logged.kind->launches.fetch_add(1, std::memory_order_relaxed);
  const std::uint32_t samples = logged.cost->samples.load(std::memory_order_relaxed);
  if (!gpu.pace.IsTurn(logged.cost->key.load(std::memory_order_relaxed), before, samples) ||
      process.captures.load(std::memory_order_relaxed) != 0)
    return call();
  Sample* sample = BeginSample(driver, gpu,
                               {.cost = logged.cost,
                                .kind = logged.kind,
                                .stream = stream,
                                .first = samples < OpsPace::kFirstSamples});
  const cuda::Result result = call();
  if (sample != nullptr) EndSample(driver, gpu, *sample);
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
    if (process.settings.job.job_class == JobClass::kBatch && function != nullptr &&
        !process.captured_collective.load(std::memory_order_relaxed) &&
        IsCollective(*driver, function))
      process.captured_collective.store(true, std::memory_order_relaxed);
    return call();
  }
  GpuState* gpu = CurrentGpu(*driver);
  if (gpu == nullptr) return call();
  if (process.settings.job.job_class == JobClass::kLog)
    return LaunchLogged(*driver, *gpu, shape, function, stream, call);
  gpu->slot->launches.fetch_add(1, std::memory_order_relaxed);
  if (function == nullptr) gpu->slot->graphs.fetch_add(1, std::memory_order_relaxed);
  if (process.settings.job.job_class == JobClass::kBatch)
    return LaunchBatch(*driver, *gpu, shape, function, stream, call);
  BeforeLaunch(*gpu, stream, function == nullptr);
  const cuda::Result result = call();
  if (function != nullptr) {
    AfterLaunch(*driver, *gpu, stream);
  } else {
    AfterGraph(*gpu, result == cuda::kSuccess);
  }
  return result;
}

bool HasPrimary(const Driver& driver, cuda::Device device) {
  unsigned flags = 0;
  int active = 0;
  return driver.cuDevicePrimaryCtxGetState != nullptr &&
         driver.cuDevicePrimaryCtxGetState(device, &flags, &active) == cuda::kSuccess &&
         active != 0;
}

// Null if there is none.
cuda::Context PrimaryOf(const Driver& driver, cuda::Device device) {
  cuda::Context context = nullptr;
  if (driver.cuDevicePrimaryCtxRetain == nullptr ||
      driver.cuDevicePrimaryCtxRelease_v2 == nullptr || !HasPrimary(driver, device) ||
      driver.cuDevicePrimaryCtxRetain(&context, device) != cuda::kSuccess)
    return nullptr;
  driver.cuDevicePrimaryCtxRelease_v2(device);
  return context;
}

// A context that is broken, which is what resets are for, may not be retained any more.
cuda::Context ContextToReset(cuda::Device device) {
  const Driver& driver = *RealDriver();
  cuda::Context primary = PrimaryOf(driver, device);
  const bool is_broken = primary == nullptr && HasPrimary(driver, device);
  return is_broken && device >= 0 && device < kDevices ? process.gpus[device].context : primary;
}

// While a context may go.
class HoldsSuspended {
 public:
  HoldsSuspended() {
    for (int i = 0; i < kDevices; ++i) functions_[i] = SuspendHold(process.gpus[i]);
  }
  ~HoldsSuspended() {
    for (int i = 0; i < kDevices; ++i) {
      // One that was forgotten meanwhile is prepared anew.
      if (process.gpus[i].phase.load(std::memory_order_acquire) == kJoined)
        ResumeHold(process.gpus[i], functions_[i]);
    }
  }
  HoldsSuspended(const HoldsSuspended&) = delete;
  HoldsSuspended& operator=(const HoldsSuspended&) = delete;

 private:
  cuda::Function functions_[kDevices];
};

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

#define DIVVY_INSTANTIATE(name, parameters, ...)                         \
  DIVVY_HOOK cuda::Result name(cuda::GraphExec* exec, cuda::Graph graph, \
                               DIVVY_UNPACK parameters) {                \
    DIVVY_REAL(name);                                                    \
    const cuda::Result result = real(exec, graph, __VA_ARGS__);          \
    if (result == cuda::kSuccess) Instantiated(*exec, graph);            \
    return result;                                                       \
  }
#define DIVVY_UNPACK(...) __VA_ARGS__
DIVVY_INSTANTIATE(cuGraphInstantiate, (cuda::GraphNode * node, char* log, std::size_t size), node,
                  log, size)
DIVVY_INSTANTIATE(cuGraphInstantiate_v2, (cuda::GraphNode * node, char* log, std::size_t size),
                  node, log, size)
DIVVY_INSTANTIATE(cuGraphInstantiateWithFlags, (unsigned long long flags), flags)
DIVVY_INSTANTIATE(cuGraphInstantiateWithParams, (void* parameters), parameters)
DIVVY_INSTANTIATE(cuGraphInstantiateWithParams_ptsz, (void* parameters), parameters)

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

#define DIVVY_RESET(name)                                \
  DIVVY_HOOK cuda::Result name(cuda::Device device) {    \
    DIVVY_REAL(name);                                    \
    cuda::Context primary = ContextToReset(device);      \
    ForgetGpu(device);                                   \
    const cuda::Result result = real(device);            \
    if (result == cuda::kSuccess) ForgetMemory(primary); \
    return result;                                       \
  }
DIVVY_RESET(cuDevicePrimaryCtxReset)
DIVVY_RESET(cuDevicePrimaryCtxReset_v2)

#define DIVVY_DESTROY(name)                              \
  DIVVY_HOOK cuda::Result name(cuda::Context context) {  \
    DIVVY_REAL(name);                                    \
    ForgetContext(context);                              \
    const cuda::Result result = real(context);           \
    if (result == cuda::kSuccess) ForgetMemory(context); \
    return result;                                       \
  }
DIVVY_DESTROY(cuCtxDestroy)
DIVVY_DESTROY(cuCtxDestroy_v2)

// Only the last release ends the context, and only afterwards is it known which was the last.
#define DIVVY_RELEASE(name)                            \
  DIVVY_HOOK cuda::Result name(cuda::Device device) {  \
    DIVVY_REAL(name);                                  \
    const Driver& driver = *RealDriver();              \
    cuda::Context primary = PrimaryOf(driver, device); \
    const HoldsSuspended suspended;                    \
    const cuda::Result result = real(device);          \
    if (!HasPrimary(driver, device)) {                 \
      ForgetContext(primary);                          \
      ForgetMemory(primary);                           \
    }                                                  \
    return result;                                     \
  }
DIVVY_RELEASE(cuDevicePrimaryCtxRelease)
DIVVY_RELEASE(cuDevicePrimaryCtxRelease_v2)

}  // extern "C"

}  // namespace divvy::gate
