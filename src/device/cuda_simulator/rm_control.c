// Plays NVIDIA's kernel module to the simulated libcuda.so.1: preloaded behind the gate, it answers
// the controls that libcuda, or the gate in its place, sends by ioctl. DIVVY_SIM_RM=refuse: it
// grants none of them.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { kControl = 0x2A, kStatusAt = 28, kInsufficientPermissions = 0x1B };

__attribute__((visibility("default"))) int ioctl(int descriptor, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (_IOC_TYPE(request) != 'F' || _IOC_NR(request) != kControl) {
    return (int)syscall(SYS_ioctl, descriptor, request, argument);
  }
  const char* refuse = getenv("DIVVY_SIM_RM");
  if (refuse != NULL && strcmp(refuse, "refuse") == 0) {
    const uint32_t status = kInsufficientPermissions;
    memcpy((char*)argument + kStatusAt, &status, sizeof(status));
    return 0;
  }
  void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  int (*control)(int, unsigned long, void*) = NULL;
  if (driver != NULL) {
    // The way POSIX gives from an object's address to a function's.
    *(void**)&control = dlsym(driver, "divvy_sim_rm_control");
    dlclose(driver);
  }
  if (control == NULL) return (int)syscall(SYS_ioctl, descriptor, request, argument);
  return control(descriptor, request, argument);
}
