#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "device/cuda_simulator/driver.h"
#include "device/cuda_simulator/thread_state.h"

// What every entry point does before its own part.

namespace divvy::device::cuda_simulator {

// A call under way: the driver, locked, and the context it works in.
struct Call {
  Driver& driver;
  std::unique_lock<std::mutex>& lock;
  std::shared_ptr<ContextState> context;  // Null only in InDriver.
};

// Runs `body(Call&)` unless faults, the state of the process or the calling thread forbid it.
// `function` is the exported name, without _ptsz or _ptds.
template <typename Body>
cuda::Result InDriver(const char* function, Body body) noexcept {
  Driver& driver = Driver::OfProcess();
  if (const auto result = driver.ApplyFaults(function)) return result;
  if (const auto result = driver.Readiness()) return result;
  std::unique_lock lock(driver.mutex);
  Call call{driver, lock, nullptr};
  return body(call);
}

// The like for what needs a current context, one that has not failed.
template <typename Body>
cuda::Result InContext(const char* function, Body body) noexcept {
  return InDriver(function, [&](Call& call) {
    call.context = call.driver.CurrentContext();
    if (!call.context) return cuda::kInvalidContext;
    if (call.context->error != cuda::kSuccess) return call.context->error;
    return body(call);
  });
}

// And for what works on a stream: `body(Call&, stream)`.
template <typename Body>
cuda::Result OnStream(const char* function, cuda::Stream handle, Body body) noexcept {
  return InContext(function, [&](Call& call) {
    const auto stream = call.driver.FindStream(handle, call.context);
    if (!stream) return cuda::kInvalidHandle;
    return body(call, stream);
  });
}

// Gives a stream work of one kind. A stream of another context takes none.
inline cuda::Result Submit(Call& call, const std::shared_ptr<StreamState>& stream,
                           GraphNodeType type, Work work) {
  if (stream->context != call.context) return cuda::kInvalidHandle;
  Node node;
  node.type = type;
  node.work.push_back(std::move(work));
  return call.driver.Submit(call.lock, stream, std::move(node));
}

// Calls an entry point with the calling thread's own default stream.
template <typename Function, typename... Arguments>
cuda::Result PerThread(Function function, Arguments... arguments) noexcept {
  const bool before = std::exchange(thread_state.default_stream_is_own, true);
  const cuda::Result result = function(arguments...);
  thread_state.default_stream_is_own = before;
  return result;
}

}  // namespace divvy::device::cuda_simulator
