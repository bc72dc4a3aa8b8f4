#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"

// Contexts, and which one is current to a thread.

namespace divvy::device::cuda_simulator {
namespace {

bool Push(cuda::Context context) {
  ThreadState& thread = thread_state;
  if (thread.depth == thread.contexts.size()) return false;
  thread.contexts[thread.depth++] = context;
  return true;
}

cuda::Result Create(const char* function, cuda::Context* context, unsigned flags,
                    cuda::Device device) {
  return InDriver(function, [&](Call& call) {
    if (context == nullptr) return cuda::kInvalidValue;
    if (!call.driver.HasDevice(device)) return cuda::kInvalidDevice;
    const auto made = call.driver.MakeContext(device, flags, false);
    *context = made->handle;
    if (!Push(made->handle)) return cuda::kOutOfMemory;
    call.driver.AskForSlice(call.lock, device);
    return cuda::kSuccess;
  });
}

// For calls that name their context, or mean the current one by null.
template <typename Body>
cuda::Result In(const char* function, cuda::Context context, Body body) {
  if (context == nullptr) return InContext(function, body);
  return InDriver(function, [&](Call& call) {
    call.context = call.driver.contexts.Find(context);
    if (!call.context) return cuda::kInvalidContext;
    if (call.context->error != cuda::kSuccess) return call.context->error;
    return body(call);
  });
}

cuda::Result Synchronize(Call& call) {
  Driver& driver = call.driver;
  // It would wait for streams that are captured, whatever the thread's mode says.
  bool captured = false;
  for (const auto& capture : driver.captures) {
    const auto origin = capture->origin.lock();
    if (!origin || origin->context != call.context) continue;
    driver.Break(*capture);
    captured = true;
  }
  if (captured) return cuda::kStreamCaptureUnsupported;
  if (const auto result = driver.CheckUnsafe()) return result;
  driver.engine->AwaitContext(call.lock, *call.context);
  return call.context->error;
}

}  // namespace

cuda::Result cuCtxCreate_v2(cuda::Context* context, unsigned flags, cuda::Device device) noexcept {
  return Create("cuCtxCreate_v2", context, flags, device);
}

cuda::Result cuCtxCreate_v3(cuda::Context* context, void*, int, unsigned flags,
                            cuda::Device device) noexcept {
  return Create("cuCtxCreate_v3", context, flags, device);
}

cuda::Result cuCtxCreate_v4(cuda::Context* context, void*, unsigned flags,
                            cuda::Device device) noexcept {
  return Create("cuCtxCreate_v4", context, flags, device);
}

cuda::Result cuCtxDestroy_v2(cuda::Context handle) noexcept {
  return InDriver("cuCtxDestroy_v2", [&](Call& call) {
    const auto context = call.driver.contexts.Find(handle);
    if (!context || context->primary) return cuda::kInvalidContext;
    ThreadState& thread = thread_state;
    if (thread.depth > 0 && thread.contexts[thread.depth - 1] == handle) --thread.depth;
    call.driver.DestroyContext(context);
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxDestroy(cuda::Context context) noexcept { return cuCtxDestroy_v2(context); }

cuda::Result cuCtxSetCurrent(cuda::Context context) noexcept {
  return InDriver("cuCtxSetCurrent", [&](Call& call) {
    ThreadState& thread = thread_state;
    if (context == nullptr) {
      if (thread.depth > 0) --thread.depth;
      return cuda::kSuccess;
    }
    if (!call.driver.contexts.Find(context)) return cuda::kInvalidContext;
    if (thread.depth > 0) --thread.depth;
    Push(context);
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxGetCurrent(cuda::Context* context) noexcept {
  return InDriver("cuCtxGetCurrent", [&](Call&) {
    if (context == nullptr) return cuda::kInvalidValue;
    const ThreadState& thread = thread_state;
    *context = thread.depth == 0 ? nullptr : thread.contexts[thread.depth - 1];
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxPushCurrent_v2(cuda::Context context) noexcept {
  return InDriver("cuCtxPushCurrent_v2", [&](Call& call) {
    if (!call.driver.contexts.Find(context)) return cuda::kInvalidContext;
    return Push(context) ? cuda::kSuccess : cuda::kInvalidContext;
  });
}

cuda::Result cuCtxPopCurrent_v2(cuda::Context* context) noexcept {
  return InDriver("cuCtxPopCurrent_v2", [&](Call&) {
    ThreadState& thread = thread_state;
    if (thread.depth == 0) return cuda::kInvalidContext;
    --thread.depth;
    if (context != nullptr) *context = thread.contexts[thread.depth];
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxGetDevice(cuda::Device* device) noexcept {
  return InContext("cuCtxGetDevice", [&](Call& call) {
    if (device == nullptr) return cuda::kInvalidValue;
    *device = call.context->device;
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxGetDevice_v2(cuda::Device* device, cuda::Context context) noexcept {
  return In("cuCtxGetDevice_v2", context, [&](Call& call) {
    if (device == nullptr) return cuda::kInvalidValue;
    *device = call.context->device;
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxGetFlags(unsigned* flags) noexcept {
  return InContext("cuCtxGetFlags", [&](Call& call) {
    if (flags == nullptr) return cuda::kInvalidValue;
    *flags = call.context->flags;
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxGetApiVersion(cuda::Context context, unsigned* version) noexcept {
  return InDriver("cuCtxGetApiVersion", [&](Call& call) {
    if (version == nullptr) return cuda::kInvalidValue;
    if (context != nullptr && !call.driver.contexts.Find(context)) return cuda::kInvalidContext;
    *version = 3020;
    return cuda::kSuccess;
  });
}

cuda::Result cuCtxSynchronize() noexcept { return InContext("cuCtxSynchronize", Synchronize); }

cuda::Result cuCtxSynchronize_v2(cuda::Context context) noexcept {
  return In("cuCtxSynchronize_v2", context, Synchronize);
}

cuda::Result cuCtxGetStreamPriorityRange(int* least, int* greatest) noexcept {
  return InContext("cuCtxGetStreamPriorityRange", [&](Call&) {
    if (least != nullptr) *least = 0;
    if (greatest != nullptr) *greatest = -5;
    return cuda::kSuccess;
  });
}

}  // namespace divvy::device::cuda_simulator
