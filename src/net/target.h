#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace divvy::net {

// 0 to 15; -1 for what is no hexadecimal digit.
[[nodiscard]] int HexDigit(char c);

// The parts of a request's path between slashes, percent-decoded; the query is left off. Nothing
// for what is no path: not absolute, a bad escape, or an escaped NUL. "/v2/" and "/v2" are the
// same, and so is "http://host:port/v2".
[[nodiscard]] std::optional<std::vector<std::string>> SplitPath(std::string_view target);

// `text` as one part of a path.
[[nodiscard]] std::string EscapedPart(std::string_view text);

}  // namespace divvy::net
