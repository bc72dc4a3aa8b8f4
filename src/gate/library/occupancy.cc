#include "gate/library/occupancy.h"

#include "gate/library/hold.h"
#include "gate/slices.h"

#include <sched.h>

namespace divvy::gate {
namespace {

// No stream has this handle.
cuda::Stream const kNoStream = reinterpret_cast<cuda::Stream>(~std::uintptr_t{0});

// Changes of state are rare next to launches and take some ten nanoseconds.
class Transition {
 public:
  explicit Transition(GpuState& gpu) : gpu_(gpu) {
    int spins = 0;
    while (gpu_.transition.exchange(1, std::memory_order_acquire) != 0) {
      if (++spins % 128 == 0) sched_yield();
    }
  }
  ~Transition() { gpu_.transition.store(0, std::memory_order_release); }
  Transition(const Transition&) = delete;
  Transition& operator=(const Transition&) = delete;

 private:
  GpuState& gpu_;
};

std::uint32_t Behind(const GpuState& gpu, const Worker& worker) {
  return worker.marks -
         pinned->marks[gpu.index][&worker - gpu.workers].passed.load(std::memory_order_relaxed);
}

bool LaunchedInto(const Worker& worker, cuda::Stream stream) {
  for (const std::atomic<cuda::Stream>& own : worker.streams) {
    if (own.load(std::memory_order_relaxed) == stream) return true;
  }
  return false;
}

void RememberStream(Worker& worker, cuda::Stream stream) {
  worker.streams[worker.next_stream++ % 4].store(stream, std::memory_order_relaxed);
}

std::uint32_t LevelOf(const GpuState& gpu, std::uint32_t behind) {
  const LatencyTuning tuning = TuningAt(gpu.slot->openness.load(std::memory_order_relaxed));
  if (gpu.abandoned) return kOpen;
  const LatencyCounts counts{
      .active = gpu.active.load(std::memory_order_relaxed),
      .waiting = gpu.waiting.load(std::memory_order_relaxed),
      .behind = gpu.heavy.load(std::memory_order_relaxed) != 0 ? UINT32_MAX : behind,
      .launched = gpu.launches.load(std::memory_order_relaxed) -
                  gpu.request_first_launch.load(std::memory_order_relaxed),
      .usual_launches = gpu.usual_launches.load(std::memory_order_relaxed) / 16,
      .resting = gpu.rest_until_ns.load(std::memory_order_relaxed) != 0,
      .early = gpu.early.load(std::memory_order_relaxed) != 0};
  return LevelFor(counts, tuning);
}

// A place that was given back, or taken away while the process was paused, is somebody else's.
bool HasPlace(const GpuState& gpu) { return !gpu.left && gpu.slot->pid == gpu.own_pid; }

// Puts the level that follows from the state on the board. Under the transition lock.
void Publish(GpuState& gpu, std::uint32_t behind, std::uint64_t now_ns) {
  Slot& slot = *gpu.slot;
  if (!HasPlace(gpu)) return;
  const std::uint32_t level = LevelOf(gpu, behind);
  if (level == slot.level.load(std::memory_order_relaxed)) return;
  const std::uint64_t since = slot.closed_since_ns.load(std::memory_order_relaxed);
  // Since when before what: a process that is stopped in between is found by it.
  if (level < kOpen && since == 0) slot.closed_since_ns.store(now_ns, std::memory_order_release);
  slot.level.store(level, std::memory_order_release);
  if (level == kOpen && since != 0) {
    slot.closed_since_ns.store(0, std::memory_order_relaxed);
    slot.closed_ns.fetch_add(now_ns - since, std::memory_order_relaxed);
  }
}

void Follow(std::atomic<std::uint64_t>& usual, std::uint64_t value) {
  const std::uint64_t before = usual.load(std::memory_order_relaxed);
  usual.store(before == 0 ? value : before - before / 8 + value / 8, std::memory_order_relaxed);
}

void Activate(GpuState& gpu, Worker& worker, std::uint64_t now_ns) {
  gpu.abandoned = false;
  if (worker.active.exchange(1, std::memory_order_relaxed) != 0) return;
  for (std::atomic<cuda::Stream>& stream : worker.streams)
    stream.store(kNoStream, std::memory_order_relaxed);
  if (gpu.active.fetch_add(1, std::memory_order_relaxed) == 0) {
    gpu.request_start_ns.store(now_ns, std::memory_order_relaxed);
    gpu.in_a_row = gpu.rest_until_ns.load(std::memory_order_relaxed) != 0;
    gpu.row_held = IsHeld(gpu);
    gpu.bears_hold.store(false, std::memory_order_relaxed);
    gpu.waits = 0;
    gpu.request_first_launch.store(gpu.launches.load(std::memory_order_relaxed),
                                   std::memory_order_relaxed);
  }
}

void StopWaiting(GpuState& gpu, Worker& worker) {
  if (worker.waiting.exchange(0, std::memory_order_relaxed) == 0) return;
  if (gpu.waiting.fetch_sub(1, std::memory_order_relaxed) != 1) return;
  gpu.open_at_ns.store(0, std::memory_order_relaxed);
  gpu.early.store(0, std::memory_order_relaxed);
}

// True if the keeper is to be rung: the gate is to open before the wait ends.
bool StartWaiting(GpuState& gpu, Worker& worker, std::uint64_t now_ns) {
  if (worker.waiting.exchange(1, std::memory_order_relaxed) != 0) return false;
  if (gpu.waiting.fetch_add(1, std::memory_order_relaxed) != 0) return false;
  gpu.abandoned = false;
  gpu.wait_start_ns.store(now_ns, std::memory_order_relaxed);
  const LatencyTuning tuning = TuningAt(gpu.slot->openness.load(std::memory_order_relaxed));
  const std::uint64_t closed = ClosedNs(tuning, gpu.usual_wait_ns.load(std::memory_order_relaxed));
  gpu.open_at_ns.store(closed == 0 ? 0 : now_ns + closed, std::memory_order_relaxed);
  return closed != 0;
}

void Deactivate(GpuState& gpu, Worker& worker) {
  if (worker.in_request != 0) return;  // it said itself when its request ends
  if (worker.active.exchange(0, std::memory_order_relaxed) == 0) return;
  gpu.active.fetch_sub(1, std::memory_order_relaxed);
}

void RecordRequest(GpuState& gpu, std::uint64_t ns) {
  gpu.times.Add(ns);
  const std::uint64_t slo = gpu.slot->job.slo_ns;
  if (slo != 0 && ns > slo) gpu.slot->late.fetch_add(1, std::memory_order_relaxed);
}

// One request of another kind, among many, changes nothing.
void TellWhetherStepwise(GpuState& gpu, std::uint64_t launched, std::uint64_t took_ns) {
  constexpr std::uint32_t kMost = 8;
  std::uint32_t& count = gpu.stepwise_requests;
  if (launched > kStepwiseLaunches) {
    count += count < kMost ? 1 : 0;
    gpu.stepwise_ns = MeanNs(gpu.stepwise_ns, took_ns);
  } else {
    count -= count > 0 ? 1 : 0;
  }
  if (!HasPlace(gpu)) return;
  std::atomic<std::uint32_t>& told = gpu.slot->stepwise_us;
  const std::uint32_t before = told.load(std::memory_order_relaxed);
  const std::uint32_t now = count > kMost / 2 ? StepwiseUs(before, gpu.stepwise_ns) : 0;
  if (now != before) told.store(now, std::memory_order_relaxed);
}

// The last active thread is done: the request is over, if the program does not mark its requests
// itself.
void BecomeIdle(GpuState& gpu, std::uint64_t now_ns) {
  gpu.heavy.store(0, std::memory_order_relaxed);
  gpu.abandoned = false;
  // Threads that polled for somebody else's work would otherwise wait for ever.
  for (Worker& worker : gpu.workers) StopWaiting(gpu, worker);
  const std::uint64_t took = now_ns - gpu.request_start_ns.load(std::memory_order_relaxed);
  if (gpu.slot->marked.load(std::memory_order_relaxed) == 0) RecordRequest(gpu, took);
  const std::uint64_t usual = UsualNs(gpu.usual_request_ns.load(std::memory_order_relaxed), took);
  gpu.usual_request_ns.store(usual, std::memory_order_relaxed);
  const std::uint64_t launched = gpu.launches.load(std::memory_order_relaxed) -
                                 gpu.request_first_launch.load(std::memory_order_relaxed) + 1;
  const std::uint64_t usually = gpu.usual_launches.load(std::memory_order_relaxed);
  gpu.usual_launches.store(usually == 0 ? launched * 16 : usually - usually / 16 + launched,
                           std::memory_order_relaxed);
  if (gpu.in_a_row) {
    gpu.hold_trials.Add(gpu.row_held, took);
  } else {
    gpu.hold_trials.AddBearer(gpu.bears_hold.load(std::memory_order_relaxed), took);
  }
  gpu.hold_at_ns.store(0, std::memory_order_relaxed);
  // A request may wait several times, and at each end of these for a slice.
  const std::uint64_t waits = gpu.waits == 0 ? 1 : gpu.waits;
  TellWhetherStepwise(gpu, launched / waits, took / waits);
  const LatencyTuning tuning = TuningAt(gpu.slot->openness.load(std::memory_order_relaxed));
  const std::uint32_t rest =
      RestNs(tuning, usual, gpu.slot->apart.load(std::memory_order_relaxed) != 0);
  gpu.rest_until_ns.store(rest == 0 ? 0 : now_ns + rest, std::memory_order_relaxed);
}

// The driver has taken a graph, or has not.
void Submitted(GpuState& gpu, Worker& worker, bool submitted, std::uint64_t now) {
  worker.submitting.store(0, std::memory_order_relaxed);
  if (submitted) {
    gpu.heavy.store(1, std::memory_order_relaxed);
    gpu.abandoned = false;  // Submitting may have taken longer than a job that has given up.
  } else if (gpu.active.load(std::memory_order_relaxed) == 1 &&
             worker.last_launch.load(std::memory_order_relaxed) ==
                 gpu.request_first_launch.load(std::memory_order_relaxed)) {
    // There is nothing else to wait for.
    gpu.heavy.store(0, std::memory_order_relaxed);
    Deactivate(gpu, worker);
  }
  Publish(gpu, Behind(gpu, worker), now);
}

}  // namespace

void BeforeLaunch(GpuState& gpu, cuda::Stream stream, bool heavy) {
  Worker* worker = ThisWorker(gpu);
  if (worker == nullptr) return;
  const std::uint64_t number = gpu.launches.fetch_add(1, std::memory_order_relaxed) + 1;
  worker->last_launch.store(number, std::memory_order_relaxed);
  worker->stream.store(stream, std::memory_order_relaxed);
  const bool new_stream = !LaunchedInto(*worker, stream);
  const bool starts = worker->active.load(std::memory_order_relaxed) == 0;
  const bool was_polling = worker->waiting.load(std::memory_order_relaxed) != 0;
  if (!starts && new_stream) RememberStream(*worker, stream);
  if (!starts && !heavy && !was_polling && !gpu.abandoned) {
    // On the way of every launch: only a change of level is worth a lock.
    const std::uint32_t behind = Behind(gpu, *worker);
    if (LevelOf(gpu, behind) == gpu.slot->level.load(std::memory_order_relaxed)) return;
    const Transition transition(gpu);
    Publish(gpu, behind, NowNs());
    return;
  }
  const std::uint64_t now = NowNs();
  const Transition transition(gpu);
  // The next of several requests in a row finds the gate closed, and it stays so.
  const bool rests = gpu.rest_until_ns.load(std::memory_order_relaxed) != 0;
  if (heavy && (rests || !TuningAt(gpu.slot->openness.load(std::memory_order_relaxed)).closes_late))
    gpu.heavy.store(1, std::memory_order_relaxed);
  StopWaiting(gpu, *worker);
  Activate(gpu, *worker, now);
  if (starts) RememberStream(*worker, stream);
  if (heavy) worker->submitting.store(1, std::memory_order_relaxed);
  Publish(gpu, Behind(gpu, *worker), now);
}

void AfterGraph(GpuState& gpu, bool submitted) {
  Worker* worker = ThisWorker(gpu);
  if (worker == nullptr) return;
  const std::uint64_t now = NowNs();
  bool ring = false;
  {
    const Transition transition(gpu);
    // Not before it was submitted: the GPU would be given away.
    ring = submitted && PlanHold(gpu, now);
    Submitted(gpu, *worker, submitted, now);
  }
  if (ring) RingKeeper();
}

void AfterLaunch(const Driver& driver, GpuState& gpu, cuda::Stream stream) {
  if (IsHeld(gpu)) LetGo(gpu);
  Worker* worker = ThisWorker(gpu);
  if (worker == nullptr || gpu.marks_on_gpu == 0 ||
      process.captures.load(std::memory_order_relaxed) != 0)
    return;
  if (++worker->since_mark < kLaunchesPerMark) return;
  worker->since_mark = 0;
  const cuda::DevicePointer word =
      gpu.marks_on_gpu + static_cast<std::size_t>(worker - gpu.workers) * sizeof(ProgressMark);
  if (driver.cuStreamWriteValue32_v2(stream, word, worker->marks + 1, 0) == cuda::kSuccess)
    ++worker->marks;
}

Waiting::Waiting(GpuState* gpu) : gpu_(gpu) {
  if (gpu_ == nullptr || gpu_->active.load(std::memory_order_relaxed) == 0) {
    gpu_ = nullptr;
    return;
  }
  launches_ = gpu_->launches.load(std::memory_order_relaxed);
  Worker* worker = ThisWorker(*gpu_);
  if (worker == nullptr) {
    gpu_ = nullptr;
    return;
  }
  const std::uint64_t now = NowNs();
  bool ring = false;
  {
    const Transition transition(*gpu_);
    ring = StartWaiting(*gpu_, *worker, now);
    Publish(*gpu_, 0, now);
  }
  if (ring) RingKeeper();
}

void Waiting::Over() { End({}); }

void Waiting::StreamDone(cuda::Stream stream) {
  End({.anything = true, .stream = stream, .launch = launches_});
}

void Waiting::EventDone(cuda::Stream stream, std::uint64_t launch) {
  End({.anything = true, .stream = stream, .launch = launch});
}

void Waiting::ContextDone() { End({.anything = true, .whole_context = true, .launch = launches_}); }

void Waiting::End(const Cover& cover) {
  if (gpu_ == nullptr) return;
  Worker* own = ThisWorker(*gpu_);
  const std::uint64_t now = NowNs();
  bool rests = false;
  {
    const Transition transition(*gpu_);
    const std::uint64_t waited_since = gpu_->wait_start_ns.load(std::memory_order_relaxed);
    StopWaiting(*gpu_, *own);
    const bool was_active = gpu_->active.load(std::memory_order_relaxed) != 0;
    const std::uint64_t launched = gpu_->launches.load(std::memory_order_relaxed);
    if (was_active && cover.anything && (gpu_->waits == 0 || launched != gpu_->launches_waited)) {
      ++gpu_->waits;
      gpu_->launches_waited = launched;
    }
    for (Worker& worker : gpu_->workers) {
      if (!cover.anything || worker.active.load(std::memory_order_relaxed) == 0 ||
          worker.submitting.load(std::memory_order_relaxed) != 0 ||
          worker.last_launch.load(std::memory_order_relaxed) > cover.launch) {
        continue;
      }
      const bool its_stream = &worker == own
                                  ? LaunchedInto(worker, cover.stream)
                                  : worker.stream.load(std::memory_order_relaxed) == cover.stream;
      if (!cover.whole_context && !its_stream) continue;
      StopWaiting(*gpu_, worker);
      Deactivate(*gpu_, worker);
    }
    if (was_active && gpu_->active.load(std::memory_order_relaxed) == 0) {
      Follow(gpu_->usual_wait_ns, now - waited_since);
      BecomeIdle(*gpu_, now);
      rests = gpu_->rest_until_ns.load(std::memory_order_relaxed) != 0;
    }
    Publish(*gpu_, own->active.load(std::memory_order_relaxed) != 0 ? Behind(*gpu_, *own) : 0, now);
  }
  if (rests) RingKeeper();
}

void Polled(GpuState& gpu) {
  // It stays waiting until it launches again, finds its work done, or nobody has any under way.
  const Waiting waiting(&gpu);
}

void StopPublishing(GpuState& gpu) {
  const Transition transition(gpu);
  gpu.left = true;
}

void Finished(GpuState& gpu, Worker& worker, std::uint64_t launch) {
  const std::uint64_t now = NowNs();
  bool rests = false;
  {
    const Transition transition(gpu);
    if (worker.last_launch.load(std::memory_order_relaxed) > launch ||
        worker.active.load(std::memory_order_relaxed) == 0)
      return;
    StopWaiting(gpu, worker);
    Deactivate(gpu, worker);
    if (gpu.active.load(std::memory_order_relaxed) == 0) {
      BecomeIdle(gpu, now);
      rests = gpu.rest_until_ns.load(std::memory_order_relaxed) != 0;
    }
    Publish(gpu, 0, now);
  }
  if (rests) RingKeeper();
}

void Abandon(GpuState& gpu, Worker& worker) {
  const Transition transition(gpu);
  worker.in_request = 0;
  StopWaiting(gpu, worker);
  Deactivate(gpu, worker);
  if (gpu.active.load(std::memory_order_relaxed) == 0)
    gpu.heavy.store(0, std::memory_order_relaxed);
  Publish(gpu, 0, NowNs());
}

void BeginRequest(GpuState& gpu, std::uint64_t arrival_ns) {
  Worker* worker = ThisWorker(gpu);
  if (worker == nullptr) return;
  const std::uint64_t now = NowNs();
  const Transition transition(gpu);
  gpu.slot->marked.store(1, std::memory_order_relaxed);
  worker->in_request = 1;
  worker->request_start_ns = arrival_ns == 0 || arrival_ns > now ? now : arrival_ns;
  Activate(gpu, *worker, now);
  Publish(gpu, 0, now);
}

void EndRequest(GpuState& gpu) {
  Worker* worker = ThisWorker(gpu);
  if (worker == nullptr || worker->in_request == 0) return;
  const std::uint64_t now = NowNs();
  bool rests = false;
  {
    const Transition transition(gpu);
    worker->in_request = 0;
    RecordRequest(gpu, now - worker->request_start_ns);
    StopWaiting(gpu, *worker);
    Deactivate(gpu, *worker);
    if (gpu.active.load(std::memory_order_relaxed) == 0) {
      BecomeIdle(gpu, now);
      rests = gpu.rest_until_ns.load(std::memory_order_relaxed) != 0;
    }
    Publish(gpu, 0, now);
  }
  if (rests) RingKeeper();
}

std::uint64_t DoWhatIsDue(GpuState& gpu, std::uint64_t now_ns) {
  const std::uint64_t rest = gpu.rest_until_ns.load(std::memory_order_acquire);
  const std::uint64_t open_at = gpu.open_at_ns.load(std::memory_order_acquire);
  const bool rested = rest != 0 && now_ns >= rest;
  const bool opens = open_at != 0 && now_ns >= open_at;
  if (rested || opens) {
    const Transition transition(gpu);
    // Only if it is still the same rest and the same wait.
    if (rested && gpu.rest_until_ns.load(std::memory_order_relaxed) == rest)
      gpu.rest_until_ns.store(0, std::memory_order_relaxed);
    if (opens && gpu.open_at_ns.load(std::memory_order_relaxed) == open_at) {
      gpu.open_at_ns.store(0, std::memory_order_relaxed);
      gpu.early.store(1, std::memory_order_relaxed);
    }
    // The next request, if it has begun, lets go when it is submitted.
    if (rested && gpu.active.load(std::memory_order_relaxed) == 0) LetGo(gpu);
    Publish(gpu, 0, now_ns);
    return 0;
  }
  if (rest == 0) return open_at;
  return open_at == 0 || rest < open_at ? rest : open_at;
}

void OpenIfAbandoned(GpuState& gpu, std::uint64_t now_ns) {
  if (gpu.active.load(std::memory_order_relaxed) == 0 ||
      gpu.waiting.load(std::memory_order_relaxed) != 0)
    return;
  const Transition transition(gpu);
  const std::uint64_t launched = gpu.launches.load(std::memory_order_relaxed);
  if (launched != gpu.launches_seen) {
    gpu.launches_seen = launched;
    gpu.launches_seen_ns = now_ns;
    return;
  }
  if (now_ns < gpu.launches_seen_ns + kAbandonedNs ||
      gpu.waiting.load(std::memory_order_relaxed) != 0)
    return;
  for (const Worker& worker : gpu.workers) {
    if (worker.in_request != 0) return;  // it says itself when it is done
  }
  gpu.abandoned = true;
  Publish(gpu, 0, now_ns);
}

}  // namespace divvy::gate
