#pragma once

#include <cstdint>
#include <string_view>

namespace divvy {

inline constexpr std::uint64_t kHashOfNothing = 14695981039346656037ULL;

// Tells texts apart, the same on every machine: FNV-1a. To notice a change, not to withstand
// anybody. A text in parts: the hash of what came before goes in as `before`.
[[nodiscard]] constexpr std::uint64_t HashOf(std::string_view text,
                                             std::uint64_t before = kHashOfNothing) {
  for (const char c : text) {
    before = (before ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return before;
}

}  // namespace divvy
