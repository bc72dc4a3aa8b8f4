#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "device/simulator/state.h"

namespace divvy::app {

// What a command does to the state, and the line it prints; where it fails,
// nothing is written.
using Edit = std::function<Result<std::string>(device::simulator::State&)>;

// Changes a state file under its lock, so that libraries in other processes see
// all of a command or none of it.
[[nodiscard]] Result<std::string> EditStateFile(const std::string& path, const Edit& edit);

// Makes a state file; kFailedPrecondition if there is one and `replace` is false.
[[nodiscard]] Result<std::string> MakeStateFile(const std::string& path,
                                                const device::simulator::State& state,
                                                bool replace);

// The state in the file.
[[nodiscard]] Result<device::simulator::State> ReadStateFile(const std::string& path);

}  // namespace divvy::app
