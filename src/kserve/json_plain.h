#pragma once

#include <array>
#include <cstddef>

namespace divvy::kserve {

// Characters that stand for themselves in a string and are one byte long.
inline constexpr std::array<bool, 256> kPlainInJson = [] {
  std::array<bool, 256> plain{};
  for (std::size_t c = 0x20; c < 0x80; ++c) plain[c] = c != '"' && c != '\\';
  return plain;
}();

inline bool IsPlainInJson(char c) { return kPlainInJson[static_cast<unsigned char>(c)]; }

}  // namespace divvy::kserve
