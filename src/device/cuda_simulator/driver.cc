#include "device/cuda_simulator/driver.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "device/cuda_simulator/identity.h"
#include "device/cuda_simulator/symbols.h"
#include "device/cuda_simulator/thread_state.h"
#include "device/cuda_simulator/words.h"

namespace divvy::device::cuda_simulator {
namespace {

std::string_view Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void Sleep(Nanos span) {
  const timespec time{.tv_sec = span / 1'000'000'000, .tv_nsec = span % 1'000'000'000};
  nanosleep(&time, nullptr);
}

// Runs when the process exits, after its atexit functions.
__attribute__((destructor)) void AtExit() { Driver::OfProcess().End(); }

}  // namespace

Driver& Driver::OfProcess() {
  static Driver* const driver = new Driver;
  return *driver;
}

Driver::Driver() {
  auto spec = ParseSpec(Environment("DIVVY_CUDA_SIM_SPEC"));
  if (spec) spec_ = *spec;
  if (!spec) problem_ = "DIVVY_CUDA_SIM_SPEC: " + spec.error().message;
  version = spec_.driver;
  auto faults = FaultRules::Parse(Environment("DIVVY_CUDA_SIM_FAULTS"));
  if (faults) faults_ = std::move(*faults);
  if (!faults) problem_ = "DIVVY_CUDA_SIM_FAULTS: " + faults.error().message;
  for (const std::string& name : faults_.Functions()) {
    if (!IsSymbol(name)) problem_ = "DIVVY_CUDA_SIM_FAULTS: there is no function '" + name + "'";
  }
  has_faults_ = !faults_.empty();
}

cuda::Result Driver::Initialise() {
  if (forked_.load() || ended_.load()) return Readiness();
  const std::lock_guard lock(mutex);
  if (initialised_.load()) return cuda::kSuccess;
  const cuda::Result result = Start();
  if (!problem_.empty()) {
    std::fprintf(stderr, "simulated libcuda.so.1: %s\n", problem_.c_str());
    return cuda::kNoDevice;
  }
  return result;
}

cuda::Result Driver::Start() {
  if (!problem_.empty()) return cuda::kNoDevice;
  auto opened = Machine::Open(std::string(Environment("DIVVY_CUDA_SIM")), spec_);
  if (!opened) {
    problem_ = "DIVVY_CUDA_SIM: " + opened.error().message;
    return cuda::kNoDevice;
  }
  const auto percentage = ToNumber<int>(Environment("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"));
  if (!(*opened)->Join(Environment("CUDA_MPS_CLIENT_PRIORITY") == "1",
                       std::clamp(percentage.value_or(100), 1, 100))) {
    return cuda::kMpsServerNotReady;
  }
  machine = std::move(*opened);
  ReadVisibleDevices();
  if (devices.empty()) {
    machine.reset();
    return cuda::kNoDevice;
  }
  primary.resize(devices.size());
  primary_uses.resize(devices.size());
  has_channels.resize(devices.size());
  engine = std::make_unique<Engine>(mutex, *machine, memory, stats);
  pthread_atfork(nullptr, nullptr, [] { OfProcess().AfterFork(); });
  initialised_.store(true);
  return cuda::kSuccess;
}

// As the driver does: the list ends at the first entry that names no GPU.
void Driver::ReadVisibleDevices() {
  const char* list = std::getenv("CUDA_VISIBLE_DEVICES");
  const int gpus = machine->spec().gpus;
  if (list == nullptr) {
    for (int gpu = 0; gpu < gpus; ++gpu) devices.push_back(gpu);
    return;
  }
  std::string_view text = list;
  for (auto word = TakeWord(text, ","); !word.empty(); word = TakeWord(text, ",")) {
    auto gpu = ToNumber<int>(word);
    for (int i = 0; i < gpus; ++i) {
      if (word == UuidText(i)) gpu = i;
    }
    if (!gpu || *gpu < 0 || *gpu >= gpus) return;
    devices.push_back(*gpu);
  }
}

cuda::Result Driver::Readiness() const {
  if (forked_.load(std::memory_order_relaxed)) return cuda::kNotInitialized;
  if (ended_.load(std::memory_order_relaxed)) return cuda::kDeinitialized;
  if (!initialised_.load(std::memory_order_acquire)) return cuda::kNotInitialized;
  if (thread_state.in_host_function) return cuda::kNotPermitted;
  return cuda::kSuccess;
}

cuda::Result Driver::ApplyFaults(const char* function) {
  if (!has_faults_ || forked_.load()) return cuda::kSuccess;
  FaultEffect effect;
  {
    const std::lock_guard lock(fault_mutex_);
    effect = faults_.Apply(function);
  }
  if (effect.delay > 0) Sleep(effect.delay);
  if (effect.kill) kill(getpid(), SIGKILL);
  if (!effect.error) return cuda::kSuccess;
  const std::lock_guard lock(mutex);
  ++stats.faults;
  if (effect.sticky && engine) {
    if (const auto context = CurrentContext()) engine->Drop(*context, *effect.error);
  }
  return *effect.error;
}

std::shared_ptr<ContextState> Driver::CurrentContext() const {
  const ThreadState& thread = thread_state;
  return thread.depth == 0 ? nullptr : contexts.Find(thread.contexts[thread.depth - 1]);
}

std::shared_ptr<ContextState> Driver::MakeContext(int device, unsigned flags, bool is_primary) {
  auto context = std::make_shared<ContextState>();
  context->device = device;
  context->gpu = devices[device];
  context->flags = flags;
  context->primary = is_primary;
  context->handle = contexts.Add(context);
  machine->AddContext(context->gpu);
  context->legacy = MakeStream(context, 0, 0);
  context->legacy->legacy = true;
  return context;
}

void Driver::DestroyContext(const std::shared_ptr<ContextState>& context) {
  engine->Drop(*context, kContextIsDestroyed);
  contexts.Remove(context->handle);
  streams.RemoveIf([&](StreamState& stream) {
    if (stream.context != context) return false;
    if (stream.capture) EndCapture(stream.capture);
    stream.destroyed = true;
    return true;
  });
  events.RemoveIf([&](const EventState& event) { return event.context == context; });
  modules.RemoveIf([&](const ModuleState& module) { return module.context == context; });
  Refund(context->gpu, memory.FreeAll(*context));
  machine->RemoveContext(context->gpu);
  context->legacy.reset();
}

std::shared_ptr<StreamState> Driver::MakeStream(const std::shared_ptr<ContextState>& context,
                                                unsigned flags, int priority) {
  auto stream = std::make_shared<StreamState>();
  stream->context = context;
  stream->flags = flags;
  stream->priority = priority;
  stream->id = next_id++;
  stream->handle = streams.Add(stream);
  engine->Add(stream);
  return stream;
}

std::shared_ptr<StreamState> Driver::FindStream(cuda::Stream handle,
                                                const std::shared_ptr<ContextState>& context) {
  ThreadState& thread = thread_state;
  const bool own =
      handle == cuda::PerThreadStream() || (handle == nullptr && thread.default_stream_is_own);
  if (!own) {
    if (handle == nullptr || handle == cuda::LegacyStream()) return context->legacy;
    return streams.Find(handle);
  }
  for (std::size_t i = 0; i < thread.own_stream_count; ++i) {
    const ThreadState::OwnStream& known = thread.own_streams[i];
    if (known.context == context->handle) return streams.Find(known.stream);
  }
  if (thread.own_stream_count == thread.own_streams.size()) return nullptr;
  auto stream = MakeStream(context, 0, 0);
  thread.own_streams[thread.own_stream_count++] = {context->handle, stream->handle};
  return stream;
}

std::shared_ptr<const KernelCode> Driver::FindCode(cuda::Function function) const {
  if (const auto found = functions.Find(function)) return found->code;
  // Launches take a kernel in place of a function.
  const auto kernel = kernels.Find(reinterpret_cast<cuda::Kernel>(function));
  return kernel ? kernel->code : nullptr;
}

cuda::Result Driver::Charge(int gpu, std::uint64_t bytes) {
  if (!machine->TakeMemory(gpu, bytes)) return cuda::kOutOfMemory;
  charged += bytes;
  stats.memory_peak = std::max(stats.memory_peak, charged);
  return cuda::kSuccess;
}

void Driver::Refund(int gpu, std::uint64_t bytes) {
  machine->GiveMemory(gpu, bytes);
  charged -= std::min(charged, bytes);
}

void Driver::End() {
  if (forked_.load() || !initialised_.load() || ended_.exchange(true)) return;
  // Who called exit may have done so in the middle of a call, on a signal: don't insist.
  for (int attempt = 0; !mutex.try_lock(); ++attempt) {
    if (attempt == 1000) return;
    Sleep(kMillisecond);
  }
  engine->Stop();
  machine->Leave();
  if (const auto path = Environment("DIVVY_CUDA_SIM_STATS"); !path.empty()) {
    AppendStats(std::string(path), stats);
  }
  mutex.unlock();
}

}  // namespace divvy::device::cuda_simulator
