#include "device/cuda_simulator/resource_manager.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "device/cuda_simulator/driver.h"

// How long a process' turns are, as libcuda and its kernel module agree on it.

namespace divvy::device::cuda_simulator {
namespace {

constexpr std::uint32_t kFirstObject = 0x5C000015;
constexpr std::uint64_t kMostMicroseconds = std::uint64_t{1} << 40;  // Of which no sum runs over.

std::uint32_t ClientOfProcess() {
  return 0xC1D00000 | (static_cast<std::uint32_t>(getpid()) & 0xFFFF);
}

std::uint32_t Perform(Driver& driver, const RmControl& control) {
  const std::uint32_t device = control.object - kFirstObject;
  if (control.client != ClientOfProcess() || device >= driver.devices.size() ||
      !driver.has_channels[device]) {
    return kRmObjectNotFound;
  }
  if (control.command != kSetTimeslice && control.command != kGetTimeslice) return kRmNotSupported;
  auto* microseconds = reinterpret_cast<std::uint64_t*>(control.parameters);
  if (control.size != sizeof(*microseconds) || microseconds == nullptr) return kRmInvalidArgument;
  const int gpu = driver.devices[device];
  if (control.command == kGetTimeslice) {
    *microseconds = static_cast<std::uint64_t>(driver.machine->Slice(gpu) / kMicrosecond);
    return kRmOk;
  }
  if (*microseconds == 0) return kRmInvalidArgument;
  const auto asked = static_cast<Nanos>(std::min(*microseconds, kMostMicroseconds));
  driver.machine->SetSlice(gpu, asked * kMicrosecond, Now());
  return kRmOk;
}

}  // namespace

void Driver::AskForSlice(std::unique_lock<std::mutex>& lock, int device) {
  if (has_channels[device]) return;
  has_channels[device] = true;
  if (control_descriptor < 0) control_descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int descriptor = control_descriptor;
  auto microseconds = static_cast<std::uint64_t>(machine->spec().slice / kMicrosecond);
  RmControl control{.client = ClientOfProcess(),
                    .object = kFirstObject + static_cast<std::uint32_t>(device),
                    .command = kSetTimeslice,
                    .flags = 0,
                    .parameters = reinterpret_cast<std::uint64_t>(&microseconds),
                    .size = sizeof(microseconds),
                    .status = 0};
  // Whoever plays the kernel module may call us back. Where nobody does, the slice stays as it is.
  lock.unlock();
  ioctl(descriptor, kRmControl, &control);
  lock.lock();
}

int divvy_sim_rm_control(int descriptor, unsigned long request, void* control) noexcept {
  Driver& driver = Driver::OfProcess();
  const cuda::Result ready = driver.Readiness();
  // It is no function of CUDA's, so host functions may call it.
  if (ready == cuda::kSuccess || ready == cuda::kNotPermitted) {
    const std::lock_guard lock(driver.mutex);
    if (descriptor >= 0 && descriptor == driver.control_descriptor && request == kRmControl) {
      auto& asked = *static_cast<RmControl*>(control);
      asked.status = Perform(driver, asked);
      return 0;
    }
  }
  errno = ENOTTY;
  return -1;
}

}  // namespace divvy::device::cuda_simulator
