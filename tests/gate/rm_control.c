// Plays NVIDIA's kernel module to the simulated libcuda.so.1: preloaded behind the gate, it answers
// the controls that libcuda, or the gate in its place, sends by ioctl. DIVVY_SIM_RM=refuse: it
// grants none of them; refuse-blocks: not that kernels are stopped between thread blocks; busy: is
// busy when it is first asked to stop them elsewhere again. DIVVY_SIM_RM_LOG names a file to which
// it adds, for each control about that, the mode that was asked for and what it answered.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
  kControl = 0x2A,
  kCommandAt = 8,
  kParametersAt = 16,
  kStatusAt = 28,
  kBusyRetry = 0x3,
  kInsufficientPermissions = 0x1B,
  kSetPreemption = 0x20801210,
  kComputeAt = 12,
  kBetweenBlocks = 1
};

static uint32_t Word(const void* memory, size_t at) {
  uint32_t word = 0;
  memcpy(&word, (const char*)memory + at, sizeof(word));
  return word;
}

// What a control about where kernels are stopped asks for; -1: it is about something else.
static int ModeIn(const void* control) {
  if (Word(control, kCommandAt) != kSetPreemption) return -1;
  const void* parameters = NULL;
  memcpy(&parameters, (const char*)control + kParametersAt, sizeof(parameters));
  return (int)Word(parameters, kComputeAt);
}

// What it is answered before the driver sees it; 0: nothing.
static uint32_t AnswerTo(int mode) {
  static int was_between;
  static int was_busy;
  const char* refuse = getenv("DIVVY_SIM_RM");
  if (refuse == NULL) return 0;
  if (strcmp(refuse, "refuse") == 0) return kInsufficientPermissions;
  if (strcmp(refuse, "refuse-blocks") == 0)
    return mode == kBetweenBlocks ? kInsufficientPermissions : 0;
  if (strcmp(refuse, "busy") != 0 || mode < 0) return 0;
  was_between |= mode == kBetweenBlocks;
  if (mode == kBetweenBlocks || !was_between || was_busy) return 0;
  was_busy = 1;
  return kBusyRetry;
}

static void Log(int mode, uint32_t answer) {
  const char* path = getenv("DIVVY_SIM_RM_LOG");
  FILE* file = path == NULL || mode < 0 ? NULL : fopen(path, "ae");
  if (file == NULL) return;
  fprintf(file, "%d:%u\n", mode, answer);
  fclose(file);
}

__attribute__((visibility("default"))) int ioctl(int descriptor, unsigned long request, ...) {
  va_list arguments;
  va_start(arguments, request);
  void* argument = va_arg(arguments, void*);
  va_end(arguments);
  if (_IOC_TYPE(request) != 'F' || _IOC_NR(request) != kControl) {
    return (int)syscall(SYS_ioctl, descriptor, request, argument);
  }
  const int mode = ModeIn(argument);
  const uint32_t answer = AnswerTo(mode);
  Log(mode, answer);
  if (answer != 0) {
    memcpy((char*)argument + kStatusAt, &answer, sizeof(answer));
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
