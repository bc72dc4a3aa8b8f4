#include "device/simulator/handles.h"

#include <bit>

namespace divvy::device::simulator {
namespace {

enum class Kind : std::uint64_t {
  kGpu = 1,
  kMigDevice = 2,
  kGpuInstance = 3,
  kComputeInstance = 4
};

// Bits 63 to 56: mark; 55 to 52: kind; 51 to 40: GPU; 39 to 0: serial. With this
// mark bits 63 to 47 are neither all zero nor all one, so x86-64 and arm64 fault
// on any use as an address.
constexpr std::uint64_t kMark = 0xD1;
constexpr unsigned kMarkShift = 56;
constexpr unsigned kKindShift = 52;
constexpr unsigned kGpuShift = 40;
constexpr std::uint64_t kGpuMask = 0xFFF;
constexpr std::uint64_t kSerialMask = (std::uint64_t{1} << kGpuShift) - 1;

template <typename Handle>
Handle Encode(Kind kind, std::size_t gpu, Serial serial) {
  const std::uint64_t bits = (kMark << kMarkShift) |
                             (static_cast<std::uint64_t>(kind) << kKindShift) |
                             ((gpu & kGpuMask) << kGpuShift) | (serial & kSerialMask);
  return std::bit_cast<Handle>(bits);
}

// The GPU of a handle of this kind, and its serial.
struct Decoded {
  Target target;
  Serial serial;
};

template <typename Handle>
std::optional<Decoded> Decode(State& state, Handle handle, Kind kind) {
  const auto bits = std::bit_cast<std::uint64_t>(handle);
  const std::uint64_t expected =
      (kMark << kMarkShift) | (static_cast<std::uint64_t>(kind) << kKindShift);
  if (((bits ^ expected) >> kKindShift) != 0) return std::nullopt;
  const std::size_t index = (bits >> kGpuShift) & kGpuMask;
  if (index >= state.gpus.size()) return std::nullopt;
  return Decoded{{index, &state.gpus[index]}, bits & kSerialMask};
}

std::optional<Target> FindComputeSerial(const std::optional<Decoded>& decoded) {
  if (!decoded) return std::nullopt;
  for (GpuInstance& instance : decoded->target.gpu->instances) {
    for (ComputeInstance& compute : instance.compute_instances) {
      if (compute.serial != decoded->serial) continue;
      return Target{decoded->target.index, decoded->target.gpu, &instance, &compute};
    }
  }
  return std::nullopt;
}

}  // namespace

nvml::Device GpuHandle(std::size_t gpu) { return Encode<nvml::Device>(Kind::kGpu, gpu, 0); }

nvml::Device MigDeviceHandle(std::size_t gpu, const ComputeInstance& instance) {
  return Encode<nvml::Device>(Kind::kMigDevice, gpu, instance.serial);
}

nvml::GpuInstance GpuInstanceHandle(std::size_t gpu, const GpuInstance& instance) {
  return Encode<nvml::GpuInstance>(Kind::kGpuInstance, gpu, instance.serial);
}

nvml::ComputeInstance ComputeInstanceHandle(std::size_t gpu, const ComputeInstance& instance) {
  return Encode<nvml::ComputeInstance>(Kind::kComputeInstance, gpu, instance.serial);
}

std::optional<Target> FindGpu(State& state, nvml::Device handle) {
  const auto decoded = Decode(state, handle, Kind::kGpu);
  if (!decoded || decoded->serial != 0) return std::nullopt;
  return decoded->target;
}

std::optional<Target> FindMigDevice(State& state, nvml::Device handle) {
  return FindComputeSerial(Decode(state, handle, Kind::kMigDevice));
}

std::optional<Target> FindGpuInstance(State& state, nvml::GpuInstance handle) {
  const auto decoded = Decode(state, handle, Kind::kGpuInstance);
  if (!decoded) return std::nullopt;
  for (GpuInstance& instance : decoded->target.gpu->instances) {
    if (instance.serial != decoded->serial) continue;
    return Target{decoded->target.index, decoded->target.gpu, &instance};
  }
  return std::nullopt;
}

std::optional<Target> FindComputeInstance(State& state, nvml::ComputeInstance handle) {
  return FindComputeSerial(Decode(state, handle, Kind::kComputeInstance));
}

std::optional<Target> FindDevice(State& state, nvml::Device handle) {
  const auto gpu = FindGpu(state, handle);
  return gpu ? gpu : FindMigDevice(state, handle);
}

}  // namespace divvy::device::simulator
