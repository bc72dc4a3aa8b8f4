#pragma once

// This process' turns on the GPU. libcuda asks the kernel's driver for their length whenever it
// makes a context; it does so by ioctl, which is how we come to know of it.

#include <cstdint>

namespace divvy::gate {

// Gives all contexts of the process slices of `us`. False if that cannot be: there is none yet (an
// MPS client has none at all), or the driver refuses.
bool SetSlices(std::uint32_t us);

// Whether the process was given a latency job's slices when it made its context.
bool HasLongSlices();

// In a child after fork: contexts stayed with the parent.
void ForgetSlices();

}  // namespace divvy::gate
