#include "gpu/mig_layout.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace divvy::gpu {
namespace {

bool MayBeginAt(const MigProfile& profile, int start) {
  return std::ranges::binary_search(profile.starts, start);
}

// The engine that `wanted` on top of `instances` would run out of, or null.
// Copy engines are not limited by MIG; unseen figures limit nothing.
const char* MissingEngine(const GpuModel& model, const std::vector<MigInstance>& instances,
                          ProfileIndex wanted) {
  const MigProfile& profile = model.profile(wanted);
  if (!model.engines || !profile.engines) return nullptr;
  Engines sum = *profile.engines;
  for (const MigInstance& other : instances) {
    const auto& engines = model.profile(other.profile).engines;
    if (!engines) continue;
    sum.decoders += engines->decoders;
    sum.encoders += engines->encoders;
    sum.jpeg += engines->jpeg;
    sum.ofa += engines->ofa;
  }
  if (sum.decoders > model.engines->decoders) return "decoder";
  if (sum.encoders > model.engines->encoders) return "encoder";
  if (sum.jpeg > model.engines->jpeg) return "JPEG";
  if (sum.ofa > model.engines->ofa) return "optical flow";
  return nullptr;
}

}  // namespace

MigLayout::MigLayout(const GpuModel& model) : model_(&model) {
  Check(0 < model.memory_slices && model.memory_slices <= 31, "slices fit a mask");
}

Result<MigLayout> MigLayout::Of(const GpuModel& model, const std::vector<MigInstance>& instances) {
  if (model.memory_slices < 1 || model.memory_slices > 31) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} cannot be cut: it has {} memory slices", model.name, model.memory_slices));
  }
  MigLayout layout(model);
  for (const MigInstance& instance : instances) {
    if (auto placed = layout.Place(instance); !placed) return Fail(placed.error());
  }
  return layout;
}

std::vector<int> MigLayout::FreeStarts(ProfileIndex profile) const {
  std::vector<int> free;
  for (const int start : model_->profile(profile).starts) {
    if (CanPlace({start, profile})) free.push_back(start);
  }
  return free;
}

bool MigLayout::CanPlace(MigInstance instance) const {
  const MigProfile& profile = model_->profile(instance.profile);
  return MayBeginAt(profile, instance.start) &&
         (occupied_ & SlicesOf(profile, instance.start)) == 0 &&
         std::ranges::count(instances_, instance.profile, &MigInstance::profile) <
             profile.max_instances &&
         MissingEngine(*model_, instances_, instance.profile) == nullptr;
}

Result<MigInstance> MigLayout::Place(MigInstance instance) {
  const MigProfile& profile = model_->profile(instance.profile);
  if (!MayBeginAt(profile, instance.start)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} may not begin at slice {} of {}, only at {}", profile.name,
                            instance.start, model_->name, fmt::join(profile.starts, ", ")));
  }
  for (const MigInstance& other : instances_) {
    if (SlicesOf(profile, instance.start) & SlicesOf(model_->profile(other.profile), other.start)) {
      return Fail(
          ErrorCode::kResourceExhausted,
          fmt::format("{} overlaps {}", Describe(*model_, instance), Describe(*model_, other)));
    }
  }
  if (std::ranges::count(instances_, instance.profile, &MigInstance::profile) >=
      profile.max_instances) {
    return Fail(ErrorCode::kResourceExhausted, fmt::format("{} holds at most {} {}", model_->name,
                                                           profile.max_instances, profile.name));
  }
  if (const char* engine = MissingEngine(*model_, instances_, instance.profile)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("{} has no {} engine left for {}", model_->name, engine,
                            Describe(*model_, instance)));
  }
  occupied_ |= SlicesOf(profile, instance.start);
  instances_.insert(std::ranges::upper_bound(instances_, instance), instance);
  return instance;
}

Result<MigInstance> MigLayout::Remove(int start) {
  const auto found = std::ranges::find(instances_, start, &MigInstance::start);
  if (found == instances_.end()) {
    return Fail(ErrorCode::kNotFound, fmt::format("no instance begins at slice {}", start));
  }
  const MigInstance removed = *found;
  instances_.erase(found);
  occupied_ &= ~SlicesOf(model_->profile(removed.profile), removed.start);
  return removed;
}

SliceMask MigLayout::free_slices() const {
  return ((SliceMask{1} << model_->memory_slices) - 1) & ~occupied_;
}

std::vector<ProfileIndex> ProfilesOf(const std::vector<MigInstance>& instances) {
  std::vector<ProfileIndex> profiles;
  profiles.reserve(instances.size());
  for (const MigInstance& instance : instances) profiles.push_back(instance.profile);
  std::ranges::sort(profiles);
  return profiles;
}

std::string Describe(const GpuModel& model, std::vector<ProfileIndex> profiles) {
  if (profiles.empty()) return "empty";
  std::ranges::sort(profiles);
  std::string text;
  for (auto it = profiles.begin(); it != profiles.end();) {
    const auto end = std::upper_bound(it, profiles.end(), *it);
    if (!text.empty()) text += " + ";
    if (end - it > 1) text += fmt::format("{}x ", end - it);
    text += model.profile(*it).name;
    it = end;
  }
  return text;
}

std::string Describe(const GpuModel& model, MigInstance instance) {
  return fmt::format("{} at {}", model.profile(instance.profile).name, instance.start);
}

}  // namespace divvy::gpu
