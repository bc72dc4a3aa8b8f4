#pragma once

// How a hook is written: under the driver's name, with the real function at hand.

#include "gate/library/state.h"

// Seen from outside the library; everything else is hidden.
#define DIVVY_HOOK __attribute__((visibility("default")))

// `real`: the driver's function of the same name. Two threads may both look it up, and find the
// same.
#define DIVVY_REAL(name)                                                  \
  static std::atomic<void*> found_##name;                                 \
  void* address_##name = found_##name.load(std::memory_order_acquire);    \
  if (address_##name == nullptr) {                                        \
    address_##name = DriverSymbol(#name);                                 \
    found_##name.store(address_##name, std::memory_order_release);        \
  }                                                                       \
  auto* const real = reinterpret_cast<decltype(&(name))>(address_##name); \
  if (real == nullptr) return cuda::kNotFound

namespace divvy::gate {

// The hook that stands for a driver function, by the real one's address or by its name; null if
// there is none.
void* HookFor(const void* real);
void* HookNamed(const char* name);

}  // namespace divvy::gate
