#pragma once

#include <string>

#include "base/result.h"

namespace divvy::app {

// The bearer token in the file that --token-file names, as RFC 6750 has them; a line end after it
// is not part of it. kInvalidArgument says what is wrong with it, and else as ReadText.
[[nodiscard]] Result<std::string> ReadTokenFile(const std::string& file);

}  // namespace divvy::app
