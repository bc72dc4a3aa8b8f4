#pragma once

#include <cstddef>
#include <string_view>

#include "device/nvml_abi.h"

namespace divvy::device::simulator {

// Hands `text` out the way NVML does: kInvalidArgument without a buffer,
// kInsufficientSize, with the buffer untouched, when it does not fit whole.
[[nodiscard]] inline nvml::Return CopyOut(std::string_view text, char* buffer, unsigned length) {
  if (buffer == nullptr || length == 0) return nvml::kInvalidArgument;
  if (text.size() >= length) return nvml::kInsufficientSize;
  text.copy(buffer, text.size());
  buffer[text.size()] = '\0';
  return nvml::kSuccess;
}

// The like into a field of a struct, cropped to its size.
template <std::size_t kSize>
void CopyInto(std::string_view text, char (&field)[kSize]) {
  field[text.copy(field, kSize - 1)] = '\0';
}

}  // namespace divvy::device::simulator
