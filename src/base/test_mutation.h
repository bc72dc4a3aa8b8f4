#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/random.h"

// Inputs gone wrong, for tests that any bytes give a value or an error.

namespace divvy::testing {

// Bytes and pieces that parsers trip over.
inline constexpr std::string_view kPieces[] = {
    ",",      "\n", "\"", "\"\"", "\r\n", "\r", "-",  "0",  "999", "nan", "inf",  "1e308",
    "1e-320", ":",  "{",  "}",    "[",    "]",  "&a", "*a", "!!x", "\t",  "\x80", "\xff",
    "#",      "'",  " ",  "g",    "sm",   ".",  "+",  "~",  "\\",  "=",   "TYPE"};

// `text` with a few places changed, cut out, doubled, or its end lost.
inline std::string Mutated(std::string text, Random& random) {
  const auto edits = 1 + random.Below(4);
  for (std::uint64_t i = 0; i < edits && !text.empty(); ++i) {
    const auto at = static_cast<std::size_t>(random.Below(text.size()));
    const auto length = std::min<std::size_t>(1 + random.Below(12), text.size() - at);
    switch (random.Below(5)) {
      case 0:
        text[at] = static_cast<char>(random.Below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, kPieces[random.Below(std::size(kPieces))]);
        break;
      case 3:
        text.insert(at, text.substr(at, length));
        break;
      default:
        text.resize(at);
    }
  }
  return text;
}

}  // namespace divvy::testing
