#include "gpu/gpu_model.h"

namespace divvy::gpu {
namespace {

// NVML's profile enums: 0 to 6 are the plain sizes, 9 the double-memory 1g.
constexpr int kLastPlainEnum = 6;
constexpr int kDoubleMemoryEnum = 9;

template <typename Matches>
std::optional<ProfileIndex> FindFirst(const GpuModel& model, Matches matches) {
  for (std::size_t i = 0; i < model.profiles.size(); ++i) {
    if (matches(model.profiles[i])) return static_cast<ProfileIndex>(i);
  }
  return std::nullopt;
}

}  // namespace

bool Belongs(const MigProfile& profile, ProfileSet set) {
  const bool plain = profile.nvml_enum <= kLastPlainEnum;
  switch (set) {
    case ProfileSet::kBase:
      return plain;
    case ProfileSet::kDouble:
      return plain || profile.nvml_enum == kDoubleMemoryEnum;
    case ProfileSet::kAll:
      return true;
  }
  return false;
}

std::string_view Describe(Provenance provenance) {
  switch (provenance) {
    case Provenance::kReadOnHardware:
      return "read on such a GPU";
    case Provenance::kPublished:
      return "published tables";
    case Provenance::kAssumed:
      return "assumed from its family";
    case Provenance::kNvml:
      return "this node's driver";
  }
  return "";
}

std::optional<ProfileIndex> GpuModel::FindProfile(std::string_view profile_name) const {
  return FindFirst(*this, [&](const MigProfile& p) { return p.name == profile_name; });
}

std::optional<ProfileIndex> GpuModel::FindProfileById(int nvml_id) const {
  return FindFirst(*this, [&](const MigProfile& p) { return p.nvml_id == nvml_id; });
}

std::vector<ProfileIndex> GpuModel::Select(ProfileSet set) const {
  std::vector<ProfileIndex> selected;
  for (std::size_t i = 0; i < profiles.size(); ++i) {
    if (Belongs(profiles[i], set)) selected.push_back(static_cast<ProfileIndex>(i));
  }
  return selected;
}

}  // namespace divvy::gpu
