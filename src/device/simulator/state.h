#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "device/nvml_abi.h"
#include "gpu/gpu_model.h"
#include "gpu/mig_layout.h"

namespace divvy::device::simulator {

// Numbers instances over the life of a state file and is never used twice, so
// that a handle to a destroyed instance can be told from one to its successor
// in the same place. 0 is no instance.
using Serial = std::uint64_t;

struct ComputeInstance {
  unsigned id;  // Unique in its GPU instance.
  Serial serial;
  int slices;  // Compute slices it takes...
  int start;   // ...from this one of its GPU instance.
  std::string uuid;

  friend bool operator==(const ComputeInstance&, const ComputeInstance&) = default;
};

struct GpuInstance {
  unsigned id;  // Unique on its GPU; see GpuInstanceIdAt.
  Serial serial;
  gpu::MigInstance place;
  std::vector<ComputeInstance> compute_instances;  // By id.

  friend bool operator==(const GpuInstance&, const GpuInstance&) = default;
};

enum class ProcessKind { kCompute, kGraphics, kMps };

// A pretended process. Without a GPU instance it holds the whole GPU; without a
// compute instance it holds the GPU instance only.
struct Process {
  unsigned pid;
  std::string name;
  std::uint64_t memory_mib;
  ProcessKind kind;
  std::optional<unsigned> gpu_instance;
  std::optional<unsigned> compute_instance;

  friend bool operator==(const Process&, const Process&) = default;
};

struct Gpu {
  const gpu::GpuModel* model;  // From the catalogue, never null.
  std::string uuid;
  bool mig = false;
  bool mig_pending = false;
  bool needs_reset = false;  // A mode change waits for a reboot, as in a pass-through VM.
  nvml::ComputeMode compute_mode = nvml::kComputeDefault;
  std::vector<GpuInstance> instances = {};  // By id.
  std::vector<Process> processes = {};

  friend bool operator==(const Gpu&, const Gpu&) = default;
};

// Everything the simulated driver knows. A value: reading and writing it is
// StateStore's job, changing it by NVML's rules that of operations.h.
struct State {
  std::string driver_version = "580.00-divvy-sim";
  Serial next_serial = 1;
  std::string faults;  // Rules in the form of faults.h.
  std::vector<Gpu> gpus;

  friend bool operator==(const State&, const State&) = default;
};

// The id that the instance gets, as drivers number seven-slice GPUs: instances
// of the largest size first, then the next, each from the left. On eight memory
// slices that gives 0 to 7g, 1 and 2 to 4g and 3g, 3 to 6 to two slices, and 7
// to 13 to one. Two instances that do not overlap never share an id.
[[nodiscard]] unsigned GpuInstanceIdAt(const gpu::GpuModel& model, gpu::MigInstance place);

// The instances of `gpu` as a layout. REQUIRES: they are legal, which holds for
// every State that StateStore reads.
[[nodiscard]] gpu::MigLayout LayoutOf(const Gpu& gpu);

// "GPU-xxxxxxxx-xxxx-..." of the GPU at `index`. The same for every state file,
// so that what is documented can be repeated.
[[nodiscard]] std::string GpuUuid(const gpu::GpuModel& model, std::size_t index);

// "MIG-xxxxxxxx-xxxx-...", different for each serial on each GPU.
[[nodiscard]] std::string MigUuid(const Gpu& gpu, Serial serial);

}  // namespace divvy::device::simulator
