// Preloaded into a program to make its disk fail: kills the process, or fails the
// call, at the N-th call that touches a file under a folder.
//
//   FAULTY_FILES_DIR     the folder
//   FAULTY_FILES_AT      N, from 1; 0 or unset only counts
//   FAULTY_FILES_ACTION  kill-before, kill-after, torn (half a write, then kill),
//                        error (EIO) or short (half a write, then one ENOSPC)
//   FAULTY_FILES_COUNT   file to keep the number of calls in
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

static int calls = 0;
static int disk_full = 0;  // The next write fails, once.

static void Die(void) { kill(getpid(), SIGKILL); }

static int IsAction(const char* name) {
  const char* action = getenv("FAULTY_FILES_ACTION");
  return action != NULL && strcmp(action, name) == 0;
}

static void NoteCount(void) {
  const char* path = getenv("FAULTY_FILES_COUNT");
  if (path == NULL) return;
  char text[16];
  const int length = snprintf(text, sizeof(text), "%d", calls);
  const long fd = syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0) return;
  syscall(SYS_write, fd, text, (size_t)length);
  syscall(SYS_close, fd);
}

// True when this call, on a file under the folder, is the one that shall fail.
static int Strikes(const char* path) {
  const char* dir = getenv("FAULTY_FILES_DIR");
  const char* at = getenv("FAULTY_FILES_AT");
  if (dir == NULL || path == NULL || strncmp(path, dir, strlen(dir)) != 0) return 0;
  ++calls;
  NoteCount();
  return at != NULL && calls == atoi(at);
}

static int StrikesFd(int fd) {
  char link[64];
  char path[4096];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t length = readlink(link, path, sizeof(path) - 1);
  if (length < 0) return 0;
  path[length] = '\0';
  return Strikes(path);
}

// What a call that strikes does before its effect; returns 1 for "fail it".
static int Before(int strikes) {
  if (!strikes) return 0;
  if (IsAction("kill-before")) Die();
  if (!IsAction("error")) return 0;
  errno = EIO;
  return 1;
}

static void After(int strikes) {
  if (strikes && (IsAction("kill-after") || IsAction("torn"))) Die();
}

ssize_t write(int fd, const void* data, size_t size) {
  static ssize_t (*next)(int, const void*, size_t) = NULL;
  if (next == NULL) next = (ssize_t(*)(int, const void*, size_t))dlsym(RTLD_NEXT, "write");
  const int strikes = StrikesFd(fd);
  if (disk_full) {
    disk_full = 0;
    errno = ENOSPC;
    return -1;
  }
  if (Before(strikes)) return -1;
  const int half = strikes && (IsAction("torn") || IsAction("short"));
  disk_full = strikes && IsAction("short");
  const ssize_t written = next(fd, data, half ? size / 2 : size);
  After(strikes);
  return written;
}

int fsync(int fd) {
  static int (*next)(int) = NULL;
  if (next == NULL) next = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
  const int strikes = StrikesFd(fd);
  if (Before(strikes)) return -1;
  const int result = next(fd);
  After(strikes);
  return result;
}

int rename(const char* from, const char* to) {
  static int (*next)(const char*, const char*) = NULL;
  if (next == NULL) next = (int (*)(const char*, const char*))dlsym(RTLD_NEXT, "rename");
  const int strikes = Strikes(to);
  if (Before(strikes)) return -1;
  const int result = next(from, to);
  After(strikes);
  return result;
}

int ftruncate(int fd, off_t size) {
  static int (*next)(int, off_t) = NULL;
  if (next == NULL) next = (int (*)(int, off_t))dlsym(RTLD_NEXT, "ftruncate");
  const int strikes = StrikesFd(fd);
  if (Before(strikes)) return -1;
  const int result = next(fd, size);
  After(strikes);
  return result;
}

int open(const char* path, int flags, ...) {
  static int (*next)(const char*, int, ...) = NULL;
  if (next == NULL) next = (int (*)(const char*, int, ...))dlsym(RTLD_NEXT, "open");
  mode_t mode = 0;
  if (flags & O_CREAT) {
    va_list arguments;
    va_start(arguments, flags);
    mode = va_arg(arguments, mode_t);
    va_end(arguments);
  }
  const int strikes = Strikes(path);
  if (Before(strikes)) return -1;
  const int fd = next(path, flags, mode);
  After(strikes);
  return fd;
}
