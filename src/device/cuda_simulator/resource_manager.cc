#include "device/cuda_simulator/resource_manager.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "device/cuda_simulator/driver.h"

// How long a process' turns are and where its kernels are stopped, as libcuda and its kernel module
// agree on it.

namespace divvy::device::cuda_simulator {
namespace {

// Of each device, its channels and itself.
constexpr std::uint32_t kFirstChannels = 0x5C000015;
constexpr std::uint32_t kFirstSubdevice = 0x5C000003;
constexpr std::uint64_t kMostMicroseconds = std::uint64_t{1} << 40;  // Of which no sum runs over.

std::uint32_t ClientOfProcess() {
  return 0xC1D00000 | (static_cast<std::uint32_t>(getpid()) & 0xFFFF);
}

std::uint32_t SetPreemption(Driver& driver, std::uint32_t device, const RmControl& control) {
  const auto* mode = reinterpret_cast<const RmPreemption*>(control.parameters);
  if (control.size != sizeof(*mode) || mode == nullptr || mode->flags != kSetsCompute ||
      mode->compute > static_cast<std::uint32_t>(Stops::kAnywhere)) {
    return kRmInvalidArgument;
  }
  if (mode->channel != kFirstChannels + device) return kRmObjectNotFound;
  driver.machine->SetStops(driver.devices[device], static_cast<Stops>(mode->compute));
  return kRmOk;
}

std::uint32_t Perform(Driver& driver, const RmControl& control) {
  const bool preemption = control.command == kSetPreemption;
  const std::uint32_t device = control.object - (preemption ? kFirstSubdevice : kFirstChannels);
  if (control.client != ClientOfProcess() || device >= driver.devices.size() ||
      !driver.has_channels[device]) {
    return kRmObjectNotFound;
  }
  if (preemption) return SetPreemption(driver, device, control);
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

template <typename Parameters>
void SendControl(int descriptor, std::uint32_t command, std::uint32_t object,
                 Parameters& parameters) {
  RmControl control{.client = ClientOfProcess(),
                    .object = object,
                    .command = command,
                    .flags = 0,
                    .parameters = reinterpret_cast<std::uint64_t>(&parameters),
                    .size = sizeof(parameters),
                    .status = 0};
  ioctl(descriptor, kRmControl, &control);
}

}  // namespace

void Driver::AskForTurns(std::unique_lock<std::mutex>& lock, int device) {
  if (has_channels[device]) return;
  has_channels[device] = true;
  if (control_descriptor < 0) control_descriptor = open("/dev/null", O_RDWR | O_CLOEXEC);
  const int descriptor = control_descriptor;
  const std::uint32_t channels = kFirstChannels + static_cast<std::uint32_t>(device);
  const std::uint32_t subdevice = kFirstSubdevice + static_cast<std::uint32_t>(device);
  RmPreemption preemption{.flags = kSetsCompute,
                          .channel = channels,
                          .graphics = 0,
                          .compute = static_cast<std::uint32_t>(Stops::kAnywhere),
                          .route = {}};
  auto microseconds = static_cast<std::uint64_t>(machine->spec().slice / kMicrosecond);
  // Whoever plays the kernel module may call us back. Where nobody does, all stays as it is.
  lock.unlock();
  SendControl(descriptor, kSetPreemption, subdevice, preemption);
  SendControl(descriptor, kSetTimeslice, channels, microseconds);
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
