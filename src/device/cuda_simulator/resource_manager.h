#pragma once

#include <cstdint>

// What NVIDIA's libcuda asks of its kernel module about time slices, by ioctl: the numbers are
// those of the open kernel modules (ctrla06c.h, nv_escape.h, nvstatuscodes.h).

namespace divvy::device::cuda_simulator {

inline constexpr unsigned long kRmControl = 0xC020462A;  // _IOWR('F', 0x2A, RmControl).
inline constexpr std::uint32_t kSetTimeslice = 0xA06C0103;
inline constexpr std::uint32_t kGetTimeslice = 0xA06C0104;

struct RmControl {
  std::uint32_t client;
  std::uint32_t object;
  std::uint32_t command;
  std::uint32_t flags;
  std::uint64_t parameters;  // The address of microseconds, in 64 bits.
  std::uint32_t size;
  std::uint32_t status;
};
static_assert(sizeof(RmControl) == 0x20);

enum RmStatus : std::uint32_t {
  kRmOk = 0,
  kRmInvalidArgument = 0x1F,
  kRmNotSupported = 0x56,
  kRmObjectNotFound = 0x57,
};

#pragma GCC visibility push(default)
extern "C" {

// Plays the kernel module to the simulated libcuda, which asks it by the C library's ioctl: a test
// that wants slices to be set has an ioctl of its own call this. The control is good with the
// descriptor, client and object that libcuda itself used, in that process: -1 and ENOTTY for
// another descriptor or request, otherwise 0, and in the control's status what became of it.
// NOLINTNEXTLINE(readability-identifier-naming)
int divvy_sim_rm_control(int descriptor, unsigned long request, void* control) noexcept;

}  // extern "C"
#pragma GCC visibility pop

}  // namespace divvy::device::cuda_simulator
