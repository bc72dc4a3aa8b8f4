#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

namespace divvy::device::cuda_simulator {

// When a process began, in clock ticks since boot: with its number it names a process for good,
// since numbers are used again. Nothing where there is none, or only what its parent has yet to
// collect.
std::optional<std::uint64_t> BirthOf(pid_t pid);

}  // namespace divvy::device::cuda_simulator
