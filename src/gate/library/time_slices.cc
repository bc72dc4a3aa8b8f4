#include "gate/library/time_slices.h"

#include "gate/library/hooks.h"
#include "gate/slices.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstdarg>
#include <cstring>

namespace divvy::gate {
namespace {

using Ioctl = int (*)(int, unsigned long, ...);

// One control of an object of the resource manager, the part of NVIDIA's kernel driver that owns
// channels: as its published headers have it (NVOS54, NVA06C_CTRL_CMD_SET_TIMESLICE). A program may
// set slices of its own channel groups without privileges.
struct Control {
  std::uint32_t client, object, command, flags;
  std::uint64_t parameters;
  std::uint32_t size, status;
};
constexpr unsigned long kControl = 0xc020462a;
constexpr std::uint32_t kSetTimeslice = 0xa06c0103;
// Likewise where its kernels may be stopped (NV2080_CTRL_CMD_GR_SET_CTXSW_PREEMPTION_MODE).
constexpr std::uint32_t kSetPreemption = 0x20801210;
struct PreemptionMode {
  std::uint32_t flags, channel, graphics, compute;
  std::uint64_t route[2];
};
constexpr std::uint32_t kSetsCompute = 1;
constexpr std::uint32_t kBetweenBlocks = 1;

// The channels of a context that do its work: what takes turns.
struct Group {
  int fd;  // that of its client: controls by another are refused
  dev_t device;
  std::uint32_t client, object;
  std::uint32_t us;
};
constexpr int kGroups = 32;
Group groups[kGroups];
int group_count;
// A context's preemption, as the driver set it.
struct Preemption {
  Group group;  // its `us` means nothing
  PreemptionMode mode;
  bool blocks_end;
  std::uint32_t tries;  // to have it as the driver set it again, in vain
};
// In rounds of the keeper: a second.
constexpr std::uint32_t kMostTries = 100;
Preemption preemptions[kGroups];
int preemption_count;
// Of some context it cannot be set, or is not known: then none is changed.
bool preemption_refused;
// Of some context it is not known that its slice can be set: then that of none counts as set.
bool incomplete;
// The driver's words for that: not permitted, not supported. Any other means that the context is
// gone.
constexpr std::uint32_t kNotPermitted = 0x1b;
constexpr std::uint32_t kNotSupported = 0x56;
std::atomic<std::uint32_t> groups_lock;

class GroupsLock {
 public:
  GroupsLock() {
    while (groups_lock.exchange(1, std::memory_order_acquire) != 0) usleep(10);
  }
  ~GroupsLock() { groups_lock.store(0, std::memory_order_release); }
  GroupsLock(const GroupsLock&) = delete;
  GroupsLock& operator=(const GroupsLock&) = delete;
};

int KernelIoctl(int fd, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  return static_cast<int>(syscall(SYS_ioctl, fd, request, argument));
}

// The next library's, which may be another one that was preloaded. Looked up when the library is
// loaded: programs call it in signal handlers and between fork and exec, where nobody may.
std::atomic<Ioctl> next_ioctl;
__attribute__((constructor)) void FindIoctl() {
  next_ioctl.store(reinterpret_cast<Ioctl>(RealDlsym(RTLD_NEXT, "ioctl")),
                   std::memory_order_release);
}

Ioctl RealIoctl() {
  const Ioctl real = next_ioctl.load(std::memory_order_acquire);
  return real == nullptr ? KernelIoctl : real;
}

// Of a descriptor that is open; 0 else.
dev_t DeviceOf(int fd) {
  struct stat status{};
  return fstat(fd, &status) == 0 ? status.st_rdev : 0;
}

enum class Set { kDone, kRefused, kGone };

template <typename Parameters>
Set Send(const Group& group, std::uint32_t command, Parameters parameters) {
  // A program may close all its descriptors and open others.
  if (DeviceOf(group.fd) != group.device) return Set::kGone;
  Control control{.client = group.client,
                  .object = group.object,
                  .command = command,
                  .flags = 0,
                  .parameters = reinterpret_cast<std::uintptr_t>(&parameters),
                  .size = sizeof parameters,
                  .status = 0};
  if (RealIoctl()(group.fd, kControl, &control) != 0) return Set::kGone;
  if (control.status == kNotPermitted || control.status == kNotSupported) return Set::kRefused;
  return control.status == 0 ? Set::kDone : Set::kGone;
}

Set SetSlice(const Group& group, std::uint32_t us) {
  return Send(group, kSetTimeslice, std::uint64_t{us});
}

// Gives all groups `us`, those that have it too if `all`, and forgets what is gone.
void SetGroups(std::uint32_t us, bool all) {
  int kept = 0;
  for (int i = 0; i < group_count; ++i) {
    Group& group = groups[i];
    const Set set = group.us == us && !all ? Set::kDone : SetSlice(group, us);
    if (set == Set::kRefused) incomplete = true;
    if (set == Set::kGone) continue;
    if (set == Set::kDone) group.us = us;
    groups[kept++] = group;
  }
  group_count = kept;
}

void Remember(int fd, const Control& control, std::uint32_t us) {
  const GroupsLock lock;
  if (group_count == kGroups) SetGroups(us, true);
  Group* group = groups;
  while (group != groups + group_count &&
         (group->client != control.client || group->object != control.object))
    ++group;
  if (group == groups + kGroups) {
    incomplete = true;
    return;
  }
  if (group == groups + group_count) ++group_count;
  *group = {fd, DeviceOf(fd), control.client, control.object, us};
}

Set SetPreemption(const Preemption& preemption, bool blocks_end) {
  PreemptionMode mode = preemption.mode;
  if (blocks_end) mode.compute = kBetweenBlocks;
  return Send(preemption.group, kSetPreemption, mode);
}

// Likewise for where kernels are stopped.
void SetPreemptions(bool blocks_end) {
  int kept = 0;
  for (int i = 0; i < preemption_count; ++i) {
    Preemption& preemption = preemptions[i];
    if (preemption.blocks_end != blocks_end) {
      const Set set = SetPreemption(preemption, blocks_end);
      if (set == Set::kRefused) preemption_refused = true;
      if (set == Set::kDone) {
        preemption.blocks_end = blocks_end;
        preemption.tries = 0;
      } else if (set == Set::kGone && (blocks_end || ++preemption.tries > kMostTries)) {
        // Not at the first word where it is to be taken back: were it only the answer of a moment,
        // every request would wait for this context's blocks from now on.
        continue;
      }
    }
    preemptions[kept++] = preemption;
  }
  preemption_count = kept;
}

void RememberPreemption(int fd, const Control& control, const PreemptionMode& mode) {
  const GroupsLock lock;
  if (preemption_count == kGroups) {
    int kept = 0;
    for (int i = 0; i < preemption_count; ++i) {
      if (SetPreemption(preemptions[i], preemptions[i].blocks_end) != Set::kGone)
        preemptions[kept++] = preemptions[i];
    }
    preemption_count = kept;
  }
  Preemption* preemption = preemptions;
  while (preemption != preemptions + preemption_count &&
         (preemption->group.client != control.client ||
          preemption->group.object != control.object || preemption->mode.channel != mode.channel))
    ++preemption;
  if (preemption == preemptions + kGroups) {
    preemption_refused = true;
    return;
  }
  if (preemption == preemptions + preemption_count) ++preemption_count;
  *preemption = {{fd, DeviceOf(fd), control.client, control.object, 0}, mode, false, 0};
}

bool IsBatch() {
  const JobClass job_class = process.settings.job.job_class;
  return job_class == JobClass::kBatch || job_class == JobClass::kServer;
}

// libcuda sets where kernels of a context that it makes may be stopped.
int SetPreemptionByDriver(int fd, Control& control) {
  ReadSettings();
  const int result = RealIoctl()(fd, kControl, &control);
  PreemptionMode mode{};
  memcpy(&mode, reinterpret_cast<const void*>(control.parameters), sizeof mode);
  if (result != 0 || control.status != 0 || !IsBatch() || (mode.flags & kSetsCompute) == 0)
    return result;
  RememberPreemption(fd, control, mode);
  return result;
}

// libcuda sets the slice of a context that it makes.
int SetByDriver(int fd, Control& control) {
  ReadSettings();
  const JobClass job_class = process.settings.job.job_class;
  const bool lengthens = job_class == JobClass::kLatency && process.settings.apart;
  const Ioctl real = RealIoctl();
  if (!lengthens && !IsBatch()) return real(fd, kControl, &control);
  auto* const us = reinterpret_cast<std::uint64_t*>(control.parameters);
  const std::uint64_t asked = *us;
  if (lengthens) *us = kLatencySliceUs;
  const auto set = static_cast<std::uint32_t>(*us);
  int result = real(fd, kControl, &control);
  if (result == 0 && control.status == 0) {
    Remember(fd, control, set);
  } else if (lengthens) {
    // What the program gets without us it gets with us.
    {
      const GroupsLock lock;
      incomplete = true;
    }
    *us = asked;
    control.status = 0;
    result = real(fd, kControl, &control);
  }
  *us = asked;
  if (job_class == JobClass::kServer) {
    const int error = errno;
    JoinAsServer();
    errno = error;
  }
  return result;
}

}  // namespace

bool SetSlices(std::uint32_t us) {
  const GroupsLock lock;
  SetGroups(us, false);
  return group_count != 0 && !incomplete;
}

bool SetBlocksEnd(bool end) {
  const GroupsLock lock;
  SetPreemptions(end && !preemption_refused);
  // All alike, or as the driver has it.
  if (end && preemption_refused) SetPreemptions(false);
  return end && !preemption_refused && preemption_count != 0;
}

bool HasLongSlices() {
  const GroupsLock lock;
  SetGroups(kLatencySliceUs, true);
  return group_count != 0 && !incomplete;
}

void ForgetSlices() {
  group_count = 0;
  preemption_count = 0;
  preemption_refused = false;
  incomplete = false;
  groups_lock.store(0);
}

}  // namespace divvy::gate

extern "C" {

DIVVY_HOOK int ioctl(int fd, unsigned long request, ...) noexcept {
  using namespace divvy::gate;
  va_list arguments;
  va_start(arguments, request);
  void* const argument = va_arg(arguments, void*);
  va_end(arguments);
  if (request == kControl && argument != nullptr) {
    auto& control = *static_cast<Control*>(argument);
    if (control.command == kSetTimeslice && control.size == sizeof(std::uint64_t) &&
        control.parameters != 0)
      return SetByDriver(fd, control);
    if (control.command == kSetPreemption && control.size == sizeof(PreemptionMode) &&
        control.parameters != 0)
      return SetPreemptionByDriver(fd, control);
  }
  return RealIoctl()(fd, request, argument);
}
}
