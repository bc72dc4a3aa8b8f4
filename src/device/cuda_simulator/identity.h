#pragma once

#include <cstdio>
#include <string>

#include "gate/cuda_abi.h"

namespace divvy::device::cuda_simulator {

// The UUID of a machine's GPU: its number, told apart from real ones by what is around it.
inline cuda::Uuid UuidOf(int gpu) {
  cuda::Uuid uuid{};
  constexpr unsigned char kPrefix[] = {0xd1, 0x77, 0x70, 0x51, 0x3d};
  for (std::size_t i = 0; i < sizeof(kPrefix); ++i) uuid.bytes[i] = kPrefix[i];
  uuid.bytes[15] = static_cast<unsigned char>(gpu + 1);
  return uuid;
}

// The same as nvidia-smi writes it, e.g. for CUDA_VISIBLE_DEVICES.
inline std::string UuidText(int gpu) {
  const cuda::Uuid uuid = UuidOf(gpu);
  std::string text = "GPU";
  for (int i = 0; i < 16; ++i) {
    if (i == 0 || i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    char digits[3];
    std::snprintf(digits, sizeof(digits), "%02x", uuid.bytes[i]);
    text += digits;
  }
  return text;
}

}  // namespace divvy::device::cuda_simulator
