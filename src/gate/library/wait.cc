// The calls by which a latency job finds out that the GPU is done. Never gated; watched, so that
// the gate knows when the job waits and when it is idle.

#include "gate/library/hold.h"
#include "gate/library/hooks.h"
#include "gate/library/occupancy.h"
#include "gate/library/timing.h"

#include <cstdlib>

namespace divvy::gate {
namespace {

// Which launch an event was recorded after: an event that is older than the thread's last launch
// says nothing about it.
struct EventMark {
  std::atomic<cuda::Event> event;
  std::atomic<std::uint64_t> launch;
  std::atomic<cuda::Stream> stream;
};
constexpr std::uint32_t kEventMarks = 4096;
EventMark event_marks[kEventMarks];

EventMark& MarkOf(cuda::Event event) {
  const auto bits = reinterpret_cast<std::uintptr_t>(event);
  return event_marks[(bits >> 4 ^ bits >> 16) % kEventMarks];
}

// The GPU whose gate this process closes, or null if it closes none.
GpuState* WatchedGpu() {
  if (process.settings.job.job_class != JobClass::kLatency) return nullptr;
  const Driver* driver = RealDriver();
  return driver == nullptr ? nullptr : CurrentGpu(*driver);
}

// What a wait answers in a job that is not watched.
cuda::Result Unwatched(cuda::Result result) {
  ReadTimingsAfterWait();
  return result;
}

void Recorded(cuda::Event event, cuda::Stream stream) {
  GpuState* gpu = WatchedGpu();
  if (gpu == nullptr) return;
  const Worker* worker = ThisWorker(*gpu);
  EventMark& mark = MarkOf(event);
  mark.event.store(event, std::memory_order_relaxed);
  mark.stream.store(stream, std::memory_order_relaxed);
  mark.launch.store(worker == nullptr ? 0 : worker->last_launch.load(std::memory_order_relaxed),
                    std::memory_order_release);
}

struct Covered {
  bool own = false;  // the thread's latest launch
  cuda::Stream stream = nullptr;
  std::uint64_t launch = 0;
};

Covered CoveredBy(GpuState& gpu, cuda::Event event) {
  const EventMark& mark = MarkOf(event);
  if (mark.event.load(std::memory_order_relaxed) != event) return {};
  const Worker* worker = ThisWorker(gpu);
  const std::uint64_t launch = mark.launch.load(std::memory_order_acquire);
  return {.own = worker != nullptr && launch != 0 &&
                 launch >= worker->last_launch.load(std::memory_order_relaxed),
          .stream = mark.stream.load(std::memory_order_relaxed),
          .launch = launch};
}

cuda::Stream OwnDefault(cuda::Stream stream) {
  return stream == nullptr ? cuda::PerThreadStream() : stream;
}

// A host function that follows the thread's work in its stream: servers that never wait are told of
// the end by it.
struct Callback {
  void (*function)(void*);
  void* data;
  GpuState* gpu;
  Worker* worker;
  std::uint64_t launch;
};

void CallBack(void* data) {
  const Callback callback = *static_cast<Callback*>(data);
  free(data);
  Finished(*callback.gpu, *callback.worker, callback.launch);
  callback.function(callback.data);
}

}  // namespace

extern "C" {

#define DIVVY_STREAM_SYNCHRONIZE(name, stream_of)                                      \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream) {                                  \
    DIVVY_REAL(name);                                                                  \
    GpuState* gpu = WatchedGpu();                                                      \
    if (gpu == nullptr) return Unwatched(real(stream));                                \
    Waiting waiting(gpu);                                                              \
    const cuda::Result result = real(stream);                                          \
    result == cuda::kSuccess ? waiting.StreamDone(stream_of(stream)) : waiting.Over(); \
    return result;                                                                     \
  }
DIVVY_STREAM_SYNCHRONIZE(cuStreamSynchronize, )
DIVVY_STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz, OwnDefault)

DIVVY_HOOK cuda::Result cuCtxSynchronize() {
  DIVVY_REAL(cuCtxSynchronize);
  GpuState* gpu = WatchedGpu();
  if (gpu == nullptr) return Unwatched(real());
  LetGo(*gpu);  // It would be waited for.
  Waiting waiting(gpu);
  const cuda::Result result = real();
  result == cuda::kSuccess ? waiting.ContextDone() : waiting.Over();
  return result;
}

DIVVY_HOOK cuda::Result cuCtxSynchronize_v2(cuda::Context context) {
  DIVVY_REAL(cuCtxSynchronize_v2);
  GpuState* gpu = WatchedGpu();
  if (gpu == nullptr) return Unwatched(real(context));
  LetGo(*gpu);
  Waiting waiting(gpu);
  const cuda::Result result = real(context);
  result == cuda::kSuccess ? waiting.ContextDone() : waiting.Over();
  return result;
}

DIVVY_HOOK cuda::Result cuEventSynchronize(cuda::Event event) {
  DIVVY_REAL(cuEventSynchronize);
  GpuState* gpu = WatchedGpu();
  if (gpu == nullptr) return Unwatched(real(event));
  const Covered covered = CoveredBy(*gpu, event);
  Waiting waiting(gpu);
  const cuda::Result result = real(event);
  result == cuda::kSuccess&& covered.own ? waiting.EventDone(covered.stream, covered.launch)
                                         : waiting.Over();
  return result;
}

DIVVY_HOOK cuda::Result cuEventQuery(cuda::Event event) {
  DIVVY_REAL(cuEventQuery);
  const cuda::Result result = real(event);
  if (result != cuda::kSuccess && result != cuda::kNotReady) return result;
  GpuState* gpu = WatchedGpu();
  // Allocators ask about old events all the time: only the end of the latest work is news.
  if (gpu == nullptr) return result;
  const Covered covered = CoveredBy(*gpu, event);
  if (!covered.own) return result;
  if (result == cuda::kNotReady) {
    Polled(*gpu);
  } else {
    Waiting(gpu).EventDone(covered.stream, covered.launch);
  }
  return result;
}

#define DIVVY_STREAM_QUERY(name, stream_of)                                    \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream) {                          \
    DIVVY_REAL(name);                                                          \
    const cuda::Result result = real(stream);                                  \
    if (result != cuda::kSuccess && result != cuda::kNotReady) return result;  \
    GpuState* gpu = WatchedGpu();                                              \
    const Worker* worker = gpu == nullptr ? nullptr : ThisWorker(*gpu);        \
    if (worker != nullptr &&                                                   \
        worker->stream.load(std::memory_order_relaxed) == stream_of(stream)) { \
      if (result == cuda::kNotReady) {                                         \
        Polled(*gpu);                                                          \
      } else {                                                                 \
        Waiting(gpu).StreamDone(stream_of(stream));                            \
      }                                                                        \
    }                                                                          \
    return result;                                                             \
  }
DIVVY_STREAM_QUERY(cuStreamQuery, )
DIVVY_STREAM_QUERY(cuStreamQuery_ptsz, OwnDefault)

#define DIVVY_EVENT_RECORD(name, stream_of)                              \
  DIVVY_HOOK cuda::Result name(cuda::Event event, cuda::Stream stream) { \
    DIVVY_REAL(name);                                                    \
    Recorded(event, stream_of(stream));                                  \
    return real(event, stream);                                          \
  }
DIVVY_EVENT_RECORD(cuEventRecord, )
DIVVY_EVENT_RECORD(cuEventRecord_ptsz, OwnDefault)

#define DIVVY_EVENT_RECORD_FLAGS(name, stream_of)                                        \
  DIVVY_HOOK cuda::Result name(cuda::Event event, cuda::Stream stream, unsigned flags) { \
    DIVVY_REAL(name);                                                                    \
    Recorded(event, stream_of(stream));                                                  \
    return real(event, stream, flags);                                                   \
  }
DIVVY_EVENT_RECORD_FLAGS(cuEventRecordWithFlags, )
DIVVY_EVENT_RECORD_FLAGS(cuEventRecordWithFlags_ptsz, OwnDefault)

// Copies that return when they are done wait for the default stream, and with it for all that is
// not apart from it.
#define DIVVY_COPY_TO_HOST(name, default_stream)                                        \
  DIVVY_HOOK cuda::Result name(void* to, cuda::DevicePointer from, std::size_t bytes) { \
    DIVVY_REAL(name);                                                                   \
    GpuState* gpu = WatchedGpu();                                                       \
    if (gpu == nullptr) return Unwatched(real(to, from, bytes));                        \
    Waiting waiting(gpu);                                                               \
    const cuda::Result result = real(to, from, bytes);                                  \
    result == cuda::kSuccess ? waiting.StreamDone(default_stream) : waiting.Over();     \
    return result;                                                                      \
  }
DIVVY_COPY_TO_HOST(cuMemcpyDtoH_v2, nullptr)
DIVVY_COPY_TO_HOST(cuMemcpyDtoH_v2_ptds, cuda::PerThreadStream())

#define DIVVY_COPY(name, default_stream)                                            \
  DIVVY_HOOK cuda::Result name(cuda::DevicePointer to, cuda::DevicePointer from,    \
                               std::size_t bytes) {                                 \
    DIVVY_REAL(name);                                                               \
    GpuState* gpu = WatchedGpu();                                                   \
    if (gpu == nullptr) return Unwatched(real(to, from, bytes));                    \
    Waiting waiting(gpu);                                                           \
    const cuda::Result result = real(to, from, bytes);                              \
    result == cuda::kSuccess ? waiting.StreamDone(default_stream) : waiting.Over(); \
    return result;                                                                  \
  }
DIVVY_COPY(cuMemcpy, nullptr)
DIVVY_COPY(cuMemcpy_ptds, cuda::PerThreadStream())

#define DIVVY_LAUNCH_HOST_FUNCTION(name, stream_of)                                               \
  DIVVY_HOOK cuda::Result name(cuda::Stream stream, void (*function)(void*), void* data) {        \
    DIVVY_REAL(name);                                                                             \
    GpuState* gpu =                                                                               \
        process.captures.load(std::memory_order_relaxed) != 0 ? nullptr : WatchedGpu();           \
    Worker* worker = gpu == nullptr ? nullptr : ThisWorker(*gpu);                                 \
    const bool ends = worker != nullptr && worker->active.load(std::memory_order_relaxed) != 0 && \
                      worker->stream.load(std::memory_order_relaxed) == stream_of(stream);        \
    auto* callback = ends ? static_cast<Callback*>(malloc(sizeof(Callback))) : nullptr;           \
    if (callback == nullptr) return real(stream, function, data);                                 \
    *callback = {function, data, gpu, worker,                                                     \
                 worker->last_launch.load(std::memory_order_relaxed)};                            \
    Polled(*gpu); /* before: the callback may run at once */                                      \
    const cuda::Result result = real(stream, CallBack, callback);                                 \
    if (result != cuda::kSuccess) free(callback);                                                 \
    return result;                                                                                \
  }
DIVVY_LAUNCH_HOST_FUNCTION(cuLaunchHostFunc, )
DIVVY_LAUNCH_HOST_FUNCTION(cuLaunchHostFunc_ptsz, OwnDefault)

// Requests marked by the program itself: exact, and from when they came rather than from their
// first launch.
DIVVY_HOOK void divvy_request_begin(std::uint64_t arrival_ns) {
  if (GpuState* gpu = WatchedGpu(); gpu != nullptr) BeginRequest(*gpu, arrival_ns);
}

DIVVY_HOOK void divvy_request_end() {
  if (GpuState* gpu = WatchedGpu(); gpu != nullptr) EndRequest(*gpu);
}

}  // extern "C"

}  // namespace divvy::gate
