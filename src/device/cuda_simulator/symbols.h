#pragma once

#include <span>
#include <string_view>

#include "device/cuda_simulator/abi_more.h"

namespace divvy::device::cuda_simulator {

// An exported function, and how it is found by name.
struct Symbol {
  const char* name;    // That it is asked for by: without version or form.
  const char* symbol;  // That it is exported as.
  int version;         // Of CUDA, that it came with.
  bool per_thread;     // The form in which the default stream is the caller's own.
  void* address;
};

// All of them, in no order.
std::span<const Symbol> Symbols();

// Whether there is an exported function of this name.
bool IsSymbol(std::string_view symbol);

// Looks a function up as cuGetProcAddress does: of the forms of `name` the newest that had come
// with `version`, a per-thread form if that is asked for and there is one.
struct Lookup {
  LookupStatus status = kLookupUnknownName;
  void* address = nullptr;
};
Lookup FindSymbol(std::string_view name, int version, bool per_thread);

}  // namespace divvy::device::cuda_simulator
