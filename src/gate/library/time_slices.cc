#include "gate/library/time_slices.h"

#include "gate/library/hooks.h"
#include "gate/slices.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <cerrno>
#include <cstdarg>

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

Set SetSlice(const Group& group, std::uint32_t us) {
  // A program may close all its descriptors and open others.
  if (DeviceOf(group.fd) != group.device) return Set::kGone;
  std::uint64_t value = us;
  Control control{.client = group.client,
                  .object = group.object,
                  .command = kSetTimeslice,
                  .flags = 0,
                  .parameters = reinterpret_cast<std::uintptr_t>(&value),
                  .size = sizeof value,
                  .status = 0};
  if (RealIoctl()(group.fd, kControl, &control) != 0) return Set::kGone;
  if (control.status == kNotPermitted || control.status == kNotSupported) return Set::kRefused;
  return control.status == 0 ? Set::kDone : Set::kGone;
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

// libcuda sets the slice of a context that it makes.
int SetByDriver(int fd, Control& control) {
  ReadSettings();
  const JobClass job_class = process.settings.job.job_class;
  const bool lengthens = job_class == JobClass::kLatency && process.settings.apart;
  const Ioctl real = RealIoctl();
  if (!lengthens && job_class != JobClass::kBatch && job_class != JobClass::kServer)
    return real(fd, kControl, &control);
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

bool HasLongSlices() {
  const GroupsLock lock;
  SetGroups(kLatencySliceUs, true);
  return group_count != 0 && !incomplete;
}

void ForgetSlices() {
  group_count = 0;
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
  }
  return RealIoctl()(fd, request, argument);
}
}
