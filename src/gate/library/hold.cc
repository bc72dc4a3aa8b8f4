#include "gate/library/hold.h"

#include <sched.h>
#include <time.h>
#include <algorithm>
#include <cstdlib>

namespace divvy::gate {
namespace {

// For any GPU since Pascal: the driver compiles it for the one that is there.
constexpr const char* kHold = R"(.version 6.0
.target sm_60
.address_size 64
.visible .entry divvy_hold(.param .u64 word, .param .u32 number, .param .u32 nanoseconds)
{
  .reg .pred %over;
  .reg .u32 %number, %seen;
  .reg .u64 %word, %now, %end;
  ld.param.u64 %word, [word];
  ld.param.u32 %number, [number];
  ld.param.u32 %seen, [nanoseconds];
  cvt.u64.u32 %end, %seen;
  mov.u64 %now, %globaltimer;
  add.u64 %end, %end, %now;
look:
  ld.volatile.global.u32 %seen, [%word];
  sub.u32 %seen, %seen, %number;
  setp.ge.s32 %over, %seen, 0;
  @%over bra done;
  mov.u64 %now, %globaltimer;
  setp.lt.u64 %over, %now, %end;
  @%over bra look;
done:
  ret;
}
)";

// The hold begins an eighth of a request before its expected end, within bounds: a request that
// begins with a switch of the GPU takes a fifth of a millisecond longer than one that does not, and
// timers are late; and no hold lasts for ever.
constexpr std::uint64_t kShortestLeadNs = 300'000;
constexpr std::uint64_t kLongestLeadNs = 800'000;
// A launch takes microseconds; a driver that is stuck in one is not waited for.
constexpr int kLaunchPauses = 200;
constexpr long kLaunchPauseNs = 50'000;
// A hold that nobody ends is over after this long.
constexpr std::uint32_t kLongestNs = 800'000;

// Of `hold_at_ns` and of starting what it says: somebody who lets go must know what was started.
class HoldLock {
 public:
  explicit HoldLock(GpuState& gpu) : gpu_(gpu) {
    while (gpu_.holding.exchange(1, std::memory_order_acquire) != 0) sched_yield();
  }
  ~HoldLock() { gpu_.holding.store(0, std::memory_order_release); }
  HoldLock(const HoldLock&) = delete;
  HoldLock& operator=(const HoldLock&) = delete;

 private:
  GpuState& gpu_;
};

void EndHolds(GpuState& gpu) {
  pinned->holds[gpu.index].over.store(gpu.hold_number.load(std::memory_order_relaxed),
                                      std::memory_order_release);
}

void EndAtExit() {
  for (GpuState& gpu : process.gpus) SuspendHold(gpu);
}

}  // namespace

void PrepareHold(const Driver& driver, GpuState& gpu) {
  gpu.hold_function.store(nullptr);
  if (driver.cuModuleLoadData == nullptr || driver.cuModuleGetFunction == nullptr ||
      driver.cuCtxSetCurrent == nullptr || driver.cuLaunchKernel == nullptr)
    return;
  HoldWord& word = pinned->holds[gpu.index];
  gpu.hold_on_gpu = MapForGpu(driver, &word, sizeof word);
  cuda::Module module = nullptr;
  cuda::Function function = nullptr;
  // Apart from the default stream, which would otherwise wait for it.
  if (gpu.hold_on_gpu == 0 || driver.cuModuleLoadData(&module, kHold) != cuda::kSuccess ||
      driver.cuModuleGetFunction(&function, module, "divvy_hold") != cuda::kSuccess ||
      driver.cuStreamCreate(&gpu.hold_stream, cuda::kStreamNonBlocking) != cuda::kSuccess)
    return;
  gpu.hold_function.store(function);
  // Before the driver ends: what is registered last runs first.
  static std::atomic<bool> registered;
  if (!registered.exchange(true)) atexit(EndAtExit);
}

bool PlanHold(GpuState& gpu, std::uint64_t now_ns) {
  if (gpu.hold_function.load() == nullptr) return false;
  const HoldLock lock(gpu);
  EndHolds(gpu);
  gpu.hold_at_ns.store(0, std::memory_order_relaxed);
  // Once a request, which may be of several graphs.
  const std::uint64_t request = gpu.request_first_launch.load(std::memory_order_relaxed) + 1;
  if (gpu.hold_asked != request) gpu.hold_wanted = gpu.hold_trials.Next();
  gpu.hold_asked = request;
  const std::uint64_t usual = gpu.usual_request_ns.load(std::memory_order_relaxed);
  const LatencyTuning tuning = TuningAt(gpu.slot->openness.load(std::memory_order_relaxed));
  if (!gpu.hold_wanted || RestNs(tuning, usual, /*apart=*/true) == 0) return false;
  const std::uint64_t end = gpu.request_start_ns.load(std::memory_order_relaxed) + usual;
  const std::uint64_t lead = std::clamp(usual / 8, kShortestLeadNs, kLongestLeadNs);
  gpu.hold_at_ns.store(end > now_ns + lead ? end - lead : now_ns, std::memory_order_relaxed);
  return true;
}

std::uint64_t HoldIfDue(const Driver& driver, GpuState& gpu, std::uint64_t now_ns) {
  const std::uint64_t due = gpu.hold_at_ns.load(std::memory_order_relaxed);
  if (due == 0 || now_ns < due) return due;
  std::uint32_t number = 0;
  cuda::Function function = nullptr;
  {
    const HoldLock lock(gpu);
    if (gpu.hold_at_ns.exchange(0, std::memory_order_relaxed) == 0) return 0;
    function = gpu.hold_function.load();
    // Too late: the request is over, and the GPU given away. And while somebody captures, the gate
    // keeps its hands off.
    if (function == nullptr || gpu.active.load(std::memory_order_relaxed) == 0 ||
        process.captures.load(std::memory_order_relaxed) != 0)
      return 0;
    number = gpu.hold_number.fetch_add(1, std::memory_order_relaxed) + 1;
    gpu.bears_hold.store(true, std::memory_order_relaxed);
    gpu.hold_launching.store(true, std::memory_order_relaxed);
  }
  // Not under the lock: the driver may have to wait for others, who wait for it. Who lets go
  // meanwhile ends it by its number.
  if (driver.cuCtxSetCurrent(gpu.context) == cuda::kSuccess) {
    std::uint32_t ns = kLongestNs;
    void* parameters[] = {&gpu.hold_on_gpu, &number, &ns};
    // Twice: it is what stands in a queue that keeps the GPU. A process whose queues are empty is
    // interrupted in its last kernel.
    for (int i = 0; i < 2; ++i) {
      driver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, gpu.hold_stream, parameters, nullptr);
    }
  }
  gpu.hold_launching.store(false, std::memory_order_release);
  return 0;
}

void LetGo(GpuState& gpu) {
  if (gpu.hold_function.load() == nullptr) return;
  const HoldLock lock(gpu);
  gpu.hold_at_ns.store(0, std::memory_order_relaxed);
  EndHolds(gpu);
}

cuda::Function SuspendHold(GpuState& gpu) {
  LetGo(gpu);
  cuda::Function function = nullptr;
  {
    const HoldLock lock(gpu);
    function = gpu.hold_function.exchange(nullptr);
  }
  for (int i = 0; i < kLaunchPauses && gpu.hold_launching.load(std::memory_order_acquire); ++i) {
    const timespec pause{0, kLaunchPauseNs};
    nanosleep(&pause, nullptr);
  }
  return function;
}

void ResumeHold(GpuState& gpu, cuda::Function function) { gpu.hold_function.store(function); }

}  // namespace divvy::gate
