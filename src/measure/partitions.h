#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gpu/gpu_model.h"
#include "workload/partition_size.h"

namespace divvy::measure {

// A part of a GPU, or what stands in for it, to measure on.
struct Partition {
  workload::PartitionSize size = {};  // As the profile writes it.
  double share = 1;                   // Of the GPU's SMs.
  std::string mig = {};  // UUID of the MIG device, where it is one; so is gpu_instance.
  std::optional<unsigned> gpu_instance = {};
  // Sizes that are the same thing here, such as those with the same number of cores: what is
  // measured holds for them too.
  std::vector<workload::PartitionSize> same = {};
};

// The share of a GPU's SMs that instances of `profile` have; by compute slices where the SMs are
// unknown. 1 for a profile that the GPU does not have.
[[nodiscard]] double ShareOf(const gpu::GpuModel& kind, std::string_view profile);

// The sizes that MIG could cut this GPU into, smallest first, each once: in SMs ("60sm"), or in
// slices where those are unknown. One of everything when the GPU knows no MIG.
[[nodiscard]] std::vector<Partition> SizesOf(const gpu::GpuModel& kind);

// The partition of `kind` that a word such as "60sm", "3g" or "3g.71gb" means. kInvalidArgument
// says which there are.
[[nodiscard]] Result<Partition> FindSize(const gpu::GpuModel& kind, std::string_view word);

// CUDA_MPS_ACTIVE_THREAD_PERCENTAGE of each of `processes` that have `share` of the SMs together.
// The driver rounds down to SMs that go together, so this rounds up: 13 % of 132 SMs are 16, and
// four times 4 % are 16 as well (3 % would be 8). Where the share does not divide well they have a
// few more or less together: three times 5 % are 18.
[[nodiscard]] int ThreadPercentage(double share, int processes);

// Sizes, smallest first, as numbers of cores: of those that get the same number, the smallest, with
// the others as its `same`.
[[nodiscard]] std::vector<Partition> MergedByCores(std::vector<Partition> sizes, int cores);

// Of a machine's cores, those that stand in for `share` of a GPU; as `divvy serve --on cpu` counts.
[[nodiscard]] int CoresFor(double share, int cores);

}  // namespace divvy::measure
