#include <algorithm>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"

// Events, outside captures and in them.

namespace divvy::device::cuda_simulator {
namespace {

constexpr unsigned kExternal = 1;  // Of a record or wait: a node of its own in a capture.
constexpr unsigned kEventInterprocess = 4;

cuda::Result Record(Call& call, cuda::Event handle, const std::shared_ptr<StreamState>& stream,
                    unsigned flags) {
  const auto event = call.driver.events.Find(handle);
  if (!event || event->context != stream->context || stream->context != call.context) {
    return cuda::kInvalidHandle;
  }
  if (flags > kExternal) return cuda::kInvalidValue;
  if (stream->capture && flags != kExternal) {
    if (stream->capture->broken) return cuda::kStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->captured_after = stream->capture->FrontOf(*stream)->last;
    event->record.reset();
    return cuda::kSuccess;
  }
  const auto record = std::make_shared<EventRecord>();
  const auto result = Submit(call, stream, kNodeRecordEvent, EventMark{record});
  if (result != cuda::kSuccess) return result;
  event->record = record;
  event->capture.reset();
  return cuda::kSuccess;
}

// A stream that waits for an event recorded in a capture takes part in that capture from then on.
cuda::Result Join(Driver& driver, const EventState& event,
                  const std::shared_ptr<StreamState>& stream) {
  const std::shared_ptr<Capture> capture = event.capture;
  if (capture->ended) return cuda::kCapturedEvent;
  if (capture->broken) return cuda::kStreamCaptureInvalidated;
  if (stream->legacy) {
    driver.Break(*capture);
    return cuda::kStreamCaptureImplicit;
  }
  if (stream->capture && stream->capture != capture) {
    driver.Break(*capture);
    driver.Break(*stream->capture);
    return kStreamCaptureMerge;
  }
  if (!stream->capture) {
    stream->capture = capture;
    capture->fronts.push_back({stream, {}, {}});
  }
  std::vector<int>& last = capture->FrontOf(*stream)->last;
  for (const int place : event.captured_after) {
    if (std::ranges::find(last, place) == last.end()) last.push_back(place);
  }
  return cuda::kSuccess;
}

// What keeps an event from being looked at: it must have been recorded outside captures.
cuda::Result CheckQueried(Driver& driver, const EventState& event) {
  if (event.context->error != cuda::kSuccess) return event.context->error;
  if (event.capture) return cuda::kCapturedEvent;
  return driver.CheckUnsafe();
}

}  // namespace

cuda::Result cuEventCreate(cuda::Event* event, unsigned flags) noexcept {
  return InContext("cuEventCreate", [&](Call& call) {
    constexpr unsigned kAll =
        cuda::kEventBlockingSync | cuda::kEventDisableTiming | kEventInterprocess;
    if (event == nullptr || (flags & ~kAll) != 0) return cuda::kInvalidValue;
    auto state = std::make_shared<EventState>();
    state->context = call.context;
    state->flags = flags;
    *event = call.driver.events.Add(std::move(state));
    return cuda::kSuccess;
  });
}

cuda::Result cuEventDestroy_v2(cuda::Event event) noexcept {
  return InDriver("cuEventDestroy_v2", [&](Call& call) {
    return call.driver.events.Remove(event) ? cuda::kSuccess : cuda::kInvalidHandle;
  });
}

cuda::Result cuEventRecord(cuda::Event event, cuda::Stream handle) noexcept {
  return OnStream("cuEventRecord", handle,
                  [&](Call& call, const auto& stream) { return Record(call, event, stream, 0); });
}

cuda::Result cuEventRecord_ptsz(cuda::Event event, cuda::Stream stream) noexcept {
  return PerThread(cuEventRecord, event, stream);
}

cuda::Result cuEventRecordWithFlags(cuda::Event event, cuda::Stream handle,
                                    unsigned flags) noexcept {
  return OnStream("cuEventRecordWithFlags", handle, [&](Call& call, const auto& stream) {
    return Record(call, event, stream, flags);
  });
}

cuda::Result cuEventRecordWithFlags_ptsz(cuda::Event event, cuda::Stream stream,
                                         unsigned flags) noexcept {
  return PerThread(cuEventRecordWithFlags, event, stream, flags);
}

cuda::Result cuStreamWaitEvent(cuda::Stream handle, cuda::Event event_handle,
                               unsigned flags) noexcept {
  return OnStream("cuStreamWaitEvent", handle, [&](Call& call, const auto& stream) {
    const auto event = call.driver.events.Find(event_handle);
    if (!event) return cuda::kInvalidHandle;
    if (flags > kExternal) return cuda::kInvalidValue;
    if (event->capture) return Join(call.driver, *event, stream);
    if (stream->capture && flags != kExternal) {
      // What was recorded outside can't be part of the graph.
      call.driver.Break(*stream->capture);
      return cuda::kStreamCaptureIsolation;
    }
    if (!event->record) return cuda::kSuccess;
    Node node;
    node.type = kNodeWaitEvent;
    node.work.emplace_back(EventAwait{event->record});
    return call.driver.Submit(call.lock, stream, std::move(node));
  });
}

cuda::Result cuStreamWaitEvent_ptsz(cuda::Stream stream, cuda::Event event,
                                    unsigned flags) noexcept {
  return PerThread(cuStreamWaitEvent, stream, event, flags);
}

cuda::Result cuEventQuery(cuda::Event handle) noexcept {
  return InDriver("cuEventQuery", [&](Call& call) {
    const auto event = call.driver.events.Find(handle);
    if (!event) return cuda::kInvalidHandle;
    if (const auto result = CheckQueried(call.driver, *event)) return result;
    ++call.driver.stats.event_queries;
    return !event->record || event->record->done ? cuda::kSuccess : cuda::kNotReady;
  });
}

cuda::Result cuEventSynchronize(cuda::Event handle) noexcept {
  return InDriver("cuEventSynchronize", [&](Call& call) {
    const auto event = call.driver.events.Find(handle);
    if (!event) return cuda::kInvalidHandle;
    if (const auto result = CheckQueried(call.driver, *event)) return result;
    if (event->record) call.driver.engine->AwaitRecord(call.lock, event->record, *event->context);
    return event->context->error;
  });
}

cuda::Result cuEventElapsedTime(float* milliseconds, cuda::Event begin, cuda::Event end) noexcept {
  return InDriver("cuEventElapsedTime", [&](Call& call) {
    if (milliseconds == nullptr) return cuda::kInvalidValue;
    const auto from = call.driver.events.Find(begin);
    const auto to = call.driver.events.Find(end);
    if (!from || !to || from->context != to->context) return cuda::kInvalidHandle;
    if (((from->flags | to->flags) & cuda::kEventDisableTiming) != 0) return cuda::kInvalidHandle;
    if (!from->record || !to->record) return cuda::kInvalidHandle;
    if (!from->record->done || !to->record->done) return cuda::kNotReady;
    *milliseconds = static_cast<float>(to->record->time - from->record->time) / kMillisecond;
    return cuda::kSuccess;
  });
}

cuda::Result cuEventElapsedTime_v2(float* milliseconds, cuda::Event begin,
                                   cuda::Event end) noexcept {
  return cuEventElapsedTime(milliseconds, begin, end);
}

}  // namespace divvy::device::cuda_simulator
