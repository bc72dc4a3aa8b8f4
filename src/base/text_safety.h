#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace divvy {

// A place in a text that a file of ours may not contain, and why.
struct UnsafeByte {
  int line;  // From 1.
  std::string what;
};

// The first thing that is not plain UTF-8 text: a malformed sequence, a control
// character other than tab and line end, a carriage return without line feed, or
// a tab that indents. Nothing when all is well.
[[nodiscard]] std::optional<UnsafeByte> FindUnsafeByte(std::string_view text);

inline constexpr std::size_t kMostNameBytes = 200;

// True for what may name a model, a job or a config: 1 to `longest` bytes of UTF-8 without
// control characters (those of C1 too, which some terminals obey), and without
// spaces at either end.
[[nodiscard]] bool IsName(std::string_view text, std::size_t longest = kMostNameBytes);

// `text` in single quotes for an error message: control characters escaped, and
// cut to about 40 characters.
[[nodiscard]] std::string Quoted(std::string_view text);

}  // namespace divvy
