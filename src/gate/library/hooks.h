#pragma once

// How a hook is written: under the driver's name, with the real function at hand.

#include "gate/library/state.h"

// Seen from outside the library; everything else is hidden.
#define DIVVY_HOOK __attribute__((visibility("default")))

// `real`: the driver's function of the same name.
#define DIVVY_REAL(name)                                                            \
  static auto* const real = reinterpret_cast<decltype(&name)>(DriverSymbol(#name)); \
  if (real == nullptr) return cuda::kNotFound

namespace divvy::gate {

// The hook that stands for a driver function, by the real one's address or by its name; null if
// there is none.
void* HookFor(const void* real);
void* HookNamed(const char* name);

}  // namespace divvy::gate
