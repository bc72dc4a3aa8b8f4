#include "workload/partition_size.h"

#include <fmt/format.h>

#include <optional>

#include "base/number.h"
#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr IntRange kSlices{1, 64};
constexpr IntRange kSms{1, 4096};

bool Within(std::optional<int> number, IntRange range) {
  return number && range.least <= *number && *number <= range.most;
}

// True for what follows the slices in a full name: "40gb", "10gb+me", "24gb-me".
bool IsMemoryAndExtras(std::string_view text) {
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (digits == 0 || digits == std::string_view::npos) return false;
  text.remove_prefix(digits);
  if (!text.starts_with("gb")) return false;
  text.remove_prefix(2);
  return text.empty() || (text.size() > 1 && (text.front() == '+' || text.front() == '-'));
}

bool HasExtras(std::string_view profile_name) {
  return profile_name.find_first_of("+-") != std::string_view::npos;
}

}  // namespace

Result<PartitionSize> ParsePartitionSize(std::string_view text) {
  constexpr std::size_t kLongest = 32;  // No profile's name comes near.
  const std::size_t digits = text.find_first_not_of("0123456789");
  if (text.size() <= kLongest && digits != 0 && digits != std::string_view::npos) {
    const auto amount = ParseInteger(text.substr(0, digits));
    const std::string_view rest = text.substr(digits);
    if (rest == "sm" && Within(amount, kSms)) {
      return PartitionSize{.unit = PartitionSize::Unit::kSms, .amount = *amount};
    }
    if (rest == "g" && Within(amount, kSlices)) {
      return PartitionSize{.unit = PartitionSize::Unit::kSlices, .amount = *amount};
    }
    if (rest.starts_with("g.") && Within(amount, kSlices) && IsMemoryAndExtras(rest.substr(2))) {
      return PartitionSize{
          .unit = PartitionSize::Unit::kProfile, .amount = *amount, .profile = std::string(text)};
    }
  }
  return Fail(ErrorCode::kInvalidArgument,
              fmt::format("{} is not a partition: a MIG size such as 3g, a MIG profile such as "
                          "3g.40gb, or a number of SMs such as 60sm",
                          Quoted(text)));
}

std::string Describe(const PartitionSize& size) {
  switch (size.unit) {
    case PartitionSize::Unit::kSlices:
      return fmt::format("{}g", size.amount);
    case PartitionSize::Unit::kProfile:
      return size.profile;
    case PartitionSize::Unit::kSms:
      return fmt::format("{}sm", size.amount);
  }
  return {};
}

int MatchQuality(const PartitionSize& size, const gpu::MigProfile& profile) {
  if (size.unit == PartitionSize::Unit::kProfile) return size.profile == profile.name ? 3 : 0;
  if (HasExtras(profile.name)) return 0;
  if (size.unit == PartitionSize::Unit::kSlices) {
    return size.amount == profile.compute_slices ? 2 : 0;
  }
  return profile.sms == size.amount ? 1 : 0;
}

}  // namespace divvy::workload
