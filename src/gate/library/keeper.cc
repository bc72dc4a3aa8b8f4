// The gate's one thread in a process: ends rests and early closings, moves the openness, and sees
// that no gate stays closed for want of somebody to open it.

#include "gate/alone.h"
#include "gate/library/hold.h"
#include "gate/library/occupancy.h"
#include "gate/library/state.h"
#include "gate/library/time_slices.h"
#include "gate/slices.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include <climits>
#include <csignal>
#include <initializer_list>

namespace divvy::gate {
namespace {

constexpr std::uint64_t kRoundNs = 10'000'000;
// A closed gate is looked at after this long: is its owner alive?
constexpr std::uint64_t kSuspectNs = 20'000'000;
// An owner whose own keeper has not been seen for this long is stopped or starved.
constexpr std::uint64_t kStaleNs = 60'000'000;
// Nobody holds a gate closed for longer in one go.
constexpr std::uint64_t kLongestNs = 1'000'000'000;
constexpr std::uint64_t kReapNs = 1'000'000'000;
// The program's thread-local data comes out of every thread's stack, and may be large.
constexpr std::size_t kStackBytes = std::size_t{1024} * 1024;

void WaitForBell(std::uint32_t seen, std::uint64_t ns) {
  const timespec timeout{static_cast<time_t>(ns / 1'000'000'000U),
                         static_cast<long>(ns % 1'000'000'000U)};
  syscall(SYS_futex, &process.keeper_bell, FUTEX_WAIT_PRIVATE, seen, &timeout, nullptr, 0);
}

// Opens the gate of another job if it has no right or no life left to keep it closed.
void Judge(Board& board, Slot& slot, std::uint64_t now_ns) {
  // In this order: whoever closes it writes down since when before.
  const bool closed = slot.level.load(std::memory_order_acquire) < kOpen;
  const std::uint64_t since = slot.closed_since_ns.load(std::memory_order_acquire);
  const bool stale = now_ns > slot.heartbeat_ns.load(std::memory_order_relaxed) + kStaleNs;
  // Closed for nobody knows how long: its owner was stopped on its way to closing it, and the time
  // struck off meanwhile.
  const bool timeless = closed && since == 0;
  if (timeless ? !stale : since == 0 || now_ns < since + kSuspectNs) return;
  const bool gone = IsGone(slot);
  if (!gone && !stale && now_ns < since + kLongestNs) return;
  slot.closed_since_ns.store(0, std::memory_order_relaxed);
  if (slot.level.exchange(kOpen, std::memory_order_acq_rel) != kOpen)
    slot.rescued.fetch_add(1, std::memory_order_relaxed);
  // After that: somebody who is stopped may have the board's lock.
  if (gone) Reap(&board);
}

// A place that nobody has is open, whatever a dying thread wrote there last.
void LookAt(Board& board, Slot& slot, std::uint64_t now_ns) {
  if (slot.live.load(std::memory_order_acquire) != 0) {
    Judge(board, slot, now_ns);
  } else if (slot.level.load(std::memory_order_relaxed) != kOpen) {
    slot.level.store(kOpen, std::memory_order_release);
  }
}

void Publish(GpuState& gpu) {
  Slot& slot = *gpu.slot;
  slot.requests.store(gpu.times.Count(), std::memory_order_relaxed);
  slot.p50_ns.store(gpu.times.Quantile(500), std::memory_order_relaxed);
  slot.p99_ns.store(gpu.times.Quantile(990), std::memory_order_relaxed);
}

// Of all contexts of the process alike: which of them is on which GPU is not known.
void SetTurns() {
  std::uint32_t us = UINT32_MAX;
  bool several = false;
  for (const GpuState& gpu : process.gpus) {
    if (gpu.phase.load(std::memory_order_acquire) != kJoined) continue;
    const Board& board = *gpu.last_board.load(std::memory_order_acquire);
    const std::uint32_t wanted = WantedSliceUs(board);
    if (wanted < us) us = wanted;
    several = several || HasSeveralInTurns(board);
  }
  if (several || us == UINT32_MAX) us = kDriverSliceUs;
  const bool set = SetSlices(us);
  for (GpuState& gpu : process.gpus) {
    if (gpu.phase.load(std::memory_order_acquire) != kJoined) continue;
    // A place that was taken away while the process was paused is somebody else's.
    if (gpu.slot->pid != gpu.own_pid) continue;
    gpu.slot->slice_us.store(set ? us : 0, std::memory_order_relaxed);
    const Board& board = *gpu.last_board.load(std::memory_order_acquire);
    gpu.interruptible.store(IsInterruptible(board, gpu.slot_index, process.settings.served),
                            std::memory_order_relaxed);
  }
}

int GpusInUse() {
  int count = 0;
  for (const GpuState& gpu : process.gpus)
    count += gpu.phase.load(std::memory_order_acquire) == kJoined ? 1 : 0;
  return count;
}

// Charges that were learned beside others are right with a scale only; and nobody has one beside a
// job that cannot be measured, nor when it is left alone.
void KeepCharges(GpuState& gpu, const Board& board, AloneMeter& meter, std::uint64_t now_ns) {
  const std::uint32_t jobs = board.batch_jobs.load(std::memory_order_relaxed);
  // Of one that uses several GPUs nobody knows on which of them a kind was learned.
  if (jobs < 2 && gpu.jobs_seen > 1 && GpusInUse() == 1) process.costs.TimeAnew();
  const std::uint32_t scale = IsAnyUnmeasurable(board, now_ns) ? meter.TakeScale() : kUnscaled;
  if (scale != kUnscaled) process.costs.Rescale(scale);
  gpu.jobs_seen = jobs;
}

// Returns when the GPU is to be looked at again.
std::uint64_t MeasureAlone(GpuState& gpu, Board& board, AloneMeter& meter, std::uint64_t now_ns) {
  // What waits for another GPU is not told from what takes this one's time.
  const bool measurable = !gpu.unmeasurable.load(std::memory_order_relaxed) &&
                          !process.captured_collective.load(std::memory_order_relaxed) &&
                          GpusInUse() == 1;
  const std::uint64_t due = meter.Step(board, gpu.slot_index, measurable, now_ns);
  gpu.scale.store(meter.Scale(board, now_ns), std::memory_order_relaxed);
  return due;
}

void* Run(void*) {
  // Rests are a hundred microseconds long; the default slack of timers is 50.
  prctl(PR_SET_TIMERSLACK, 1UL);
  pthread_setname_np(pthread_self(), "divvy-gate");
  SloControl controls[kDevices];
  for (SloControl& control : controls) control = SloControl(process.settings.job.slo_ns);
  AloneMeter meters[kDevices];
  const bool latency = process.settings.job.job_class == JobClass::kLatency;
  const bool batch = process.settings.job.job_class == JobClass::kBatch;
  std::uint64_t next_round = 0;
  std::uint64_t next_reap = 0;
  for (;;) {
    const std::uint32_t bell = process.keeper_bell.load(std::memory_order_acquire);
    std::uint64_t now = NowNs();
    std::uint64_t wake = now + kRoundNs;
    const bool round = now >= next_round;
    const bool reap = round && now >= next_reap;
    for (GpuState& gpu : process.gpus) {
      Board* const board = gpu.last_board.load(std::memory_order_acquire);
      if (round && board != nullptr) EndAloneIfOverdue(*board, now);
      if (gpu.phase.load(std::memory_order_acquire) != kJoined) continue;
      if (latency) {
        for (const std::uint64_t due :
             {DoWhatIsDue(gpu, now), HoldIfDue(*RealDriver(), gpu, now)}) {
          if (due != 0 && due < wake) wake = due;
        }
      }
      if (batch) {
        KeepCharges(gpu, *board, meters[gpu.index], now);
        const std::uint64_t due = MeasureAlone(gpu, *board, meters[gpu.index], now);
        if (due != 0 && due < wake) wake = due;
      }
      if (!round) continue;
      gpu.slot->heartbeat_ns.store(now, std::memory_order_relaxed);
      for (Slot& slot : board->slots) LookAt(*board, slot, now);
      if (reap) Reap(board);
      if (!latency) continue;
      OpenIfAbandoned(gpu, now);
      Publish(gpu);
      if (process.settings.job.slo_ns != 0) {
        SloControl& control = controls[gpu.index];
        control.Step(gpu.times);
        gpu.slot->openness.store(control.Openness(), std::memory_order_relaxed);
      }
    }
    if (round && !latency) SetTurns();
    if (round) next_round = now + kRoundNs;
    if (reap) next_reap = now + kReapNs;
    now = NowNs();
    if (wake > now) WaitForBell(bell, wake - now);
  }
  return nullptr;
}

}  // namespace

void RingKeeper() {
  process.keeper_bell.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &process.keeper_bell, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

bool StartThread(void* (*run)(void*)) {
  // Signals belong to the program's own threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  pthread_t thread{};
  const bool started = pthread_create(&thread, &attributes, run, nullptr) == 0;
  pthread_attr_destroy(&attributes);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void StartKeeper() {
  std::uint32_t expected = 0;
  if (!process.keeper_runs.compare_exchange_strong(expected, 1) || StartThread(Run)) return;
  process.keeper_runs.store(0);
  Say("cannot start a thread: a dead job's gate may stay closed until it is reaped");
}

}  // namespace divvy::gate
