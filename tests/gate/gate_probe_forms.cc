#include <array>
#include <atomic>
#include <iterator>
#include <string>
#include <utility>

#include "device/cuda_simulator/abi_more.h"
#include "gate_probe.h"

// Calls that come in several forms, each of them once or more: what one form does to the gate the
// others do too.

namespace divvy::tests {
namespace {

// With the default stream of all threads, and with the thread's own.
constexpr const char* kEndings[] = {"", "_ptsz"};
cuda::Stream const kDefault = nullptr;

bool IsOwn(const char* ending) { return *ending != '\0'; }

// One of the three ways to launch a kernel.
void LaunchBy(int way, const char* ending, cuda::Stream stream) {
  void** const none = nullptr;
  cuda::LaunchConfig config{};
  switch (way % 3) {
    case 0:
      MUST_FORM("cuLaunchKernel", ending, kernel, 16U, 1U, 1U, 256U, 1U, 1U, 0U, stream, none,
                none);
      break;
    case 1:
      config = {16, 1, 1, 256, 1, 1, 0, stream, nullptr, 0};
      MUST_FORM("cuLaunchKernelEx", ending, static_cast<const cuda::LaunchConfig*>(&config), kernel,
                none, none);
      break;
    default:
      MUST_FORM("cuLaunchCooperativeKernel", ending, kernel, 16U, 1U, 1U, 256U, 1U, 1U, 0U, stream,
                none);
  }
}

cuda::GraphExec Instantiate(int way, cuda::Graph graph) {
  cuda::GraphExec exec = nullptr;
  cuda::GraphNode failed = nullptr;
  char log[64] = "";
  device::cuda_simulator::GraphInstantiateParams parameters{};
  switch (way) {
    case 0:
      MUST("cuGraphInstantiate", &exec, graph, &failed, static_cast<char*>(log), sizeof log);
      break;
    case 1:
      MUST("cuGraphInstantiate_v2", &exec, graph, &failed, static_cast<char*>(log), sizeof log);
      break;
    case 2:
      MUST("cuGraphInstantiateWithParams", &exec, graph, &parameters);
      break;
    case 3:
      MUST("cuGraphInstantiateWithParams_ptsz", &exec, graph, &parameters);
      break;
    default:
      MUST("cuGraphInstantiateWithFlags", &exec, graph, 0ULL);
  }
  return exec;
}

void BeginCapture(int way, const char* ending, cuda::Stream stream) {
  cuda::Graph into = nullptr;
  switch (way) {
    case 0:
      MUST_FORM("cuStreamBeginCapture", ending, stream);
      break;
    case 1:
      MUST_FORM("cuStreamBeginCapture_v2", ending, stream, cuda::kCaptureGlobal);
      break;
    default:
      MUST("cuGraphCreate", &into, 0U);
      MUST_FORM("cuStreamBeginCaptureToGraph", ending, stream, into,
                static_cast<const cuda::GraphNode*>(nullptr), static_cast<const void*>(nullptr),
                std::size_t{0}, cuda::kCaptureGlobal);
  }
}

// Six captures of one to six kernels, each made into a graph that is one request.
void CheckCaptures() {
  cuda::Stream apart = nullptr;
  MUST("cuStreamCreate", &apart, cuda::kStreamNonBlocking);
  for (int round = 0; round < 6; ++round) {
    const char* const ending = kEndings[round % 2];
    // The default stream of all threads cannot be captured.
    cuda::Stream stream = IsOwn(ending) ? kDefault : apart;
    BeginCapture(round / 2, ending, stream);
    for (int i = 0; i <= round; ++i) LaunchBy(i, ending, stream);
    cuda::Graph graph = nullptr;
    MUST_FORM("cuStreamEndCapture", ending, stream, &graph);
    cuda::GraphExec exec = Instantiate(round, graph);
    MUST_FORM("cuGraphLaunch", ending, exec, stream);
    MUST_FORM("cuStreamSynchronize", ending, stream);
    MUST("cuGraphExecDestroy", exec);
  }
}

// Waits for the thread's work in one of the ways there are; both are some memory of the GPU.
void AwaitBy(int way, const char* ending, cuda::DevicePointer from, cuda::DevicePointer to) {
  static cuda::Event event = nullptr;
  if (event == nullptr) MUST("cuEventCreate", &event, 0U);
  const std::string copies = IsOwn(ending) ? "_ptds" : "";
  std::array<char, 64> bytes{};
  std::atomic<bool> called{false};
  switch (way) {
    case 0:
      MUST_FORM("cuStreamSynchronize", ending, kDefault);
      break;
    case 1:
      MUST_FORM("cuEventRecord", ending, event, kDefault);
      MUST("cuEventSynchronize", event);
      break;
    case 2:
      MUST_FORM("cuEventRecordWithFlags", ending, event, kDefault, 0U);
      while (Call("cuEventQuery", event) == cuda::kNotReady) {
      }
      break;
    case 3:
      while (Call((std::string("cuStreamQuery") + ending).c_str(), kDefault) == cuda::kNotReady) {
      }
      break;
    case 4:
      MUST_FORM("cuLaunchHostFunc", ending, kDefault, static_cast<void (*)(void*)>([](void* flag) {
                  static_cast<std::atomic<bool>*>(flag)->store(true);
                }),
                static_cast<void*>(&called));
      while (!called.load()) {
      }
      break;
    case 5:
      MUST_FORM("cuMemcpyDtoH_v2", copies, static_cast<void*>(bytes.data()), from, bytes.size());
      break;
    case 6:
      MUST_FORM("cuMemcpy", copies, to, from, bytes.size());
      break;
    default:
      if (IsOwn(ending)) {
        MUST("cuCtxSynchronize_v2", context);
      } else {
        MUST("cuCtxSynchronize");
      }
  }
}

// What a look-up by the driver gives is what the loader gives.
void CheckLookups() {
  void* address = nullptr;
  int status = 0;
  MUST("cuGetProcAddress", "cuLaunchKernel", &address, 13000, std::uint64_t{0});
  EXPECT_THAT_IT(address == Find("cuLaunchKernel"));
  MUST("cuGetProcAddress_v2", "cuLaunchKernel", &address, 13000, cuda::kPerThreadDefaultStream,
       &status);
  EXPECT_THAT_IT(address == Find("cuLaunchKernel_ptsz"));
}

}  // namespace

// Six requests of graphs, then sixteen of one kernel, which is launched in every way and waited for
// in every way. Captures come first: one that is taken to go on would change what is done later.
void CheckForms() {
  CheckLookups();
  CheckCaptures();
  cuda::DevicePointer from = 0;
  cuda::DevicePointer to = 0;
  for (cuda::DevicePointer* memory : {&from, &to}) MUST("cuMemAlloc_v2", memory, std::size_t{4096});
  for (const char* ending : kEndings) {
    for (int way = 0; way < 8; ++way) {
      LaunchBy(way, ending, kDefault);
      AwaitBy(way, ending, from, to);
    }
  }
}

// A context after the other, each with a kernel of its own: created and destroyed, then the primary
// one, retained and released, with another that is retained meanwhile and does not end it, then the
// primary one again, reset. Each of these by the driver's first form of the call and by its second.
void CheckContexts() {
  for (int round = 0; round < 6; ++round) {
    const bool primary = round >= 2;
    const bool reset = round >= 4;
    const char* const form = round % 2 == 0 ? "" : "_v2";
    const std::string name = "round" + std::to_string(round);
    const std::string code = "kernel " + name + " us=50\n";
    cuda::Context own = nullptr;
    cuda::Module module = nullptr;
    if (primary) {
      MUST("cuDevicePrimaryCtxRetain", &own, 0);
      MUST("cuCtxSetCurrent", own);
    } else {
      MUST("cuCtxCreate_v2", &own, 0U, 0);
    }
    MUST("cuModuleLoadData", &module, static_cast<const void*>(code.c_str()));
    MUST("cuModuleGetFunction", &kernel, module, name.c_str());
    for (int i = 0; i < 20; ++i) {
      LaunchAndWait();
      if (!primary || reset || i != 10) continue;
      MUST("cuDevicePrimaryCtxRetain", &own, 0);
      MUST_FORM("cuDevicePrimaryCtxRelease", form, 0);
    }
    if (reset) {
      MUST_FORM("cuDevicePrimaryCtxReset", form, 0);
    } else if (primary) {
      MUST_FORM("cuDevicePrimaryCtxRelease", form, 0);
    } else {
      MUST_FORM("cuCtxDestroy", form, own);
    }
  }
}

}  // namespace divvy::tests
