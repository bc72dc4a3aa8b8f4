#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace divvy::kserve {

// A name that occurs twice; reorders `names`. Never quadratic in what a client sends.
[[nodiscard]] inline std::optional<std::string_view> FindDuplicate(
    std::span<std::string_view> names) {
  constexpr std::size_t kFew = 12;  // Up to here comparing all pairs beats sorting.
  if (names.size() <= kFew) {
    for (std::size_t i = 1; i < names.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        if (names[i] == names[j]) return names[i];
      }
    }
    return std::nullopt;
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return std::nullopt;
  return *twice;
}

}  // namespace divvy::kserve
