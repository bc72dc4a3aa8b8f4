#include "device/profiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>

#include "gpu/catalogue.h"

namespace divvy::device {
namespace {

using gpu::Engines;
using gpu::GpuModel;
using gpu::MigProfile;

// NVML ends its list of profiles with INVALID_ARGUMENT; this only keeps a broken
// library from being asked for ever.
constexpr unsigned kMostProfileEnums = 64;

struct ProfileAnswer {
  nvml::Return code;
  nvml::GpuInstanceProfileInfo info;
  std::string name;  // Empty when the driver does not tell it.
};

ProfileAnswer AskProfile(const NvmlFunctions& f, nvml::Device device, unsigned profile_enum) {
  if (f.nvmlDeviceGetGpuInstanceProfileInfoV != nullptr) {
    nvml::GpuInstanceProfileInfoV2 v2{};
    v2.version = nvml::StructVersion<nvml::GpuInstanceProfileInfoV2>(2);
    const auto code = f.nvmlDeviceGetGpuInstanceProfileInfoV(device, profile_enum, &v2);
    if (code != nvml::kArgumentVersionMismatch && code != nvml::kFunctionNotFound) {
      v2.name[sizeof(v2.name) - 1] = '\0';
      std::string_view name = v2.name;
      if (name.starts_with("MIG ")) name.remove_prefix(4);
      return {code,
              {v2.id, v2.isP2pSupported, v2.sliceCount, v2.instanceCount, v2.multiprocessorCount,
               v2.copyEngineCount, v2.decoderCount, v2.encoderCount, v2.jpegCount, v2.ofaCount,
               v2.memorySizeMB},
              std::string(name)};
    }
  }
  if (f.nvmlDeviceGetGpuInstanceProfileInfo == nullptr) return {nvml::kFunctionNotFound, {}, {}};
  nvml::GpuInstanceProfileInfo info{};
  const auto code = f.nvmlDeviceGetGpuInstanceProfileInfo(device, profile_enum, &info);
  return {code, info, {}};
}

// Empty when NVML will not say, which is common: it needs privileges.
std::vector<nvml::Placement> AskPlacements(const NvmlFunctions& f, nvml::Device device,
                                           unsigned profile_id) {
  if (f.nvmlDeviceGetGpuInstancePossiblePlacements_v2 == nullptr) return {};
  unsigned count = 0;
  if (f.nvmlDeviceGetGpuInstancePossiblePlacements_v2(device, profile_id, nullptr, &count) !=
      nvml::kSuccess) {
    return {};
  }
  std::vector<nvml::Placement> placements(count);
  if (count == 0 || f.nvmlDeviceGetGpuInstancePossiblePlacements_v2(
                        device, profile_id, placements.data(), &count) != nvml::kSuccess) {
    return {};
  }
  placements.resize(std::min<std::size_t>(count, placements.size()));
  std::ranges::sort(placements, {}, &nvml::Placement::start);
  return placements;
}

MigProfile FromAnswer(const ProfileAnswer& answer, unsigned profile_enum,
                      std::uint64_t memory_total_bytes) {
  const nvml::GpuInstanceProfileInfo& info = answer.info;
  MigProfile profile;
  profile.nvml_enum = static_cast<int>(profile_enum);
  profile.nvml_id = static_cast<int>(info.id);
  profile.compute_slices = static_cast<int>(info.sliceCount);
  profile.memory_slices = 0;
  profile.max_instances = static_cast<int>(info.instanceCount);
  profile.sms = static_cast<int>(info.multiprocessorCount);
  profile.memory_mib = static_cast<int>(info.memorySizeMB);
  profile.engines = Engines{.copy = static_cast<int>(info.copyEngineCount),
                            .decoders = static_cast<int>(info.decoderCount),
                            .encoders = static_cast<int>(info.encoderCount),
                            .jpeg = static_cast<int>(info.jpegCount),
                            .ofa = static_cast<int>(info.ofaCount)};
  profile.name = answer.name.empty() ? ProfileName(profile_enum, profile.compute_slices,
                                                   info.memorySizeMB, memory_total_bytes)
                                     : answer.name;
  return profile;
}

// The same profile in the catalogue's entry for this GPU, or null.
const MigProfile* Known(const GpuModel* catalogue, int nvml_id) {
  if (catalogue == nullptr) return nullptr;
  const auto index = catalogue->FindProfileById(nvml_id);
  return index ? &catalogue->profile(*index) : nullptr;
}

// NVML has no call for totals. But as many instances of a profile can be there as
// NVML counts, so there is at least what they use; the largest profile uses all.
void DeriveTotals(GpuModel& model) {
  Engines most;
  for (const MigProfile& p : model.profiles) {
    if (!p.starts.empty()) {
      model.memory_slices = std::max(model.memory_slices, p.starts.back() + p.memory_slices);
    }
    model.compute_slices = std::max(model.compute_slices, p.compute_slices);
    model.sms = std::max(model.sms.value_or(0), p.sms.value_or(0));
    most.decoders = std::max(most.decoders, p.max_instances * p.engines->decoders);
    most.encoders = std::max(most.encoders, p.max_instances * p.engines->encoders);
    most.jpeg = std::max(most.jpeg, p.max_instances * p.engines->jpeg);
    most.ofa = std::max(most.ofa, p.max_instances * p.engines->ofa);
  }
  model.engines = most;
}

}  // namespace

Result<ProfileReading> ReadProfiles(const NvmlLibrary& nvml, nvml::Device device,
                                    const std::string& product_name, std::uint32_t pci_device_id,
                                    std::uint64_t memory_total_bytes) {
  const NvmlFunctions& f = nvml.functions();
  const GpuModel* const catalogue = gpu::FindGpuModelByPciId(pci_device_id);
  ProfileReading reading;
  GpuModel& model = reading.model;
  model.name = catalogue != nullptr ? catalogue->name : product_name;
  model.architecture = catalogue != nullptr ? catalogue->architecture : "";
  model.pci_device_ids = {pci_device_id};
  model.memory_slices = 0;
  model.compute_slices = 0;
  model.provenance = gpu::Provenance::kNvml;

  bool placements_unread = false;
  for (unsigned e = 0; e < kMostProfileEnums; ++e) {
    const ProfileAnswer answer = AskProfile(f, device, e);
    if (answer.code == nvml::kInvalidArgument || answer.code == nvml::kFunctionNotFound) break;
    if (answer.code == nvml::kNotSupported) continue;
    if (answer.code == nvml::kNoPermission) break;
    if (answer.code != nvml::kSuccess) {
      return Fail(NvmlError(answer.code, fmt::format("reading MIG profile {}", e),
                            "nvmlDeviceGetGpuInstanceProfileInfoV"));
    }
    MigProfile profile = FromAnswer(answer, e, memory_total_bytes);
    const MigProfile* const known = Known(catalogue, profile.nvml_id);
    const auto placements = AskPlacements(f, device, answer.info.id);
    for (const nvml::Placement& p : placements) {
      profile.starts.push_back(static_cast<int>(p.start));
      profile.memory_slices = static_cast<int>(p.size);
    }
    if (placements.empty() && known != nullptr) {
      profile.starts = known->starts;
      profile.memory_slices = known->memory_slices;
    }
    placements_unread |= placements.empty();
    // Masks hold 31 slices; no GPU has half of that.
    std::erase_if(profile.starts,
                  [&](int start) { return start < 0 || start + profile.memory_slices > 31; });
    if (profile.memory_slices < 1) profile.starts.clear();
    // Drivers are known to count wrongly on the A30; the places are right.
    if (known != nullptr && catalogue->name.starts_with("A30")) {
      profile.max_instances = known->max_instances;
    }
    if (profile.starts.empty()) continue;
    model.profiles.push_back(std::move(profile));
  }

  if (model.profiles.empty() && catalogue != nullptr) {
    model = *catalogue;
    reading.warnings.push_back(
        "NVML does not list MIG profiles here; those of the catalogue are shown");
    return reading;
  }
  if (placements_unread) {
    reading.warnings.push_back(catalogue != nullptr
                                   ? "MIG placements come from the catalogue: NVML shows them to "
                                     "privileged users only"
                                   : "MIG placements are unknown: NVML shows them to privileged "
                                     "users only, and the catalogue does not know this GPU");
  }
  DeriveTotals(model);
  return reading;
}

std::string ProfileName(unsigned profile_enum, int compute_slices, std::uint64_t memory_mib,
                        std::uint64_t memory_total_bytes) {
  constexpr double kGib = 1024.0 * 1024.0 * 1024.0;
  if (memory_total_bytes == 0) return fmt::format("{}g", compute_slices);
  const double total = static_cast<double>(memory_total_bytes);
  const double share = static_cast<double>(memory_mib) * 1024.0 * 1024.0 / total;
  const double gb = std::ceil(8 * share) / 8 * std::ceil(total / kGib);
  std::string_view attribute;
  switch (profile_enum) {
    case 7:
    case 8:
      attribute = "+me";
      break;
    case 10:
    case 11:
    case 12:
    case 17:
      attribute = "+gfx";
      break;
    case 13:
    case 14:
      attribute = "-me";
      break;
    case 15:
    case 16:
      attribute = "+me.all";
      break;
    default:
      break;
  }
  return fmt::format("{}g.{}gb{}", compute_slices, std::lround(gb), attribute);
}

}  // namespace divvy::device
