#include "net/large_blocks.h"

#include <malloc.h>

namespace divvy::net {
namespace {

constexpr int kLargest = 1 << 30;
// What may lie idle at the end of the heap.
constexpr int kMostIdle = 256 << 20;

}  // namespace

void KeepLargeBlocks() {
  // Where malloc refuses, it is as it was.
  mallopt(M_MMAP_THRESHOLD, kLargest);
  mallopt(M_TRIM_THRESHOLD, kMostIdle);
  // Another thread's own heap ends at 64 MiB. There are few threads, and they seldom allocate at
  // once.
  mallopt(M_ARENA_MAX, 1);
}

}  // namespace divvy::net
