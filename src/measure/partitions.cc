#include "measure/partitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_safety.h"

namespace divvy::measure {
namespace {

using workload::PartitionSize;

constexpr double kMostSlices = 7;

double ShareOfProfile(const gpu::GpuModel& kind, const gpu::MigProfile& profile) {
  if (profile.sms && kind.sms) return static_cast<double>(*profile.sms) / *kind.sms;
  return std::min(1.0, profile.compute_slices / kMostSlices);
}

}  // namespace

double ShareOf(const gpu::GpuModel& kind, std::string_view profile) {
  const auto index = kind.FindProfile(profile);
  return index ? ShareOfProfile(kind, kind.profile(*index)) : 1;
}

std::vector<Partition> SizesOf(const gpu::GpuModel& kind) {
  std::vector<Partition> sizes;
  for (const gpu::ProfileIndex index : kind.Select(gpu::ProfileSet::kBase)) {
    const gpu::MigProfile& profile = kind.profile(index);
    const bool in_sms = profile.sms && kind.sms;
    sizes.push_back(
        {.size = {.unit = in_sms ? PartitionSize::Unit::kSms : PartitionSize::Unit::kSlices,
                  .amount = in_sms ? *profile.sms : profile.compute_slices},
         .share = ShareOfProfile(kind, profile)});
  }
  std::ranges::sort(sizes, {}, &Partition::share);
  const auto same = std::ranges::unique(sizes, {}, &Partition::size);
  sizes.erase(same.begin(), same.end());
  if (sizes.empty()) {
    const bool in_sms = kind.sms && *kind.sms > 0;
    sizes.push_back(
        {.size = {.unit = in_sms ? PartitionSize::Unit::kSms : PartitionSize::Unit::kSlices,
                  .amount = in_sms ? *kind.sms : static_cast<int>(kMostSlices)}});
  }
  return sizes;
}

Result<Partition> FindSize(const gpu::GpuModel& kind, std::string_view word) {
  auto size = workload::ParsePartitionSize(word);
  if (!size) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("--partitions: {}", size.error().message));
  }
  if (size->unit == PartitionSize::Unit::kSms && kind.sms && size->amount <= *kind.sms) {
    // Any number of SMs can be had by MPS, also one that no MIG profile has.
    const double share = static_cast<double>(size->amount) / *kind.sms;
    return Partition{.size = std::move(*size), .share = share};
  }
  std::string names;
  for (const gpu::MigProfile& profile : kind.profiles) {
    if (workload::MatchQuality(*size, profile) > 0) {
      const double share = ShareOfProfile(kind, profile);
      return Partition{.size = std::move(*size), .share = share};
    }
    names += (names.empty() ? "" : ", ") + profile.name;
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("--partitions: {} is not a part of {}; it has {}", Quoted(word),
                          kind.name, names.empty() ? "no MIG profiles" : names));
}

int ThreadPercentage(double share, int processes) {
  // A share such as 33 of 132 is not exactly a quarter in binary.
  constexpr double kRounding = 1e-9;
  const double percent = std::ceil(100 * share / processes - kRounding);
  return std::clamp(static_cast<int>(percent), 1, 100);
}

std::vector<Partition> MergedByCores(std::vector<Partition> sizes, int cores) {
  std::vector<Partition> merged;
  for (Partition& size : sizes) {
    if (!merged.empty() && CoresFor(merged.back().share, cores) == CoresFor(size.share, cores)) {
      merged.back().same.push_back(std::move(size.size));
    } else {
      merged.push_back(std::move(size));
    }
  }
  return merged;
}

int CoresFor(double share, int cores) {
  return std::clamp(static_cast<int>(cores * share), 1, std::max(1, cores));
}

}  // namespace divvy::measure
