#include "gate/library/batch.h"

#include "gate/alone.h"
#include "gate/turns.h"

#include <time.h>

namespace divvy::gate {
namespace {

constexpr long kTurnPauseNs = 200'000;
constexpr std::uint32_t kRefusals = 3;  // in a row: the driver will not have it
// A wait costs the GPU 2.4 us.
constexpr std::uint32_t kFreeUs = 1'000;
constexpr int kHostPauses = 2'000;
constexpr long kHostPauseNs = 50'000;

std::uintptr_t HashOf(cuda::Stream stream) {
  const auto bits = reinterpret_cast<std::uintptr_t>(stream);
  return bits ^ bits >> 8 ^ bits >> 16;
}

StreamGauge& GaugeOf(GpuState& gpu, cuda::Stream stream) {
  return gpu.gauges[HashOf(stream) % kGauges];
}

// What is known of a kind that is new.
void Introduce(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
               cuda::Function function, Cost& cost) {
  const Described described = Describe(driver, gpu, shape, function);
  cost.fill.store(described.facts.fill, std::memory_order_relaxed);
  cost.exempt.store(described.facts.exempt, std::memory_order_relaxed);
  if (function == nullptr) return;
  const KnownOp* known = process.known.Find(OpKey(described.name, shape));
  if (known == nullptr) return;
  cost.ns.store(known->ns, std::memory_order_relaxed);
  cost.charged_ns.store(known->ns, std::memory_order_relaxed);
  cost.fill.store(known->fill, std::memory_order_relaxed);
}

// Whether the gate of a latency job is ours to wait at.
bool Holds(const GpuState& gpu, const Slot& slot) {
  return slot.live.load(std::memory_order_acquire) != 0 &&
         slot.job.job_class.load(std::memory_order_relaxed) == JobClass::kLatency &&
         (slot.apart.load(std::memory_order_relaxed) == 0 ||
          !gpu.interruptible.load(std::memory_order_relaxed));
}

std::uint64_t OnGpu(const GpuState& gpu, const std::atomic<std::uint32_t>& word) {
  const auto offset =
      reinterpret_cast<const char*>(&word) - reinterpret_cast<const char*>(gpu.board);
  return gpu.board_on_gpu + static_cast<std::uint64_t>(offset);
}

void WaitOnHost(const Driver& driver, GpuState& gpu, cuda::Stream stream, std::uint32_t job_class) {
  for (const Slot& slot : gpu.board->slots) {
    if (!Holds(gpu, slot)) continue;
    for (int i = 0; i < kHostPauses && slot.level.load(std::memory_order_acquire) < job_class;
         ++i) {
      const timespec pause{0, kHostPauseNs};
      nanosleep(&pause, nullptr);
    }
  }
  // No more than a few stretches between markers under way: what is launched cannot be called back.
  const std::uint32_t at = gpu.host_mark.fetch_add(1, std::memory_order_relaxed) % 4;
  driver.cuEventSynchronize(gpu.host_marks[(at + 2) % 4]);
  driver.cuEventRecord(gpu.host_marks[at], stream);
}

void PutMarker(const Driver& driver, GpuState& gpu, cuda::Stream stream, std::uint32_t job_class) {
  bool put = false;
  std::uint32_t least_openness = kNoProtection;
  if (gpu.mode.load(std::memory_order_relaxed) == GateMode::kHost) {
    const RelaxedCapture relaxed(driver);
    WaitOnHost(driver, gpu, stream, job_class);
    put = true;
  } else {
    for (int i = 0; i < kSlots; ++i) {
      const Slot& slot = gpu.board->slots[i];
      if (!Holds(gpu, slot)) continue;
      const std::uint32_t openness = slot.openness.load(std::memory_order_relaxed);
      if (openness >= kNoProtection) continue;
      if (openness < least_openness) least_openness = openness;
      if (driver.cuStreamWaitValue32_v2(stream, OnGpu(gpu, slot.level), job_class,
                                        cuda::kWaitValueGeq) != cuda::kSuccess) {
        // A stream that is no good fails the launch as well, and says nothing about others.
        if (gpu.refused.fetch_add(1, std::memory_order_relaxed) + 1 < kRefusals) return;
        gpu.mode.store(GateMode::kPass);
        gpu.slot->mode.store(static_cast<std::uint32_t>(GateMode::kPass),
                             std::memory_order_relaxed);
        Say("the driver refuses a wait in this program's stream: its kernels are no longer held "
            "back");
        return;
      }
      gpu.refused.store(0, std::memory_order_relaxed);
      put = true;
    }
  }
  gpu.interval_ns.store(MarkerIntervalNs(least_openness), std::memory_order_relaxed);
  if (put) gpu.slot->markers.fetch_add(1, std::memory_order_relaxed);
}

// Per-thread default streams have one handle.
cuda::Stream NameOf(cuda::Stream stream) {
  static thread_local char own;
  if (stream == nullptr) return cuda::LegacyStream();
  return stream == cuda::PerThreadStream() ? reinterpret_cast<cuda::Stream>(&own) : stream;
}

// Streams have tracks of their own, as far as there are any: marks of two on one would hide each
// other. One whose marks have all been passed is free for another stream.
int TrackOf(GpuState& gpu, cuda::Stream stream) {
  const cuda::Stream named = NameOf(stream);
  for (int i = 0; i < kTracks; ++i) {
    cuda::Stream taken = gpu.tracks[i].load(std::memory_order_relaxed);
    if (taken == nullptr && gpu.tracks[i].compare_exchange_strong(taken, named)) return i;
    if (taken == named) return i;
  }
  const int shared = static_cast<int>(HashOf(named) % kTracks);
  if (gpu.board->batch_jobs.load(std::memory_order_relaxed) < 2) return shared;
  for (int i = 0; i < kTracks; ++i) {
    cuda::Stream taken = gpu.tracks[i].load(std::memory_order_relaxed);
    if (UnderWayUs(gpu.slot->passed[i].load(std::memory_order_relaxed),
                   gpu.slot->submitted[i].load(std::memory_order_relaxed)) == 0 &&
        gpu.tracks[i].compare_exchange_strong(taken, named))
      return i;
  }
  gpu.unmeasurable.store(true, std::memory_order_relaxed);
  return shared;
}

// Behind what was launched so far, for other batch jobs to see when the GPU is done with it; and at
// times a wait, at which it stops while one of those is alone.
void MarkProgress(const Driver& driver, GpuState& gpu, cuda::Stream stream, int track,
                  std::uint32_t us) {
  if (gpu.board->batch_jobs.load(std::memory_order_relaxed) < 2 ||
      gpu.mode.load(std::memory_order_relaxed) != GateMode::kDevice)
    return;
  Slot& slot = *gpu.slot;
  const std::uint64_t passed = OnGpu(gpu, slot.passed[track]);
  const std::uint32_t at = slot.submitted[track].load(std::memory_order_relaxed) + us;
  std::uint32_t mark = PlainMark(at);
  std::atomic<std::uint32_t>& free_us = gpu.free_us[track];
  const auto real_us = static_cast<std::uint32_t>(
      std::uint64_t{us} * gpu.scale.load(std::memory_order_relaxed) / kUnscaled);
  // Without its keeper a job would wait for ever for one that is killed while it is alone.
  if (free_us.fetch_add(real_us, std::memory_order_relaxed) + real_us >= kFreeUs &&
      process.keeper_runs.load(std::memory_order_relaxed) != 0) {
    free_us.store(0, std::memory_order_relaxed);
    const RunBit own = RunBitOf(gpu.slot_index);
    driver.cuStreamWriteValue32_v2(stream, passed, MarkBeforeWait(at), 0);
    driver.cuStreamWaitValue32_v2(stream, OnGpu(gpu, gpu.board->may_run[own.word]), own.bit,
                                  cuda::kWaitValueAnd);
    mark = MarkBehindWait(at);
  }
  if (driver.cuStreamWriteValue32_v2(stream, passed, mark, 0) != cuda::kSuccess) return;
  const std::uint64_t now = NowNs();
  NoteMark(*gpu.board, gpu.slot_index, track, mark, now);
  slot.last_launch_ns.store(now, std::memory_order_relaxed);  // The calls may have taken long.
}

void Charge(GpuState& gpu, std::uint64_t predicted_ns, std::uint64_t now_ns) {
  const std::uint64_t ns = predicted_ns * gpu.scale.load(std::memory_order_relaxed) / kUnscaled;
  Slot& slot = *gpu.slot;
  CatchUp(*gpu.board, gpu.slot_index, now_ns);
  slot.gpu_ns.fetch_add(ns, std::memory_order_relaxed);
  slot.virtual_ns.fetch_add(VirtualNs(ns, slot.job.weight), std::memory_order_relaxed);
  slot.last_launch_ns.store(now_ns, std::memory_order_relaxed);
}

// Returns how many microseconds it accounts for, as predicted.
std::uint32_t TakeTurns(const Driver& driver, GpuState& gpu, int track) {
  ReadTimings(driver, gpu);
  const std::uint64_t predicted_ns = gpu.account_ns[track].exchange(0, std::memory_order_relaxed);
  std::uint64_t now = NowNs();
  Charge(gpu, predicted_ns, now);
  Slot& slot = *gpu.slot;
  const std::uint64_t end = now + LongestPauseNs(*gpu.board);
  bool paused = false;
  while (now < end && LeadsTooFar(*gpu.board, gpu.slot_index, now)) {
    const timespec pause{0, kTurnPauseNs};
    nanosleep(&pause, nullptr);
    now = NowNs();
    slot.last_launch_ns.store(now, std::memory_order_relaxed);
    paused = true;
  }
  if (paused) NotePause(slot);
  return static_cast<std::uint32_t>(predicted_ns / 1'000);
}

// What is never held back is charged, and does not wait for its turn.
void ChargeExempt(GpuState& gpu, std::uint32_t ns) {
  gpu.unmeasurable.store(true, std::memory_order_relaxed);
  if (gpu.exempt_ns.fetch_add(ns, std::memory_order_relaxed) + ns >= kMarkNs)
    Charge(gpu, gpu.exempt_ns.exchange(0, std::memory_order_relaxed), NowNs());
}

}  // namespace

BatchLaunch BeforeBatchLaunch(const Driver& driver, GpuState& gpu, const LaunchShape& shape,
                              cuda::Function function, cuda::Stream stream) {
  BatchLaunch launch{.stream = stream};
  bool fresh = false;
  Cost* known = process.costs.Find(KeyOf(shape), &fresh);
  if (known != nullptr && fresh) Introduce(driver, gpu, shape, function, *known);
  const Cost& cost = known != nullptr ? *known : process.unknown;
  const bool is_exempt = known != nullptr ? known->exempt.load(std::memory_order_relaxed) != 0
                                          : function != nullptr && IsCollective(driver, function);
  const std::uint32_t ns = ChargedNs(cost);
  if (is_exempt) {
    ChargeExempt(gpu, ns);
  } else {
    launch.track = TrackOf(gpu, stream);
    if (gpu.account_ns[launch.track].fetch_add(ns, std::memory_order_relaxed) + ns >= kMarkNs)
      launch.us = TakeTurns(driver, gpu, launch.track);
  }
  if (gpu.mode.load(std::memory_order_relaxed) != GateMode::kPass &&
      gpu.board->latency_jobs.load(std::memory_order_relaxed) != 0 &&
      (known != nullptr || !is_exempt)) {
    const Marking marking = Mark(GaugeOf(gpu, stream), gpu.spread, cost,
                                 gpu.interval_ns.load(std::memory_order_relaxed));
    if (marking.marker) PutMarker(driver, gpu, stream, marking.job_class);
  }
  if (known != nullptr && WantsSample(*known) &&
      process.captures.load(std::memory_order_relaxed) == 0)
    launch.sample = BeginSample(driver, gpu, {.cost = known, .stream = stream});
  return launch;
}

void AfterBatchLaunch(const Driver& driver, GpuState& gpu, const BatchLaunch& launch) {
  if (launch.sample != nullptr) EndSample(driver, gpu, *launch.sample);
  if (launch.us != 0) MarkProgress(driver, gpu, launch.stream, launch.track, launch.us);
}

}  // namespace divvy::gate
