#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "device/cuda_simulator/machine.h"
#include "device/simulator/session.h"
#include "device/simulator/state.h"

namespace divvy::device::simulator {

// What a GPU's counters said at one moment.
struct Counters {
  cuda_simulator::Nanos at;
  cuda_simulator::Activity activity;
  int sms;

  // Since the machine was made. Made up: an idle GPU draws 75 W, one whose SMs all work 600 W.
  double energy_j() const;
  double power_w() const;
};

// A GPU of the simulated CUDA driver, of which NVML tells what programs do on it.
class CudaGpu {
 public:
  // The machine's GPU with the UUID of `gpu`. Nothing where there is none: nobody knows then what
  // such a GPU does.
  [[nodiscard]] static std::optional<CudaGpu> Find(const CudaMachine& where, const Gpu& gpu);

  [[nodiscard]] Counters Read() const;

  // Those that have a context there. Their names are those of this machine's processes.
  [[nodiscard]] std::vector<Process> Processes() const;

 private:
  CudaGpu(std::unique_ptr<cuda_simulator::Machine> machine, int index)
      : machine_(std::move(machine)), index_(index) {}

  std::unique_ptr<cuda_simulator::Machine> machine_;
  int index_;
};

// Gives the GPUs the UUIDs of a CUDA machine's. kInvalidArgument where that has not as many.
[[nodiscard]] Result<void> NameAfterCuda(State& state);

// The processes on a GPU: those that the state file pretends, and those that use the simulated CUDA
// driver.
[[nodiscard]] std::vector<Process> ProcessesOn(const Gpu& gpu, const CudaMachine& cuda_machine);

}  // namespace divvy::device::simulator
