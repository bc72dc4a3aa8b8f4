#include <algorithm>
#include <cstring>

#include "device/cuda_simulator/engine.h"

// The operations of streams that touch memory.

namespace divvy::device::cuda_simulator {
namespace {

// How often a stream that waits for a value looks at it.
constexpr Nanos kLookEvery = 40 * kMicrosecond;
// Copies go at about the speed of a PCIe link, and use no SM.
constexpr std::size_t kBytesPerMicrosecond = 25'000;

template <typename Word, typename Signed>
bool IsMet(Word found, Word value, unsigned condition) {
  switch (condition) {
    case cuda::kWaitValueGeq:  // On a circle, so that counters may run over.
      return static_cast<Signed>(static_cast<Word>(found - value)) >= 0;
    case cuda::kWaitValueEq:
      return found == value;
    case cuda::kWaitValueAnd:
      return (found & value) != 0;
    default:
      return static_cast<Word>(~(found | value)) != 0;
  }
}

bool IsMet(const ValueWait& wait) {
  if (wait.wide) {
    const auto found =
        __atomic_load_n(reinterpret_cast<std::uint64_t*>(wait.address), __ATOMIC_ACQUIRE);
    return IsMet<std::uint64_t, std::int64_t>(found, wait.value, wait.condition);
  }
  const auto found =
      __atomic_load_n(reinterpret_cast<std::uint32_t*>(wait.address), __ATOMIC_ACQUIRE);
  return IsMet<std::uint32_t, std::int32_t>(found, static_cast<std::uint32_t>(wait.value),
                                            wait.condition);
}

}  // namespace

Engine::Progress Engine::Do(ValueWait& wait, Nanos ready, Nanos now, ContextState& context) {
  // Memory that was taken away under a stream is what an illegal address is to a GPU.
  if (!memory_.Holds(wait.address, wait.wide ? 8 : 4)) {
    context.error = cuda::kIllegalAddress;
    return {true, now};
  }
  const bool first = wait.blocked_since == 0;
  if (!IsMet(wait)) {
    if (first) {
      ++stats_.waits_blocked;
      wait.blocked_since = now;
    }
    return {false, now + kLookEvery};
  }
  ++stats_.waits;
  if (first) return {true, ready};
  stats_.wait_blocked += now - wait.blocked_since;
  return {true, std::max(ready, now)};
}

// A kernel that runs and would go on: looks at its word, as a wait does.
Engine::Progress Engine::Watch(KernelRun& run, const Progress& step, Nanos now,
                               ContextState& context) {
  if (run.word % 4 != 0 || !memory_.Holds(run.word, 4)) {
    context.error = cuda::kIllegalAddress;
    return {true, now};
  }
  const ValueWait wait{.address = run.word, .value = run.value};
  if (!IsMet(wait)) return {false, std::min(step.time, now + kLookEvery)};
  EndRun(run, now);
  ++stats_.kernels;
  return {true, now};
}

Engine::Progress Engine::Do(const ValueWrite& write, Nanos ready, ContextState& context) {
  if (!memory_.Holds(write.address, write.wide ? 8 : 4)) {
    context.error = cuda::kIllegalAddress;
    return {true, ready};
  }
  ++stats_.writes;
  if (write.wide) {
    __atomic_store_n(reinterpret_cast<std::uint64_t*>(write.address), write.value,
                     __ATOMIC_RELEASE);
  } else {
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(write.address),
                     static_cast<std::uint32_t>(write.value), __ATOMIC_RELEASE);
  }
  return {true, ready};
}

Engine::Progress Engine::Do(Copy& copy, Nanos ready, Nanos now) {
  if (copy.end == 0) {
    copy.end = ready + static_cast<Nanos>(copy.bytes / kBytesPerMicrosecond) * kMicrosecond;
  }
  if (copy.end > now) return {false, copy.end};
  const void* from = copy.staged ? static_cast<const void*>(copy.staged->data())
                                 : reinterpret_cast<const void*>(copy.from);
  std::memmove(reinterpret_cast<void*>(copy.to), from, copy.bytes);
  ++stats_.copies;
  return {true, copy.end};
}

void Engine::Write(const Fill& fill) {
  auto* to = reinterpret_cast<std::byte*>(fill.to);
  if (fill.width == 1) {
    std::memset(to, static_cast<int>(fill.value & 0xFF), fill.count);
    return;
  }
  // Little endian: the low bytes come first.
  for (std::size_t i = 0; i < fill.count; ++i)
    std::memcpy(to + i * fill.width, &fill.value, fill.width);
}

}  // namespace divvy::device::cuda_simulator
