#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace divvy::kserve {

// Bytes of the UTF-8 sequence that `text` begins with; 0 if it is malformed (RFC 3629): overlong, a
// surrogate, beyond Unicode, or cut off. REQUIRES: !text.empty().
[[nodiscard]] std::size_t Utf8Length(std::string_view text);

// Whether all of it is well formed.
[[nodiscard]] bool IsUtf8(std::string_view text);

// REQUIRES: `code` is a code point and no surrogate.
void AppendUtf8(std::uint32_t code, std::string& text);

}  // namespace divvy::kserve
