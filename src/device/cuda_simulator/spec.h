#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "device/cuda_simulator/clock.h"

namespace divvy::device::cuda_simulator {

inline constexpr int kMaxGpus = 8;

enum class Sharing : std::int32_t {
  kMps,        // Kernels of all processes run side by side, as far as there are SMs.
  kTimeSlice,  // One process at a time has the whole GPU.
};

// What a simulated machine is made of. Lies in shared memory as it is: plain values only.
struct MachineSpec {
  std::int32_t gpus = 1;
  std::int32_t sms = 16;
  std::uint64_t memory = std::uint64_t{8} << 30;  // Bytes a GPU.
  Sharing sharing = Sharing::kMps;
  // Of kTimeSlice: how long a turn lasts where others wait, unless its process has asked for
  // another time, and for how long nobody runs when the GPU goes from one process to another.
  Nanos slice = 2 * kMillisecond;
  Nanos switching = 0;
  std::int32_t threads_per_sm = 2048;
  std::int32_t blocks_per_sm = 32;
  std::int32_t driver = 13000;  // CUDA version; functions that came later are not found.
};

// Reads a specification in words, e.g. `gpus=2 sms=132 memory=80GiB mode=timeslice slice_us=1000
// switch_us=100 driver=11080`; what it does not name is as above. kInvalidArgument, naming the word
// and what would be right.
[[nodiscard]] Result<MachineSpec> ParseSpec(std::string_view text);

}  // namespace divvy::device::cuda_simulator
