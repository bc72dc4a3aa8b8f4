#include "gate/library/timing.h"

#include <cstring>

namespace divvy::gate {
namespace {

// Pairs of events with nothing between them, of which the least tells the overhead.
constexpr int kEmptyPairs = 8;
// Elapsed times are floats in milliseconds: after a second they are good to 60 ns.
constexpr float kClockMs = 1000.0F;
// What a pair of events takes the GPU, which no clock of ours sees.
constexpr std::uint32_t kPairOnGpuNs = 3'000;
// Likewise a wait on memory.
constexpr std::uint32_t kHoldOnGpuNs = 2'400;
// Programs may wait thousands of times a second; timings need not be read as often.
constexpr std::uint64_t kReadEveryNs = 200'000;
// Of a batch job, of which few launches are timed.
constexpr std::uint64_t kReadFewEveryNs = 50'000'000;

// Empty if the driver does not say.
const char* NameOf(const Driver& driver, cuda::Function function) {
  const char* name = nullptr;
  if (driver.cuKernelGetName != nullptr)
    driver.cuKernelGetName(&name, reinterpret_cast<cuda::Kernel>(function));
  if (name == nullptr && driver.cuFuncGetName != nullptr) driver.cuFuncGetName(&name, function);
  return name == nullptr ? "" : name;
}

// Collective operations of several GPUs: one that waits stops the others, perhaps on other
// machines.
bool IsCollective(const char* name) {
  return strncmp(name, "nccl", 4) == 0 || strstr(name, "ncclKernel") != nullptr ||
         strstr(name, "ncclDevKernel") != nullptr;
}

bool IsShared(const GpuState& gpu) {
  return gpu.board != nullptr && gpu.board->batch_jobs.load(std::memory_order_relaxed) > 1;
}

// Lets every hold up to that one go. Never back: a thread that was stopped on its way here would
// have the GPU wait again, for one that is over.
void RaiseTo(GpuState& gpu, std::uint32_t number) {
  std::atomic<std::uint32_t>& over = pinned->holds[gpu.index].over;
  std::uint32_t before = over.load(std::memory_order_relaxed);
  // By their distance, as the GPU compares them: numbers wrap.
  while (static_cast<std::int32_t>(number - before) > 0 &&
         !over.compare_exchange_weak(before, number, std::memory_order_release,
                                     std::memory_order_relaxed)) {
  }
}

// Holds the stream until Release, so that what is submitted meanwhile runs without gaps: on an idle
// GPU a pair of events would measure how long the CPU takes to launch. False if it cannot be.
bool Hold(const Driver& driver, GpuState& gpu, cuda::Stream stream) {
  if (gpu.hold_on_gpu == 0) return false;
  const std::uint32_t number = gpu.hold_number.load(std::memory_order_relaxed) + 1;
  gpu.hold_number.store(number, std::memory_order_relaxed);
  gpu.held_since_ns.store(NowNs(), std::memory_order_release);
  if (driver.cuStreamWaitValue32_v2(stream, gpu.hold_on_gpu, number, cuda::kWaitValueGeq) ==
      cuda::kSuccess)
    return true;
  ReleaseHold(gpu);
  return false;
}

// Timing has cost so much, in the calling thread or on the GPU. Under the sampling lock.
void Charge(GpuState& gpu, std::uint64_t ns) {
  process.log->timing_ns.fetch_add(gpu.pace.Charge(ns), std::memory_order_relaxed);
}

// An event whose time is known by our clock as well. 0 if there is none.
void StartClock(const Driver& driver, GpuState& gpu, cuda::Stream stream) {
  gpu.clock_ns = 0;
  if (driver.cuEventCreate(&gpu.clock_event, 0) != cuda::kSuccess ||
      driver.cuEventRecord(gpu.clock_event, stream) != cuda::kSuccess ||
      driver.cuStreamSynchronize(stream) != cuda::kSuccess)
    return;
  gpu.clock_ns = NowNs();
}

// Under the sampling lock.
void LogSample(const Driver& driver, GpuState& gpu, Sample& sample, std::uint32_t duration_ns) {
  float since_ms = 0.0F;
  if (gpu.clock_ns == 0 ||
      driver.cuEventElapsedTime(&since_ms, gpu.clock_event, sample.begin) != cuda::kSuccess)
    return;
  const auto start_ns = static_cast<std::uint64_t>(static_cast<std::int64_t>(gpu.clock_ns) +
                                                   static_cast<std::int64_t>(since_ms * 1e6F));
  PushOpSample(*process.log,
               {.start_ns = start_ns,
                .stream = reinterpret_cast<std::uintptr_t>(sample.timed.stream),
                .duration_ns = duration_ns,
                .kind = static_cast<std::uint16_t>(sample.timed.kind - process.log->kinds),
                .device = static_cast<std::uint16_t>(gpu.index)});
  if (since_ms < kClockMs) return;
  // From now on time counts from here; the old event takes the sample's place.
  cuda::Event old = gpu.clock_event;
  gpu.clock_event = sample.begin;
  gpu.clock_ns = start_ns;
  sample.begin = old;
}

// Streams of which a timing was found not to be over: those behind it are not either.
class LateStreams {
 public:
  // With more than there is room for, all are taken to be late.
  [[nodiscard]] bool Contains(cuda::Stream stream) const {
    for (int i = 0; i < count_; ++i) {
      if (streams_[i] == stream) return true;
    }
    return count_ == kMost;
  }
  void Add(cuda::Stream stream) {
    if (count_ < kMost) streams_[count_++] = stream;
  }

 private:
  static constexpr int kMost = 8;
  cuda::Stream streams_[kMost];
  int count_ = 0;
};

void Read(const Driver& driver, GpuState& gpu, Sample& sample) {
  float ms = 0.0F;
  if (driver.cuEventElapsedTime(&ms, sample.begin, sample.end) != cuda::kSuccess) return;
  const float ns = ms * 1e6F - static_cast<float>(gpu.sample_overhead_ns);
  const std::uint32_t measured = ns < 1.0F   ? 1U
                                 : ns > 4e9F ? 4'000'000'000U
                                             : static_cast<std::uint32_t>(ns);
  Learn(*sample.timed.cost, measured, sample.shared || IsShared(gpu));
  if (sample.timed.kind != nullptr) LogSample(driver, gpu, sample, measured);
}

// Reads the timings that are ready: of each stream from the oldest to the first that is not. A
// program that is far ahead of its GPU has dozens under way, and to ask for each of them would cost
// more than to time it. Under the sampling lock.
void Harvest(const Driver& driver, GpuState& gpu) {
  const RelaxedCapture relaxed(driver);
  LateStreams late;
  const std::uint32_t count = gpu.samples_out.load(std::memory_order_relaxed);
  std::uint32_t kept = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint8_t at = gpu.under_way[i];
    Sample& sample = gpu.samples[at];
    if (!late.Contains(sample.timed.stream)) {
      if (driver.cuEventQuery(sample.end) != cuda::kNotReady) {
        Read(driver, gpu, sample);
        sample.timed.cost = nullptr;
        continue;
      }
      late.Add(sample.timed.stream);
    }
    gpu.under_way[kept++] = at;
  }
  gpu.samples_out.store(kept, std::memory_order_relaxed);
}

// One that is free, if need be after reading what is ready; null if there is none.
Sample* FreeSample(const Driver& driver, GpuState& gpu) {
  const std::uint32_t out = gpu.samples_out.load(std::memory_order_relaxed);
  if (gpu.samples_begun % 16 == 0 || out == kSamples) {
    // Where all are out each launch that is to be timed comes here.
    const std::uint64_t now = NowNs();
    if (out == kSamples && now < gpu.harvested_ns + kReadEveryNs) return nullptr;
    gpu.harvested_ns = now;
    Harvest(driver, gpu);
  }
  for (Sample& sample : gpu.samples) {
    if (sample.timed.cost == nullptr && sample.begin != nullptr) return &sample;
  }
  return nullptr;
}

// Whether the GPU has not even come to the end of what was timed last before in the same stream:
// then it has lost nothing by what the caller did since.
bool IsBehind(const Driver& driver, const GpuState& gpu, const Sample& sample) {
  for (std::uint32_t i = gpu.samples_out.load(std::memory_order_relaxed); i-- > 0;) {
    const Sample& other = gpu.samples[gpu.under_way[i]];
    if (&other == &sample || other.timed.stream != sample.timed.stream) continue;
    const RelaxedCapture relaxed(driver);
    return driver.cuEventQuery(other.end) == cuda::kNotReady;
  }
  return false;
}

}  // namespace

bool IsCollective(const Driver& driver, cuda::Function function) {
  return IsCollective(NameOf(driver, function));
}

bool ReleaseHold(GpuState& gpu) {
  const std::uint32_t number = gpu.hold_number.load(std::memory_order_relaxed);
  const bool was_held = gpu.held_since_ns.exchange(0, std::memory_order_relaxed) != 0;
  RaiseTo(gpu, number);
  return was_held;
}

void ReleaseHeldSince(GpuState& gpu, std::uint64_t since_ns) {
  // Read before the exchange: once that is done, another hold may begin.
  const std::uint32_t number = gpu.hold_number.load(std::memory_order_relaxed);
  if (gpu.held_since_ns.compare_exchange_strong(since_ns, 0, std::memory_order_acq_rel))
    RaiseTo(gpu, number);
}

Described Describe(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
                   cuda::Function function) {
  Described described;
  OpFacts& facts = described.facts;
  facts.shape = shape;
  facts.multiprocessors = gpu.multiprocessors;
  if (function == nullptr) {
    facts.is_graph = 1;
    return described;
  }
  described.name = NameOf(driver, function);
  facts.exempt = IsCollective(described.name) ? 1 : 0;
  const std::uint64_t threads =
      static_cast<std::uint64_t>(shape.block[0]) * shape.block[1] * shape.block[2];
  const std::uint64_t blocks =
      static_cast<std::uint64_t>(shape.grid[0]) * shape.grid[1] * shape.grid[2];
  int per_multiprocessor = 0;
  if (driver.cuOccupancyMaxActiveBlocksPerMultiprocessor == nullptr ||
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, function,
                                                         static_cast<int>(threads),
                                                         shape.shared_bytes) != cuda::kSuccess ||
      per_multiprocessor <= 0 || gpu.multiprocessors == 0) {
    return described;
  }
  facts.blocks_per_multiprocessor = static_cast<std::uint32_t>(per_multiprocessor);
  const std::uint64_t fill =
      blocks * 1000 / (static_cast<std::uint64_t>(per_multiprocessor) * gpu.multiprocessors);
  facts.fill = static_cast<std::uint16_t>(fill > 1000 ? 1000 : fill);
  return described;
}

void PrepareTiming(const Driver& driver, GpuState& gpu, bool may_hold) {
  for (Sample& sample : gpu.samples) {
    if (driver.cuEventCreate(&sample.begin, 0) != cuda::kSuccess ||
        driver.cuEventCreate(&sample.end, 0) != cuda::kSuccess)
      return;
  }
  cuda::Stream stream = nullptr;
  if (driver.cuStreamCreate(&stream, cuda::kStreamNonBlocking) != cuda::kSuccess) return;
  const bool logs = process.settings.job.job_class == JobClass::kLog;
  if (may_hold) {
    // Its numbers go on where they were in an earlier context.
    HoldWord& hold = pinned->holds[gpu.index];
    gpu.hold_on_gpu = MapForGpu(driver, &hold, sizeof hold);
    if (!Hold(driver, gpu, stream)) gpu.hold_on_gpu = 0;
  }
  for (int i = 0; i < kEmptyPairs; ++i) {
    driver.cuEventRecord(gpu.samples[i].begin, stream);
    driver.cuEventRecord(gpu.samples[i].end, stream);
  }
  if (gpu.hold_on_gpu != 0) ReleaseHold(gpu);
  driver.cuStreamSynchronize(stream);
  float least = 1.0F;
  for (int i = 0; i < kEmptyPairs; ++i) {
    float ms = 0.0F;
    if (driver.cuEventElapsedTime(&ms, gpu.samples[i].begin, gpu.samples[i].end) ==
            cuda::kSuccess &&
        ms < least)
      least = ms;
  }
  if (logs) StartClock(driver, gpu, stream);
  driver.cuStreamDestroy_v2(stream);
  gpu.sample_overhead_ns = least < 0.1F ? static_cast<std::uint32_t>(least * 1e6F) : 0;
}

Sample* BeginSample(const Driver& driver, GpuState& gpu, const Timed& timed) {
  if (gpu.sampling.exchange(1, std::memory_order_acquire) != 0) return nullptr;
  const bool logs = timed.kind != nullptr;
  const std::uint64_t begun = logs ? NowNs() : 0;
  if (!logs || gpu.pace.Allows(begun, timed.first)) {
    Sample* sample = FreeSample(driver, gpu);
    const bool held = sample != nullptr && logs && Hold(driver, gpu, timed.stream);
    if (sample != nullptr && driver.cuEventRecord(sample->begin, timed.stream) == cuda::kSuccess) {
      ++gpu.samples_begun;
      sample->timed = timed;
      sample->held = held;
      sample->shared = IsShared(gpu);
      sample->caller_ns = logs ? NowNs() - begun : 0;
      const std::uint32_t out = gpu.samples_out.load(std::memory_order_relaxed);
      gpu.under_way[out] = static_cast<std::uint8_t>(sample - gpu.samples);
      gpu.samples_out.store(out + 1, std::memory_order_relaxed);
      return sample;
    }
    if (held) ReleaseHold(gpu);
    if (logs) Charge(gpu, NowNs() - begun);
  }
  gpu.sampling.store(0, std::memory_order_release);
  return nullptr;
}

void EndSample(const Driver& driver, GpuState& gpu, Sample& sample) {
  // The context went meanwhile, and with it the events and this thread's lock.
  if (sample.timed.cost == nullptr) return;
  const bool logs = sample.timed.kind != nullptr;
  const std::uint64_t launched = logs ? NowNs() : 0;
  const bool recorded = driver.cuEventRecord(sample.end, sample.timed.stream) == cuda::kSuccess;
  const bool stuck = sample.held && !ReleaseHold(gpu);
  if (logs) {
    Charge(gpu, kPairOnGpuNs + (sample.held ? kHoldOnGpuNs : 0));
    if (!IsBehind(driver, gpu, sample)) {
      // How long a launch takes is the program's affair, unless it could not end before we let go.
      Charge(gpu, stuck ? OpsPace::kMostChargeNs : sample.caller_ns + NowNs() - launched);
      if (stuck) process.log->let_go.fetch_add(1, std::memory_order_relaxed);
    }
  }
  if (!recorded) {
    sample.timed.cost = nullptr;
    gpu.samples_out.fetch_sub(1, std::memory_order_relaxed);  // It is the last.
  }
  gpu.sampling.store(0, std::memory_order_release);
}

void ReadTimings(const Driver& driver, GpuState& gpu) {
  const bool logs = process.settings.job.job_class == JobClass::kLog;
  if (gpu.samples_out.load(std::memory_order_relaxed) == 0 ||
      process.captures.load(std::memory_order_relaxed) != 0 ||
      gpu.sampling.exchange(1, std::memory_order_acquire) != 0)
    return;
  const std::uint64_t now = NowNs();
  if (now > gpu.harvested_ns + (logs ? kReadEveryNs : kReadFewEveryNs)) {
    gpu.harvested_ns = now;
    Harvest(driver, gpu);
    if (logs) Charge(gpu, NowNs() - now);
  }
  gpu.sampling.store(0, std::memory_order_release);
}

void ReadTimingsAfterWait() {
  if (process.settings.job.job_class != JobClass::kLog) return;
  const Driver* driver = RealDriver();
  GpuState* gpu = driver == nullptr ? nullptr : CurrentGpu(*driver);
  if (gpu != nullptr) ReadTimings(*driver, *gpu);
}

}  // namespace divvy::gate
