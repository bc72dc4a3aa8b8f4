#include "device/simulator/state.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "base/check.h"

namespace divvy::device::simulator {
namespace {

// FNV-1a, so that UUIDs are the same on every machine and with every compiler.
std::uint64_t Hash(std::string_view text, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325 ^ seed;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  // FNV leaves neighbours alike; one round of splitmix64 spreads them.
  hash = (hash ^ (hash >> 30U)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27U)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31U);
}

std::string Uuid(std::string_view prefix, const std::string& of) {
  const std::uint64_t high = Hash(of, 1);
  const std::uint64_t low = Hash(of, 2);
  // Version 5 (derived from a name) and variant 1, as drivers since R470 show.
  return fmt::format("{}-{:08x}-{:04x}-5{:03x}-{:04x}-{:012x}", prefix, high >> 32U,
                     (high >> 16U) & 0xFFFFU, high & 0xFFFU, 0x8000U | ((low >> 48U) & 0x3FFFU),
                     low & 0xFFFFFFFFFFFFU);
}

}  // namespace

unsigned GpuInstanceIdAt(const gpu::GpuModel& model, gpu::MigInstance place) {
  const int size = model.profile(place.profile).memory_slices;
  std::set<int> larger;
  for (const gpu::MigProfile& profile : model.profiles) {
    if (profile.memory_slices > size) larger.insert(profile.memory_slices);
  }
  int first = 0;
  for (const int other : larger) first += model.memory_slices / other;
  return static_cast<unsigned>(first + place.start / size);
}

gpu::MigLayout LayoutOf(const Gpu& gpu) {
  std::vector<gpu::MigInstance> places;
  places.reserve(gpu.instances.size());
  for (const GpuInstance& instance : gpu.instances) places.push_back(instance.place);
  auto layout = gpu::MigLayout::Of(*gpu.model, places);
  Check(layout.has_value(), "a state's instances are legal");
  return *layout;
}

std::string GpuUuid(const gpu::GpuModel& model, std::size_t index) {
  return Uuid("GPU", fmt::format("{}/{}", model.name, index));
}

std::string MigUuid(const Gpu& gpu, Serial serial) {
  return Uuid("MIG", fmt::format("{}/{}", gpu.uuid, serial));
}

}  // namespace divvy::device::simulator
