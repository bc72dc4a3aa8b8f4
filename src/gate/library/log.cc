#include "gate/library/log.h"

#include <pthread.h>
#include <time.h>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "gate/library/timing.h"

namespace divvy::gate {
namespace {

// Launching takes microseconds. Who is at it for longer has been stopped.
constexpr std::uint64_t kLongestHoldNs = 2'000'000;
constexpr long kWatchPauseNs = 10'000'000;
constexpr int kKernelNode = 0;

// Around the making of the log and its kinds: both happen once.
pthread_mutex_t log_lock = PTHREAD_MUTEX_INITIALIZER;

// How many kernels instantiated graphs have. When a place is taken by another, that is forgotten.
struct GraphSize {
  cuda::GraphExec exec;
  std::uint32_t kernels;
};
constexpr std::uint32_t kGraphSizes = 1024;
GraphSize graph_sizes[kGraphSizes];  // under log_lock

GraphSize& SizeOf(cuda::GraphExec exec) {
  const auto bits = reinterpret_cast<std::uintptr_t>(exec);
  return graph_sizes[(bits >> 4 ^ bits >> 14) % kGraphSizes];
}

std::uint32_t CountKernels(const Driver& driver, cuda::Graph graph) {
  std::size_t count = 0;
  if (driver.cuGraphGetNodes == nullptr || driver.cuGraphNodeGetType == nullptr ||
      driver.cuGraphGetNodes(graph, nullptr, &count) != cuda::kSuccess || count == 0)
    return 0;
  auto* nodes = static_cast<cuda::GraphNode*>(calloc(count, sizeof(cuda::GraphNode)));
  std::uint32_t kernels = 0;
  if (nodes != nullptr && driver.cuGraphGetNodes(graph, nodes, &count) == cuda::kSuccess) {
    for (std::size_t i = 0; i < count; ++i) {
      int type = -1;
      if (driver.cuGraphNodeGetType(nodes[i], &type) == cuda::kSuccess && type == kKernelNode)
        ++kernels;
    }
  }
  free(static_cast<void*>(nodes));
  return kernels;
}

// A thread that holds a stream may have to wait, for a lock of the driver's, for one that waits for
// that very stream. Then nobody but we can let it go.
void* WatchHolds(void*) {
  pthread_setname_np(pthread_self(), "divvy-gate");
  for (;;) {
    const timespec pause{0, kWatchPauseNs};
    nanosleep(&pause, nullptr);
    for (GpuState& gpu : process.gpus) {
      const std::uint64_t since = gpu.held_since_ns.load(std::memory_order_acquire);
      if (since != 0 && NowNs() > since + kLongestHoldNs) ReleaseHeldSince(gpu, since);
    }
  }
  return nullptr;
}

// False if there is no thread to be had.
bool StartWatch() {
  pthread_mutex_lock(&log_lock);
  const bool runs = process.keeper_runs.load() != 0 || StartThread(WatchHolds);
  process.keeper_runs.store(runs ? 1 : 0);
  pthread_mutex_unlock(&log_lock);
  return runs;
}

// Under the lock.
int AddKind(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
            cuda::Function function) {
  Described described = Describe(driver, gpu, shape, function);
  if (function == nullptr) {
    auto* const exec = reinterpret_cast<cuda::GraphExec>(shape.handle);
    if (const GraphSize& size = SizeOf(exec); size.exec == exec)
      described.facts.graph_kernels = size.kernels;
  }
  return AddOpKind(*process.log, described.facts, described.name);
}

}  // namespace

bool JoinLog(const Driver& driver, GpuState& gpu) {
  int multiprocessors = 0;
  driver.cuDeviceGetAttribute(&multiprocessors, cuda::kMultiprocessorCount, gpu.index);
  gpu.multiprocessors = static_cast<std::uint32_t>(multiprocessors);
  // Before the first hold, which may need it already.
  const bool watched = StartWatch();
  PrepareTiming(driver, gpu, watched);
  // A context made anew does not begin anew: its first timings would never end in a program that
  // makes many.
  if (!gpu.pace.has_begun()) gpu.pace.Begin(process.settings.log_cost_ppm, NowNs());
  char error[512] = "no directory is named (DIVVY_LOG)";
  pthread_mutex_lock(&log_lock);
  const char* directory = process.settings.log_directory;
  if (process.log == nullptr && directory != nullptr && *directory != '\0')
    process.log = CreateOpsLog(directory, program_invocation_short_name, error, sizeof error);
  const bool made = process.log != nullptr;
  pthread_mutex_unlock(&log_lock);
  if (!made) Say("%s; this program's kernels are not logged", error);
  return made;
}

LoggedKind NoteKind(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
                    cuda::Function function, Cost& cost) {
  pthread_mutex_lock(&log_lock);
  std::uint32_t kind = cost.kind.load(std::memory_order_relaxed);
  if (kind == 0) {
    const int index = AddKind(driver, gpu, shape, function);
    kind = index < 0 ? kNoKind : static_cast<std::uint32_t>(index) + 1;
    cost.kind.store(kind, std::memory_order_release);
  }
  pthread_mutex_unlock(&log_lock);
  return kind == kNoKind ? LoggedKind{} : LoggedKind{&cost, &process.log->kinds[kind - 1]};
}

void Instantiated(cuda::GraphExec exec, cuda::Graph graph) {
  ReadSettings();  // a program may capture before it launches anything
  if (process.settings.job.job_class != JobClass::kLog) return;
  const std::uint32_t kernels = CountKernels(*RealDriver(), graph);
  pthread_mutex_lock(&log_lock);
  SizeOf(exec) = {.exec = exec, .kernels = kernels};
  pthread_mutex_unlock(&log_lock);
}

void DropLog() {
  if (process.log != nullptr) process.costs.ForgetKinds();
  CloseOpsLog(process.log);
  process.log = nullptr;
  // The thread that held the lock is not in this process.
  pthread_mutex_init(&log_lock, nullptr);
}

}  // namespace divvy::gate
