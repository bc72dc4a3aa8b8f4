#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "divvy_gate.h"
#include "gate/board.h"
#include "gate_probe.h"

// A program that uses CUDA in the ways that are easiest to break from outside, and checks that
// nothing did. Says what went wrong and ends with 1, or says OK and ends as it was asked to.
//
//   divvy-gate-probe memory QUOTA_BYTES | capture | neighbours | exit STATUS | fork | marks N
//     | waits | killed N | contexts | late-stream N | graphs | refused-graphs | forms
//     | fork-while-allocating | kinds N | reset

// In C, to see that the header is.
extern "C" void MarkInC(void (*work)(void));
// In a library that has another of the same name after it.
extern "C" int DivvyNeighbour();

namespace divvy::tests {

cuda::Context context;
cuda::Function kernel;

void Expect(bool is_so, const char* what, int line) {
  if (is_so) return;
  std::printf("line %d: not so: %s\n", line, what);
  std::exit(1);
}

void Must(cuda::Result result, const char* what, int line) {
  if (result == cuda::kSuccess) return;
  std::printf("line %d: %s answers %d\n", line, what, result);
  std::exit(1);
}

namespace {

// What was called, if the test wants to know.
std::mutex called_lock;
std::set<std::string> called;
const char* const called_file = std::getenv("DIVVY_PROBE_CALLED");

void TellWhatWasCalled() {
  if (called_file == nullptr) return;
  std::FILE* const file = std::fopen(called_file, "ae");
  Expect(file != nullptr, called_file, __LINE__);
  for (const std::string& name : called) std::fprintf(file, "%s\n", name.c_str());
  std::fclose(file);
}

}  // namespace

void* Find(const char* name) {
  static void* const library = dlopen("libcuda.so.1", RTLD_NOW);
  Expect(library != nullptr, "libcuda.so.1 can be loaded", __LINE__);
  void* const found = dlsym(library, name);
  Expect(found != nullptr, name, __LINE__);
  if (called_file != nullptr) {
    const std::lock_guard lock(called_lock);
    called.insert(name);
  }
  return found;
}

cuda::Result Launch(cuda::Stream stream) {
  void** const none = nullptr;
  return Call("cuLaunchKernel", kernel, 16U, 1U, 1U, 256U, 1U, 1U, 0U, stream, none, none);
}

void LaunchAndWait() {
  Must(Launch(nullptr), "cuLaunchKernel", __LINE__);
  MUST("cuCtxSynchronize");
}

namespace {

void SetUp() {
  cuda::Module module = nullptr;
  MUST("cuInit", 0U);
  MUST("cuDevicePrimaryCtxRetain", &context, 0);
  MUST("cuCtxSetCurrent", context);
  MUST("cuModuleLoadData", &module, static_cast<const void*>("kernel probe us=200\n"));
  MUST("cuModuleGetFunction", &kernel, module, "probe");
}

// One stream has a kernel under way that is not over when the program ends; the other gets on.
void LaunchBesideALateStream(long launches) {
  cuda::Module module = nullptr;
  cuda::Function slow = nullptr;
  MUST("cuModuleLoadData", &module, static_cast<const void*>("kernel slow param_us=1\n"));
  MUST("cuModuleGetFunction", &slow, module, "slow");
  cuda::Stream late = nullptr;
  cuda::Stream quick = nullptr;
  for (cuda::Stream* stream : {&late, &quick})
    MUST("cuStreamCreate", stream, cuda::kStreamNonBlocking);
  for (float us : {10.0F, 6e7F}) {  // The first of a kind is never timed.
    void* parameters[] = {&us};
    void** const none = nullptr;
    MUST("cuLaunchKernel", slow, 1U, 1U, 1U, 32U, 1U, 1U, 0U, late, static_cast<void**>(parameters),
         none);
  }
  for (long i = 0; i < launches; ++i) {
    Must(Launch(quick), "cuLaunchKernel", __LINE__);
    if (i % 10 == 9) MUST("cuStreamSynchronize", quick);
  }
  std::puts("OK");
  std::fflush(stdout);
  _exit(0);
}

// One thread captures in the mode that any unsafe call of any thread breaks, another trains.
void CheckCapture() {
  LaunchAndWait();
  std::atomic<bool> over{false};
  std::atomic<int> launched{0};
  std::thread trainer([&] {
    MUST("cuCtxSetCurrent", context);
    cuda::Stream stream = nullptr;
    MUST("cuStreamCreate", &stream, cuda::kStreamNonBlocking);
    while (!over.load()) {
      Must(Launch(stream), "cuLaunchKernel beside a capture", __LINE__);
      launched.fetch_add(1);
      std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
  });
  cuda::Stream stream = nullptr;
  MUST("cuStreamCreate", &stream, cuda::kStreamNonBlocking);
  cuda::GraphExec executable = nullptr;
  for (int round = 0; round < 5; ++round) {
    MUST("cuStreamBeginCapture_v2", stream, cuda::kCaptureGlobal);
    for (int i = 0; i < 20; ++i) Must(Launch(stream), "cuLaunchKernel in a capture", __LINE__);
    const int before = launched.load();
    while (launched.load() < before + 20) std::this_thread::yield();
    cuda::CaptureStatus status = cuda::kCaptureNone;
    MUST("cuStreamIsCapturing", stream, &status);
    EXPECT_THAT_IT(status == cuda::kCaptureActive);
    cuda::Graph graph = nullptr;
    MUST("cuStreamEndCapture", stream, &graph);
    std::size_t nodes = 0;
    MUST("cuGraphGetNodes", graph, static_cast<cuda::GraphNode*>(nullptr), &nodes);
    EXPECT_THAT_IT(nodes == 20);  // The kernels and nothing of the gate's.
    MUST("cuGraphInstantiateWithFlags", &executable, graph, 0ULL);
    MUST("cuGraphLaunch", executable, stream);
    MUST("cuStreamSynchronize", stream);
  }
  over.store(true);
  trainer.join();
  MUST("cuCtxSynchronize");
}

// The child has nothing of its parent's jobs on the GPU, and ends in the ordinary way.
void CheckFork() {
  LaunchAndWait();
  const pid_t child = fork();
  if (child == 0) std::exit(5);
  int status = 0;
  EXPECT_THAT_IT(waitpid(child, &status, 0) == child);
  EXPECT_THAT_IT(WIFEXITED(status) && WEXITSTATUS(status) == 5);
  for (int i = 0; i < 10; ++i) LaunchAndWait();
}

void CheckMarks(int count) {
  LaunchAndWait();
  for (int i = 0; i < count; ++i) {
    if (i % 2 == 0) {
      MarkInC(LaunchAndWait);
    } else {
      divvy_request_begin(0);
      LaunchAndWait();
      LaunchAndWait();  // Two waits, one request.
      divvy_request_end();
    }
  }
  divvy_request_end();  // Of nothing.
}

// Ten requests of twenty kernels (4 ms) each, waited for in ways that are easily taken for
// something else: a wait for an idle stream and an old event in between say nothing; another thread
// polls and never finds out; the CPU is away for longer than it takes to be thought gone.
void CheckWaits() {
  cuda::Stream work = nullptr;
  cuda::Stream idle = nullptr;
  cuda::Event old = nullptr;
  MUST("cuStreamCreate", &work, cuda::kStreamNonBlocking);
  MUST("cuStreamCreate", &idle, cuda::kStreamNonBlocking);
  MUST("cuEventCreate", &old, 0U);
  for (int request = 0; request < 10; ++request) {
    Must(Launch(work), "cuLaunchKernel", __LINE__);
    MUST("cuEventRecord", old, work);
    for (int i = 0; i < 19; ++i) Must(Launch(work), "cuLaunchKernel", __LINE__);
    MUST("cuStreamSynchronize", idle);
    MUST("cuEventSynchronize", old);
    if (request % 2 == 0) {
      std::thread([&] {
        Must(Call("cuCtxSetCurrent", context), "cuCtxSetCurrent", __LINE__);
        const cuda::Result polled = Call("cuStreamQuery", work);
        EXPECT_THAT_IT(polled == cuda::kSuccess || polled == cuda::kNotReady);
      }).join();
    }
    if (request % 3 == 0) usleep(20'000);
    MUST("cuStreamSynchronize", work);
  }
}

// This process's place on the only board there is.
const gate::Slot& OwnSlot() {
  char why[256];
  for (const auto& file : std::filesystem::directory_iterator(std::getenv("DIVVY_BOARD_DIR"))) {
    const gate::Board* const board = gate::OpenBoard(file.path().c_str(), why, sizeof(why));
    if (board == nullptr) continue;
    for (const gate::Slot& slot : board->slots) {
      if (slot.live.load() != 0 && slot.pid == getpid()) return slot;
    }
  }
  Expect(false, "the job has joined a board", __LINE__);
  std::abort();
}

bool IsOpen(const gate::Slot& slot) { return slot.level.load() == gate::kOpen; }

// One kernel, much longer than anything here waits for.
struct LongGraph {
  LongGraph() {
    cuda::Module module = nullptr;
    cuda::Function function = nullptr;
    cuda::Graph graph = nullptr;
    void** const none = nullptr;
    MUST("cuModuleLoadData", &module, static_cast<const void*>("kernel long us=200000\n"));
    MUST("cuModuleGetFunction", &function, module, "long");
    MUST("cuStreamCreate", &stream, cuda::kStreamNonBlocking);
    MUST("cuStreamBeginCapture_v2", stream, cuda::kCaptureThreadLocal);
    MUST("cuLaunchKernel", function, 1U, 1U, 1U, 32U, 1U, 1U, 0U, stream, none, none);
    MUST("cuStreamEndCapture", stream, &graph);
    MUST("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
  }
  cuda::Stream stream = nullptr;
  cuda::GraphExec exec = nullptr;
};

// A graph keeps the gate closed from its submission to its end, whatever other threads do. The
// driver is slow to submit it.
void CheckGraphs() {
  for (int i = 0; i < 20; ++i) {  // Requests usually have several launches.
    for (int k = 0; k < 5; ++k) Must(Launch(nullptr), "cuLaunchKernel", __LINE__);
    LaunchAndWait();
  }
  const LongGraph graph;
  const gate::Slot& slot = OwnSlot();
  while (!IsOpen(slot)) {
  }
  const std::uint64_t before = slot.graphs.load();
  std::atomic<int> step{0};
  bool open = true;
  std::thread other([&] {
    MUST("cuCtxSetCurrent", context);
    MUST("cuGraphLaunch", graph.exec, graph.stream);
    open = IsOpen(slot);
    step = 1;
    while (step != 2) {
    }
    MUST("cuStreamSynchronize", graph.stream);
  });
  while (slot.graphs.load() == before) {
  }
  MUST("cuCtxSynchronize");  // Covers nothing of what is being submitted.
  while (step != 1) {
  }
  EXPECT_THAT_IT(!open);
  cuda::Stream own = nullptr;  // A small request beside it.
  MUST("cuStreamCreate", &own, cuda::kStreamNonBlocking);
  Must(Launch(own), "cuLaunchKernel", __LINE__);
  MUST("cuStreamSynchronize", own);
  const bool open_then = IsOpen(slot);
  step = 2;
  other.join();
  EXPECT_THAT_IT(!open_then);
}

// What the driver did not take needs no gate.
void CheckRefusedGraphs() {
  const LongGraph graph;
  LaunchAndWait();
  const gate::Slot& slot = OwnSlot();
  while (!IsOpen(slot)) {
  }
  EXPECT_THAT_IT(Call("cuGraphLaunch", graph.exec, graph.stream) != cuda::kSuccess);
  EXPECT_THAT_IT(IsOpen(slot));
}

// Kernels of so many kinds, each launched once.
void LaunchKinds(long number) {
  cuda::Module module = nullptr;
  cuda::Function brief = nullptr;
  void** const none = nullptr;
  MUST("cuModuleLoadData", &module, static_cast<const void*>("kernel brief us=1\n"));
  MUST("cuModuleGetFunction", &brief, module, "brief");
  for (long i = 0; i < number; ++i) {
    MUST("cuLaunchKernel", brief, 1U, 1U + static_cast<unsigned>(i), 1U, 32U, 1U, 1U, 0U,
         cuda::Stream{nullptr}, none, none);
  }
}

int Run(const char* what, long number) {
  if (std::strcmp(what, "neighbours") == 0) {
    EXPECT_THAT_IT(DivvyNeighbour() == 2);
    std::puts("OK");
    return 0;
  }
  if (std::strcmp(what, "contexts") == 0) {
    MUST("cuInit", 0U);
    CheckContexts();
    TellWhatWasCalled();
    std::puts("OK");
    return 0;
  }
  SetUp();
  if (std::strcmp(what, "memory") == 0) CheckMemory(static_cast<std::size_t>(number));
  if (std::strcmp(what, "capture") == 0) CheckCapture();
  if (std::strcmp(what, "fork") == 0) CheckFork();
  if (std::strcmp(what, "marks") == 0) CheckMarks(static_cast<int>(number));
  if (std::strcmp(what, "waits") == 0) CheckWaits();
  if (std::strcmp(what, "late-stream") == 0) LaunchBesideALateStream(number);
  if (std::strcmp(what, "graphs") == 0) CheckGraphs();
  if (std::strcmp(what, "refused-graphs") == 0) CheckRefusedGraphs();
  if (std::strcmp(what, "forms") == 0) CheckForms();
  if (std::strcmp(what, "fork-while-allocating") == 0) ForkWhileAllocating();
  if (std::strcmp(what, "kinds") == 0) LaunchKinds(number);
  if (std::strcmp(what, "exit") == 0) LaunchAndWait();
  if (std::strcmp(what, "reset") == 0) {
    LaunchAndWait();
    MUST("cuDevicePrimaryCtxReset_v2", 0);
  }
  if (std::strcmp(what, "killed") == 0) {
    for (long i = 0; i < number; ++i) LaunchAndWait();
    kill(getpid(), SIGKILL);
  }
  TellWhatWasCalled();
  std::puts("OK");
  return std::strcmp(what, "exit") == 0 ? static_cast<int>(number) : 0;
}

}  // namespace
}  // namespace divvy::tests

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  return divvy::tests::Run(argv[1], argc > 2 ? std::strtol(argv[2], nullptr, 10) : 0);
}
