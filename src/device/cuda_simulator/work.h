#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <variant>
#include <vector>

#include "device/cuda_simulator/clock.h"
#include "gate/cuda_abi.h"

// The things a stream does. Each is a value: what a graph holds is copied into a stream as often as
// the graph is launched. Fields under "in progress" belong to the engine.

namespace divvy::device::cuda_simulator {

// One recording of an event: shared by the event, the stream that will come to it and those that
// wait.
struct EventRecord {
  bool done = false;
  Nanos time = 0;  // Of `done`.
};

struct KernelRun {
  int gpu = 0;
  int wanted = 1;  // SMs.
  Nanos work = 0;  // With all of those.
  // It ends before that if a 32-bit word comes to `value`. Such a one looks at a clock, so that its
  // time goes on where it is interrupted.
  bool is_hold = false;
  cuda::DevicePointer word = 0;
  std::uint32_t value = 0;
  // In progress.
  Nanos waiting_since = 0;
  int granted = 0;
  Nanos end = 0;
};

struct ValueWait {
  cuda::DevicePointer address = 0;
  std::uint64_t value = 0;
  unsigned condition = cuda::kWaitValueGeq;
  bool wide = false;  // 64 bits.
  // In progress.
  Nanos blocked_since = 0;
};

struct ValueWrite {
  cuda::DevicePointer address = 0;
  std::uint64_t value = 0;
  bool wide = false;
};

struct EventMark {
  std::shared_ptr<EventRecord> record;
};

struct EventAwait {
  std::shared_ptr<EventRecord> record;
};

struct HostCall {
  std::function<void()> function;
  // In progress: shared with the thread that calls.
  std::shared_ptr<bool> returned;
};

struct Copy {
  cuda::DevicePointer to = 0;
  cuda::DevicePointer from = 0;
  std::size_t bytes = 0;
  // Where the source may change before the copy runs; then `from` means nothing.
  std::shared_ptr<std::vector<std::byte>> staged;
  // In progress.
  Nanos end = 0;
};

struct Fill {
  cuda::DevicePointer to = 0;
  std::uint32_t value = 0;
  unsigned width = 1;  // Bytes of `value` that repeat: 1, 2 or 4.
  std::size_t count = 0;
};

// A free that takes its place in the stream.
struct Release {
  cuda::DevicePointer address = 0;
};

using Work = std::variant<KernelRun, ValueWait, ValueWrite, EventMark, EventAwait, HostCall, Copy,
                          Fill, Release>;

}  // namespace divvy::device::cuda_simulator
