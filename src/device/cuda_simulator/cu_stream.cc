#include <algorithm>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"

// Streams, and what runs on the host in their order.

namespace divvy::device::cuda_simulator {
namespace {

constexpr int kGreatestPriority = -5;

cuda::Result Create(const char* function, cuda::Stream* stream, unsigned flags, int priority) {
  return InContext(function, [&](Call& call) {
    if (stream == nullptr || flags > cuda::kStreamNonBlocking) return cuda::kInvalidValue;
    *stream =
        call.driver.MakeStream(call.context, flags, std::clamp(priority, kGreatestPriority, 0))
            ->handle;
    return cuda::kSuccess;
  });
}

// For questions about a stream, which may be of any context.
template <typename T, typename Answer>
cuda::Result Ask(const char* function, cuda::Stream handle, T* out, Answer answer) {
  return OnStream(function, handle, [&](Call&, const std::shared_ptr<StreamState>& stream) {
    if (out == nullptr) return cuda::kInvalidValue;
    *out = answer(*stream);
    return cuda::kSuccess;
  });
}

}  // namespace

cuda::Result cuStreamCreate(cuda::Stream* stream, unsigned flags) noexcept {
  return Create("cuStreamCreate", stream, flags, 0);
}

cuda::Result cuStreamCreateWithPriority(cuda::Stream* stream, unsigned flags,
                                        int priority) noexcept {
  return Create("cuStreamCreateWithPriority", stream, flags, priority);
}

cuda::Result cuStreamDestroy_v2(cuda::Stream handle) noexcept {
  return InDriver("cuStreamDestroy_v2", [&](Call& call) {
    // The default streams are nobody's to destroy.
    const auto stream = call.driver.streams.Find(handle);
    if (!stream || stream->legacy) return cuda::kInvalidHandle;
    if (stream->capture) call.driver.Break(*stream->capture);
    stream->destroyed = true;  // What it holds still runs.
    call.driver.streams.Remove(handle);
    call.driver.machine->Ring();
    return cuda::kSuccess;
  });
}

cuda::Result cuStreamSynchronize(cuda::Stream handle) noexcept {
  return OnStream("cuStreamSynchronize", handle, [](Call& call, const auto& stream) {
    Driver& driver = call.driver;
    if (const auto result = driver.CheckNotCaptured(*stream)) return result;
    if (const auto result = driver.CheckUnsafe()) return result;
    if (stream->legacy && !driver.engine->IsIdle(*stream)) {
      // It stands behind all blocking streams: so does what is put into it to wait for.
      const auto done = std::make_shared<EventRecord>(EventRecord{.done = true, .time = 0});
      driver.engine->Enqueue(call.lock, stream, {EventAwait{done}});
    }
    driver.engine->AwaitTicket(call.lock, stream, stream->issued);
    return stream->context->error;
  });
}

cuda::Result cuStreamSynchronize_ptsz(cuda::Stream stream) noexcept {
  return PerThread(cuStreamSynchronize, stream);
}

cuda::Result cuStreamQuery(cuda::Stream handle) noexcept {
  return OnStream("cuStreamQuery", handle, [](Call& call, const auto& stream) {
    if (const auto result = call.driver.CheckNotCaptured(*stream)) return result;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    return call.driver.engine->IsIdle(*stream) ? cuda::kSuccess : cuda::kNotReady;
  });
}

cuda::Result cuStreamQuery_ptsz(cuda::Stream stream) noexcept {
  return PerThread(cuStreamQuery, stream);
}

cuda::Result cuStreamGetCtx(cuda::Stream handle, cuda::Context* context) noexcept {
  return Ask("cuStreamGetCtx", handle, context,
             [](const StreamState& stream) { return stream.context->handle; });
}

cuda::Result cuStreamGetCtx_ptsz(cuda::Stream stream, cuda::Context* context) noexcept {
  return PerThread(cuStreamGetCtx, stream, context);
}

cuda::Result cuStreamGetCtx_v2(cuda::Stream stream, cuda::Context* context,
                               void** green_context) noexcept {
  if (green_context == nullptr) return cuda::kInvalidValue;
  *green_context = nullptr;  // There are none.
  return cuStreamGetCtx(stream, context);
}

cuda::Result cuStreamGetCtx_v2_ptsz(cuda::Stream stream, cuda::Context* context,
                                    void** green_context) noexcept {
  return PerThread(cuStreamGetCtx_v2, stream, context, green_context);
}

cuda::Result cuStreamGetId(cuda::Stream handle, unsigned long long* id) noexcept {
  return Ask("cuStreamGetId", handle, id, [](const StreamState& stream) { return stream.id; });
}

cuda::Result cuStreamGetId_ptsz(cuda::Stream stream, unsigned long long* id) noexcept {
  return PerThread(cuStreamGetId, stream, id);
}

cuda::Result cuStreamGetPriority(cuda::Stream handle, int* priority) noexcept {
  return Ask("cuStreamGetPriority", handle, priority,
             [](const StreamState& stream) { return stream.priority; });
}

cuda::Result cuStreamGetPriority_ptsz(cuda::Stream stream, int* priority) noexcept {
  return PerThread(cuStreamGetPriority, stream, priority);
}

cuda::Result cuStreamGetFlags(cuda::Stream handle, unsigned* flags) noexcept {
  return Ask("cuStreamGetFlags", handle, flags,
             [](const StreamState& stream) { return stream.flags; });
}

cuda::Result cuStreamGetFlags_ptsz(cuda::Stream stream, unsigned* flags) noexcept {
  return PerThread(cuStreamGetFlags, stream, flags);
}

cuda::Result cuStreamAddCallback(cuda::Stream handle, StreamCallback callback, void* data,
                                 unsigned flags) noexcept {
  return OnStream("cuStreamAddCallback", handle, [=](Call& call, const auto& stream) {
    if (callback == nullptr || flags != 0) return cuda::kInvalidValue;
    // Unlike host functions, callbacks can't be captured.
    if (const auto result = call.driver.CheckNotCaptured(*stream)) return result;
    return Submit(call, stream, kNodeHost,
                  HostCall{[=] { callback(handle, cuda::kSuccess, data); }, nullptr});
  });
}

cuda::Result cuStreamAddCallback_ptsz(cuda::Stream stream, StreamCallback callback, void* data,
                                      unsigned flags) noexcept {
  return PerThread(cuStreamAddCallback, stream, callback, data, flags);
}

cuda::Result cuLaunchHostFunc(cuda::Stream handle, HostFunction function, void* data) noexcept {
  return OnStream("cuLaunchHostFunc", handle, [=](Call& call, const auto& stream) {
    if (function == nullptr) return cuda::kInvalidValue;
    return Submit(call, stream, kNodeHost, HostCall{[=] { function(data); }, nullptr});
  });
}

cuda::Result cuLaunchHostFunc_ptsz(cuda::Stream stream, HostFunction function,
                                   void* data) noexcept {
  return PerThread(cuLaunchHostFunc, stream, function, data);
}

}  // namespace divvy::device::cuda_simulator
