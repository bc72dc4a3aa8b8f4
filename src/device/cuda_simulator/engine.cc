#include "device/cuda_simulator/engine.h"

#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "device/cuda_simulator/thread_state.h"

namespace divvy::device::cuda_simulator {
namespace {

// What a stream holds before launches wait, about as many as the driver takes.
constexpr std::size_t kFull = 1024;
// Who waits for SMs or a turn asks again within Machine::kPatience; early, to see who died.
constexpr Nanos kAskAgain = kMillisecond;

// A thread that takes none of the program's signals.
template <typename Body>
void StartThread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_setname_np(thread.native_handle(), name);
  thread.detach();
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

Engine::Engine(std::mutex& mutex, Machine& machine, AddressSpace& memory, Stats& stats)
    : mutex_(mutex), machine_(machine), memory_(memory), stats_(stats) {
  StartThread("cuda-sim", [this] { Run(); });
}

void Engine::Add(const std::shared_ptr<StreamState>& stream) {
  const auto place = std::ranges::upper_bound(streams_, stream->priority, {},
                                              [](const auto& other) { return other->priority; });
  streams_.insert(place, stream);
}

// The legacy default stream waits for all blocking streams of its context, and they for it.
void Engine::AddDependencies(const StreamState& stream, Operation& operation) const {
  if (!stream.blocking()) return;
  if (!stream.legacy) {
    const auto& legacy = stream.context->legacy;
    if (legacy && !legacy->queue.empty()) operation.after.push_back({legacy, legacy->issued});
    return;
  }
  for (const auto& other : streams_) {
    if (other.get() == &stream || other->context != stream.context) continue;
    if (!other->blocking() || other->queue.empty()) continue;
    operation.after.push_back({other, other->issued});
  }
}

void Engine::Enqueue(std::unique_lock<std::mutex>& lock, const std::shared_ptr<StreamState>& stream,
                     std::vector<Work> work) {
  if (stream->queue.size() >= kFull) {
    ++stats_.launches_held;
    ++waiting_;
    progress_.wait(lock, [&] { return stream->queue.size() < kFull; });
    --waiting_;
  }
  const bool idle = stream->queue.empty();
  const Nanos now = Now();
  for (Work& each : work) {
    Operation& operation = stream->queue.emplace_back();
    operation.work = std::move(each);
    operation.issued = now;
    AddDependencies(*stream, operation);
    ++stream->issued;
  }
  stats_.max_queue = std::max(stats_.max_queue, static_cast<std::uint64_t>(stream->queue.size()));
  // Otherwise the engine comes to it by itself.
  if (idle) machine_.Ring();
}

void Engine::AwaitTicket(std::unique_lock<std::mutex>& lock,
                         const std::shared_ptr<StreamState>& stream, std::uint64_t ticket) {
  ++waiting_;
  progress_.wait(lock, [&] { return stream->completed >= ticket; });
  --waiting_;
}

void Engine::AwaitRecord(std::unique_lock<std::mutex>& lock,
                         const std::shared_ptr<EventRecord>& record, const ContextState& context) {
  ++waiting_;
  progress_.wait(lock, [&] { return record->done || context.error != cuda::kSuccess; });
  --waiting_;
}

void Engine::AwaitContext(std::unique_lock<std::mutex>& lock, const ContextState& context) {
  std::vector<Dependency> all;
  for (const auto& stream : streams_) {
    if (stream->context.get() == &context) all.push_back({stream, stream->issued});
  }
  for (const Dependency& each : all) AwaitTicket(lock, each.stream, each.ticket);
}

bool Engine::IsIdle(const StreamState& stream) const {
  if (!stream.queue.empty()) return false;
  if (!stream.legacy) return true;
  // What is in front of the legacy stream's next operation counts as its own.
  return std::ranges::none_of(streams_, [&](const auto& other) {
    return other->context == stream.context && other->blocking() && !other->queue.empty();
  });
}

void Engine::Drop(ContextState& context, cuda::Result error) {
  if (context.error == cuda::kSuccess) context.error = error;
  for (const auto& stream : streams_) {
    if (stream->context.get() == &context) Clear(*stream);
  }
  progress_.notify_all();
}

void Engine::Stop() {
  stopped_ = true;
  machine_.Ring();
}

void Engine::Clear(StreamState& stream) {
  for (Operation& operation : stream.queue) {
    if (auto* run = std::get_if<KernelRun>(&operation.work)) EndRun(*run, Now());
    if (auto* mark = std::get_if<EventMark>(&operation.work)) {
      *mark->record = {.done = true, .time = Now()};
    }
  }
  stream.queue.clear();
  stream.completed = stream.issued;
}

void Engine::Run() {
  // The kernel may delay timers by 50 us to save power; our times are of that size.
  prctl(PR_SET_TIMERSLACK, 1'000);
  std::unique_lock lock(mutex_);
  while (!stopped_) {
    const std::uint32_t bell = machine_.ReadBell();
    const Nanos wake = Advance(Now());
    if (std::exchange(advanced_, false) && waiting_ > 0) progress_.notify_all();
    lock.unlock();
    machine_.WaitForBell(bell, wake);
    lock.lock();
  }
}

Nanos Engine::Advance(Nanos now) {
  turn_.fill(std::nullopt);
  Nanos wake = kNever;
  // One stream may wait for another: as long as one gets on, others may.
  for (bool progress = true; progress;) {
    progress = false;
    wake = kNever;
    wants_turn_.fill(false);
    for (const auto& stream : streams_) progress |= AdvanceStream(*stream, now, wake);
    advanced_ |= progress;
  }
  for (int gpu = 0; gpu < kMaxGpus; ++gpu) {
    if (in_line_[gpu] && !wants_turn_[gpu]) {
      machine_.EndTurn(gpu);
      in_line_[gpu] = false;
    }
  }
  std::erase_if(streams_,
                [](const auto& stream) { return stream->destroyed && stream->queue.empty(); });
  return wake;
}

bool Engine::AdvanceStream(StreamState& stream, Nanos now, Nanos& wake) {
  bool progress = false;
  while (!stream.queue.empty()) {
    const Progress step = Step(stream, stream.queue.front(), now);
    if (stream.context->error != cuda::kSuccess) {
      Clear(stream);
      return true;
    }
    if (!step.over) {
      wake = std::min(wake, step.time);
      break;
    }
    stream.time = std::max(stream.time, step.time);
    stream.queue.pop_front();
    ++stream.completed;
    progress = true;
  }
  return progress;
}

Engine::Progress Engine::Step(StreamState& stream, Operation& operation, Nanos now) {
  Nanos ready = std::max(stream.time, operation.issued);
  for (const Dependency& each : operation.after) {
    // It gets on in this same loop, which comes back here after that.
    if (each.stream->completed < each.ticket) return {false, kNever};
    ready = std::max(ready, std::min(each.stream->time, now));
  }
  Work& work = operation.work;
  if (auto* run = std::get_if<KernelRun>(&work)) {
    const Progress step = machine_.spec().sharing == Sharing::kMps ? Do(*run, ready, now)
                                                                   : DoInTurn(*run, ready, now);
    const bool holds = run->is_hold && run->granted > 0;
    return holds ? Watch(*run, step, now, *stream.context) : step;
  }
  if (auto* wait = std::get_if<ValueWait>(&work)) return Do(*wait, ready, now, *stream.context);
  if (auto* write = std::get_if<ValueWrite>(&work)) return Do(*write, ready, *stream.context);
  if (auto* call = std::get_if<HostCall>(&work)) return Do(*call, ready, now);
  if (auto* copy = std::get_if<Copy>(&work)) return Do(*copy, ready, now);
  if (auto* await = std::get_if<EventAwait>(&work)) {
    if (!await->record->done) return {false, kNever};
    return {true, std::max(ready, await->record->time)};
  }
  if (auto* mark = std::get_if<EventMark>(&work)) {
    ++stats_.event_records;
    *mark->record = {.done = true, .time = ready};
  } else if (auto* fill = std::get_if<Fill>(&work)) {
    Write(*fill);
  } else if (auto* release = std::get_if<Release>(&work)) {
    const Range* range = memory_.FindBase(release->address);
    if (range != nullptr) {
      machine_.GiveMemory(range->context->gpu, range->charged);
      memory_.Free(release->address);
    }
  }
  return {true, ready};
}

bool Engine::Start(KernelRun& run, Nanos ready, Nanos now) {
  if (run.is_hold && run.end != 0) run.work = std::max<Nanos>(0, run.end - now);
  const Demand demand{run.wanted, run.work, ready, run.waiting_since};
  const auto grant = machine_.Begin(run.gpu, demand, now);
  if (!grant) {
    if (run.waiting_since == 0) run.waiting_since = now;
    return false;
  }
  if (run.waiting_since != 0) stats_.sm_wait += now - run.waiting_since;
  run.granted = grant->granted;
  run.end = grant->end;
  return true;
}

void Engine::EndRun(KernelRun& run, Nanos now) {
  if (run.granted == 0) return;
  machine_.End(run.gpu, run.granted, now);
  run.granted = 0;
}

Engine::Progress Engine::Do(KernelRun& run, Nanos ready, Nanos now) {
  if (run.granted == 0 && !Start(run, ready, now)) return {false, now + kAskAgain};
  if (run.end > now) return {false, run.end};
  EndRun(run, now);
  ++stats_.kernels;
  return {true, run.end};
}

// The same where processes take turns: a kernel also stops with its turn, and goes on in the next.
Engine::Progress Engine::DoInTurn(KernelRun& run, Nanos ready, Nanos now) {
  in_line_[run.gpu] = true;
  auto& turn = turn_[run.gpu];
  if (!turn) turn = machine_.HoldTurn(run.gpu, now);
  if (run.granted > 0) {
    // The turn may have been over before this thread came to see it.
    const Nanos ran_until = turn->mine ? now : std::min(turn->ends, now);
    if (run.end <= ran_until) {
      EndRun(run, now);
      ++stats_.kernels;
      return {true, run.end};
    }
    if (!turn->mine) {
      run.work = (run.end - ran_until) * run.granted / run.wanted;
      EndRun(run, now);
      ++stats_.preemptions;
      run.waiting_since = now;
    }
  }
  wants_turn_[run.gpu] = true;
  if (!turn->mine) {
    if (run.waiting_since == 0) run.waiting_since = now;
    return {false, std::min(now + kAskAgain, turn->again)};
  }
  if (run.granted == 0 && !Start(run, ready, now)) return {false, now + kAskAgain};
  if (run.end <= now) return DoInTurn(run, ready, now);
  return {false, std::min(run.end, turn->again)};
}

Engine::Progress Engine::Do(HostCall& call, Nanos ready, Nanos now) {
  if (!call.returned) {
    ++stats_.host_calls;
    call.returned = std::make_shared<bool>(false);
    host_jobs_.push_back({call.function, call.returned});
    if (!std::exchange(host_thread_, true))
      StartThread("cuda-sim-host", [this] { RunHostCalls(); });
    host_work_.notify_one();
  }
  if (!*call.returned) return {false, kNever};
  return {true, std::max(ready, now)};
}

void Engine::RunHostCalls() {
  thread_state.in_host_function = true;
  std::unique_lock lock(mutex_);
  while (true) {
    host_work_.wait(lock, [this] { return !host_jobs_.empty(); });
    const HostJob job = std::move(host_jobs_.front());
    host_jobs_.pop_front();
    lock.unlock();
    job.function();
    lock.lock();
    *job.returned = true;
    machine_.Ring();
  }
}

}  // namespace divvy::device::cuda_simulator
