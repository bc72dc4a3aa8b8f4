#pragma once

#include <string>

#include "base/result.h"

namespace divvy::app {

// The path of libdivvy_gate.so: `given` if not empty, else where it lies beside this
// program, be that installed or just built.
//   kNotFound         it is not there; the message says where it was looked for;
//   kInvalidArgument  its path has a character that LD_PRELOAD cannot take, or it is another file.
[[nodiscard]] Result<std::string> FindGateLibrary(const std::string& given);

// What LD_PRELOAD is to be so that `library` comes before what is preloaded already.
[[nodiscard]] std::string PreloadedBefore(const std::string& library);

}  // namespace divvy::app
