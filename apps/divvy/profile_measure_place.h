#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "device/nvml_library.h"
#include "gpu/gpu_model.h"
#include "measure/meter.h"
#include "measure/partitions.h"
#include "run_mps.h"

// Where `divvy profile` measures: what its partitions are, and how a worker gets into one.

namespace divvy::app {

enum class MeasureOn {
  kCpu,  // Cores of this machine stand in for parts of a GPU.
  kMps,  // Clients of an MPS daemon with a share of the SMs.
  kMig,  // MIG instances, which are there already.
  kGpu,  // A whole GPU, without MPS.
  kUrl,  // A server of somebody else's, wherever it runs.
};

// As given; empty what was not.
struct PlaceChoice {
  std::string on = "auto";  // auto, cpu, mps, mig, gpu.
  std::string gpu;
  std::string kind;
  std::vector<std::string> partitions;
  bool crowded = false;  // With MPS: while the rest of the GPU works as well.
  std::string nvml;      // The library.
};

// What the environment of workers needs, and what must live as long as they do.
struct PartitionUse {
  std::vector<std::pair<std::string, std::string>> environment;
  std::optional<MpsUse> mps;
};

class MeasurePlace {
 public:
  // Finds GPUs and, for MPS, joins or starts the daemon of one.
  //   kInvalidArgument, kNotFound  an option is wrong; the message says what would be right;
  //   kFailedPrecondition          what was asked for is not to be had on this machine.
  [[nodiscard]] static Result<MeasurePlace> Find(const PlaceChoice& choice);
  // Of a server at a URL: one partition, of which the choice says what it is.
  [[nodiscard]] static Result<MeasurePlace> OfUrl(const PlaceChoice& choice);

  MeasureOn on() const { return on_; }
  const std::vector<measure::Partition>& partitions() const { return partitions_; }
  const std::string& gpu() const { return gpu_; }      // For the profile's column: "H200-141GB".
  const std::string& where() const { return where_; }  // For people: "NVIDIA H200, driver 580".
  const std::vector<std::string>& notes() const { return notes_; }

  // Partitions of this size that are at work at once, this one included: as many as the GPU has
  // room for where it is to be crowded, else one.
  [[nodiscard]] int CopiesOf(const measure::Partition& partition) const;
  // Words of divvy-worker for a partition: device and threads.
  [[nodiscard]] std::vector<std::string> WorkerWords(const measure::Partition& partition,
                                                     int processes) const;
  // Cores that a partition has; 0 when it has all.
  [[nodiscard]] int CoresOf(const measure::Partition& partition) const;
  // Gets ready for `processes` on the partition. `mark` is how meters find them.
  [[nodiscard]] Result<PartitionUse> Use(const measure::Partition& partition, int processes,
                                         const std::string& mark) const;
  // Null where nothing can be read.
  [[nodiscard]] std::unique_ptr<measure::Meter> MeterFor(const measure::Partition& partition,
                                                         const std::string& mark) const;

 private:
  MeasurePlace() = default;

  [[nodiscard]] Result<void> FindCpu(const PlaceChoice& choice);
  [[nodiscard]] Result<void> FindGpu(const PlaceChoice& choice);
  [[nodiscard]] Result<void> FindMig(const PlaceChoice& choice);
  [[nodiscard]] Result<void> JoinMps(const PlaceChoice& choice);
  [[nodiscard]] Result<void> TakeSizes(const PlaceChoice& choice, const gpu::GpuModel& kind);

  MeasureOn on_ = MeasureOn::kCpu;
  std::vector<measure::Partition> partitions_;
  std::string gpu_;
  std::string where_;
  std::vector<std::string> notes_;
  int cores_ = 1;
  bool crowded_ = false;
  std::string uuid_;  // Of the GPU; empty without NVML.
  std::unique_ptr<device::NvmlLibrary> nvml_;
  PartitionUse mps_;  // Of all partitions, with kMps and kGpu.
};

}  // namespace divvy::app
