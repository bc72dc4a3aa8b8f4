#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "device/cuda_simulator/abi_more.h"
#include "device/cuda_simulator/kernel_code.h"
#include "device/cuda_simulator/work.h"

// What the handles of a process stand for. All of it is guarded by the driver's mutex.

namespace divvy::device::cuda_simulator {

struct Capture;
struct StreamState;

struct ContextState {
  cuda::Context handle = nullptr;
  int device = 0;  // As this process numbers them.
  int gpu = 0;     // As the machine does.
  bool primary = false;
  unsigned flags = 0;
  cuda::Result error = cuda::kSuccess;  // Once set, the answer to everything.
  std::shared_ptr<StreamState> legacy;  // Shared with the engine, which may run it to its end.
};

// What must be over before an operation begins: all of `stream` up to number `ticket`.
struct Dependency {
  std::shared_ptr<StreamState> stream;
  std::uint64_t ticket;
};

struct Operation {
  Work work;
  Nanos issued = 0;
  std::vector<Dependency> after;
};

struct StreamState {
  cuda::Stream handle = nullptr;
  std::uint64_t id = 0;
  std::shared_ptr<ContextState> context;  // Outlived by streams that still have work.
  unsigned flags = 0;
  int priority = 0;  // Lower goes first.
  bool legacy = false;
  bool destroyed = false;  // Forgotten once it has run dry.
  std::deque<Operation> queue;
  std::uint64_t issued = 0;  // Operations so far; the number of the last one.
  std::uint64_t completed = 0;
  Nanos time = 0;                    // When the last one was over.
  std::shared_ptr<Capture> capture;  // Shared by all streams it has spread to.

  bool blocking() const { return (flags & cuda::kStreamNonBlocking) == 0; }
};

struct EventState {
  std::shared_ptr<ContextState> context;
  unsigned flags = 0;
  std::shared_ptr<EventRecord> record;  // Null: never recorded.
  // Of an event that was last recorded in a capture: which one, and after which nodes.
  std::shared_ptr<Capture> capture;
  std::vector<int> captured_after;
};

struct ModuleState {
  std::shared_ptr<ContextState> context;  // Null for a library, which needs none.
  std::vector<std::shared_ptr<const KernelCode>> kernels;
};

struct FunctionState {
  std::shared_ptr<const KernelCode> code;
  cuda::Module module = nullptr;
};

struct KernelState {
  std::shared_ptr<const KernelCode> code;
  cuda::Function function = nullptr;  // Made when it is first asked for.
};

}  // namespace divvy::device::cuda_simulator
