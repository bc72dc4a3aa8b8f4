#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "device/nvml_library.h"

namespace divvy::device {

// What a GPU, or a MIG instance of it, did for a while. What the driver or the GPU does not tell
// stays empty.
struct GpuUsage {
  // Share of the SMs that were busy, on average over time; by GPM, of Hopper and later.
  std::optional<double> sm_active = {};
  // Share of the time in which a kernel ran.
  std::optional<double> busy = {};
  std::optional<double> power_w = {};  // Of the whole GPU.
};

// Watches one GPU or one MIG instance. Changes nothing. For one thread.
class UsageWatch {
 public:
  struct Target {
    nvml::Device gpu = nullptr;        // The whole one.
    nvml::Device partition = nullptr;  // The MIG device; `gpu` where there is none.
    std::optional<unsigned> gpu_instance = {};
  };

  // `mig` is the UUID of a MIG device of the GPU `uuid`, or empty. kNotFound and the like when NVML
  // does not know them. `nvml` outlives it.
  [[nodiscard]] static Result<UsageWatch> Of(const NvmlLibrary& nvml, const std::string& uuid,
                                             const std::string& mig,
                                             std::optional<unsigned> gpu_instance);

  // The same of handles that are known. `functions` outlive it.
  UsageWatch(const NvmlFunctions& functions, Target target);
  UsageWatch(UsageWatch&& other) noexcept;
  UsageWatch& operator=(UsageWatch&&) = delete;
  ~UsageWatch();

  // Begins a stretch of time, looks in between (ten times a second will do), and ends it.
  void Begin();
  void Look();
  [[nodiscard]] GpuUsage End(Duration elapsed);

  // Bytes in use on the partition now.
  [[nodiscard]] std::optional<std::uint64_t> MemoryUsed() const;
  // Bytes that these processes use there. Nothing when NVML does not list every one of them: in a
  // container it knows them by other numbers.
  [[nodiscard]] std::optional<std::uint64_t> MemoryOf(std::span<const int> processes) const;

 private:
  struct Mean {
    double sum = 0;
    int count = 0;
  };

  [[nodiscard]] bool SampleGpm(nvml::GpmSample sample) const;
  [[nodiscard]] std::optional<unsigned long long> Energy() const;
  void ReadGpm(GpuUsage& usage) const;

  const NvmlFunctions& f_;
  Target target_;
  nvml::GpmSample first_ = nullptr;  // Null where there is no GPM.
  nvml::GpmSample last_ = nullptr;
  bool has_first_ = false;
  std::optional<unsigned long long> energy_;  // At the beginning, in mJ.
  Mean busy_;
  Mean power_;
};

}  // namespace divvy::device
