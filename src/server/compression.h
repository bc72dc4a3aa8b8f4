#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/result.h"

namespace divvy::server {

enum class Encoding { kIdentity, kGzip, kDeflate };

// Of a Content-Encoding header. kUnsupported for what we do not know.
[[nodiscard]] Result<Encoding> ParseEncoding(std::string_view header);
// What an Accept-Encoding header prefers of what we have; identity if it names none or refuses all.
[[nodiscard]] Encoding PreferredEncoding(std::string_view header);
[[nodiscard]] std::string_view Name(Encoding encoding);

// kInvalidArgument for what is not so encoded or ends early; kResourceExhausted, with the bound,
// for what would be larger than `most`.
[[nodiscard]] Result<std::string> Decompress(Encoding encoding, std::string_view data,
                                             std::size_t most);
[[nodiscard]] std::string Compress(Encoding encoding, std::string_view data);

}  // namespace divvy::server
