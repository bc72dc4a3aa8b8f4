#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device/cuda_simulator/address_space.h"
#include "device/cuda_simulator/engine.h"
#include "device/cuda_simulator/faults.h"
#include "device/cuda_simulator/graph.h"
#include "device/cuda_simulator/handles.h"
#include "device/cuda_simulator/machine.h"
#include "device/cuda_simulator/state.h"
#include "device/cuda_simulator/stats.h"

namespace divvy::device::cuda_simulator {

// The simulated driver in one process: what its handles stand for, and the rules that span them.
// The entry points (cu_*.cc) check their arguments and leave the rest to it.
//
// Made with the first call and never destroyed: programs call the driver to their very end. All
// members but those said otherwise want `mutex` locked.
class Driver {
 public:
  // A physical allocation (cuMemCreate).
  struct Allocation {
    std::size_t size;
    int gpu;
  };

  static Driver& OfProcess();

  // Reads the environment and takes the process into the machine. Once; later calls say the same.
  [[nodiscard]] cuda::Result Initialise();

  // What stands in the way of any call: not initialised, forked, at the end. Needs no lock.
  [[nodiscard]] cuda::Result Readiness() const;
  // Counts the call and does to it what the faults say. Needs no lock.
  [[nodiscard]] cuda::Result ApplyFaults(const char* function);

  // Whether the faults take this function away. Needs no lock.
  bool IsMissing(const char* symbol) const { return faults_.IsMissing(symbol); }

  // The context current to the calling thread; null if there is none.
  std::shared_ptr<ContextState> CurrentContext() const;
  std::shared_ptr<ContextState> MakeContext(int device, unsigned flags, bool primary);
  // Ends a context: its streams, events and modules, its memory.
  void DestroyContext(const std::shared_ptr<ContextState>& context);

  // With the first context on a device: has the kernel module set the process' time slice there, as
  // the real driver does (resource_manager.cc). Gives up the lock meanwhile.
  void AskForSlice(std::unique_lock<std::mutex>& lock, int device);

  // What a stream handle means to the calling thread in `context`; null if it means nothing.
  std::shared_ptr<StreamState> FindStream(cuda::Stream handle,
                                          const std::shared_ptr<ContextState>& context);
  std::shared_ptr<StreamState> MakeStream(const std::shared_ptr<ContextState>& context,
                                          unsigned flags, int priority);

  // The code behind a function, or a kernel in its place; null if it is neither.
  std::shared_ptr<const KernelCode> FindCode(cuda::Function function) const;

  // A stream's next work: into its queue or, while it is captured, into the graph, as a node of
  // `type`.
  [[nodiscard]] cuda::Result Submit(std::unique_lock<std::mutex>& lock,
                                    const std::shared_ptr<StreamState>& stream, Node node);

  // The rules of captures, in capture.cc (cu_capture.cc has the calls themselves).
  // For calls that are not ordered by a stream: kStreamCaptureUnsupported if the calling thread's
  // mode and the captures under way forbid them; those captures are broken then.
  [[nodiscard]] cuda::Result CheckUnsafe();
  // For the use of `stream` by what can't be captured: sync, query.
  [[nodiscard]] cuda::Result CheckNotCaptured(const StreamState& stream);
  // For any use of the legacy stream: it would tie in the blocking streams that are captured. Only
  // asking what it is doing does them no harm.
  [[nodiscard]] cuda::Result CheckLegacy(const StreamState& stream, bool only_asks = false);
  void Break(Capture& capture);
  // Ends taking part for all streams, and forgets the capture.
  void EndCapture(const std::shared_ptr<Capture>& capture);

  // Bytes of the GPU's memory; kOutOfMemory where they are not there.
  [[nodiscard]] cuda::Result Charge(int gpu, std::uint64_t bytes);
  void Refund(int gpu, std::uint64_t bytes);

  // Device ordinals are places in this list of the machine's GPUs (CUDA_VISIBLE_DEVICES).
  bool HasDevice(int device) const {
    return device >= 0 && device < static_cast<int>(devices.size());
  }

  // At the end of the process, and in a child after fork. Need no lock.
  void End();
  void AfterFork() { forked_.store(true); }

  std::mutex mutex;
  std::unique_ptr<Machine> machine;  // Null until initialised, as engine.
  std::unique_ptr<Engine> engine;
  AddressSpace memory;
  Stats stats;
  std::vector<int> devices;
  int version = 0;                                     // Of CUDA. Never changes; needs no lock.
  std::vector<std::shared_ptr<ContextState>> primary;  // By device; null while not retained.
  std::vector<int> primary_uses;
  std::vector<bool> has_channels;                  // By device: one has had a context.
  int control_descriptor = -1;                     // Of the kernel module.
  std::vector<std::shared_ptr<Capture>> captures;  // Under way.
  std::uint64_t next_id = 1;                       // Of streams and captures.
  std::uint64_t charged = 0;

  HandleTable<cuda::Context, ContextState> contexts{0x51};
  HandleTable<cuda::Stream, StreamState> streams{0x52};
  HandleTable<cuda::Event, EventState> events{0x53};
  HandleTable<cuda::Module, ModuleState> modules{0x54};
  HandleTable<cuda::Library, ModuleState> libraries{0x55};
  HandleTable<cuda::Function, FunctionState> functions{0x56};
  HandleTable<cuda::Kernel, KernelState> kernels{0x57};
  HandleTable<cuda::Graph, GraphState> graphs{0x58};
  HandleTable<cuda::GraphNode, NodeState> nodes{0x59};
  HandleTable<cuda::GraphExec, GraphExecState> graph_execs{0x5A};
  HandleTable<Allocation*, Allocation> allocations{0x5B};

 private:
  Driver();

  [[nodiscard]] cuda::Result Start();
  void ReadVisibleDevices();

  MachineSpec spec_;
  std::string problem_;  // With the environment; told by the first cuInit.
  std::mutex fault_mutex_;
  FaultRules faults_;
  bool has_faults_ = false;
  std::atomic<bool> initialised_{false};
  std::atomic<bool> forked_{false};
  std::atomic<bool> ended_{false};
};

}  // namespace divvy::device::cuda_simulator
