#include "device/simulator/profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

namespace divvy::device::simulator {
namespace {

struct ComputeSize {
  unsigned id;
  int slices;
  int alignment;  // Starts are multiples of it.
};

// By NVML's enumeration, in which 5 and 6 are eight and six slices.
constexpr ComputeSize kComputeSizes[] = {{0, 1, 1}, {1, 2, 2}, {2, 3, 4}, {3, 4, 4}, {4, 7, 8}};

// When neither an instance nor its GPU has been seen: what one slice of a
// Hopper GPU has.
constexpr int kAssumedSmsPerSlice = 16;

const gpu::MigProfile& LargestProfile(const gpu::GpuModel& model) {
  return *std::ranges::max_element(model.profiles, {}, &gpu::MigProfile::memory_slices);
}

// 23 of "1g.23gb+me".
int GigabytesInName(std::string_view name) {
  const std::size_t dot = name.find('.');
  int gigabytes = 0;
  if (dot != std::string_view::npos) {
    std::from_chars(name.data() + dot + 1, name.data() + name.size(), gigabytes);
  }
  return gigabytes;
}

}  // namespace

int SmsOf(const gpu::GpuModel& model, const gpu::MigProfile& profile) {
  if (profile.sms) return *profile.sms;
  if (model.sms) return *model.sms * profile.compute_slices / model.compute_slices;
  for (const gpu::MigProfile& other : model.profiles) {
    if (other.sms && other.compute_slices == 1) return *other.sms * profile.compute_slices;
  }
  return kAssumedSmsPerSlice * profile.compute_slices;
}

std::uint64_t MemoryMibOf(const gpu::MigProfile& profile) {
  if (profile.memory_mib) return static_cast<std::uint64_t>(*profile.memory_mib);
  constexpr std::uint64_t kGigabyte = 1'000'000'000;
  constexpr std::uint64_t kMib = 1 << 20;
  return static_cast<std::uint64_t>(GigabytesInName(profile.name)) * kGigabyte / kMib;
}

std::uint64_t MemoryMibOf(const gpu::GpuModel& model) { return MemoryMibOf(LargestProfile(model)); }

gpu::Engines EnginesOf(const gpu::MigProfile& profile) {
  return profile.engines.value_or(gpu::Engines{});
}

std::vector<ComputeProfile> ComputeProfilesOf(const gpu::MigProfile& profile) {
  std::vector<ComputeProfile> profiles;
  for (const ComputeSize& size : kComputeSizes) {
    if (size.slices > profile.compute_slices) continue;
    if (size.slices == 3 && profile.compute_slices == 4) continue;
    ComputeProfile compute{size.id, size.slices, {}};
    for (int start = 0; start + size.slices <= profile.compute_slices; start += size.alignment) {
      compute.starts.push_back(start);
    }
    profiles.push_back(std::move(compute));
  }
  return profiles;
}

std::optional<ComputeProfile> FindComputeProfile(const gpu::MigProfile& profile, unsigned id) {
  for (ComputeProfile& compute : ComputeProfilesOf(profile)) {
    if (compute.id == id) return std::move(compute);
  }
  return std::nullopt;
}

std::optional<unsigned> ComputeProfileId(int slices) {
  for (const ComputeSize& size : kComputeSizes) {
    if (size.slices == slices) return size.id;
  }
  return std::nullopt;
}

std::string ComputeProfileName(const gpu::MigProfile& profile, int slices) {
  if (slices == profile.compute_slices) return profile.name;
  return fmt::format("{}c.{}", slices, profile.name);
}

}  // namespace divvy::device::simulator
