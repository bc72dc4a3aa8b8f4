// What a launch costs the CPU, with and without the gate before it.
//
//   c++ -std=c++20 -O2 -Isrc bench/gpu/launch_overhead.cc -o launch_overhead -ldl
//   ./launch_overhead libdivvy_gate.so
//
// Runs itself twice, once under the library as a batch job that is alone, launches an empty kernel
// in bursts that the queue holds, and prints the median time of a launch of each and the
// difference. The two take turns, five times.

#include <dlfcn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "gate/cuda_abi.h"

namespace {

using namespace divvy::cuda;

constexpr const char* kEmptyKernel = R"(.version 6.0
.target sm_50
.address_size 64
.visible .entry empty() { ret; }
)";
constexpr int kBurst = 64;
constexpr int kBursts = 3000;

double NowNs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

void Check(int result, const char* what) {
  if (result == kSuccess) return;
  std::fprintf(stderr, "%s: error %d\n", what, result);
  std::exit(1);
}

template <typename Signature>
Signature* Find(void* driver, const char* name) {
  auto* found = reinterpret_cast<Signature*>(dlsym(driver, name));
  if (found == nullptr) std::fprintf(stderr, "the driver has no %s\n", name), std::exit(1);
  return found;
}

// Median nanoseconds of a launch.
double Measure() {
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) std::fprintf(stderr, "%s\n", dlerror()), std::exit(1);
  Check(Find<int(unsigned)>(driver, "cuInit")(0), "cuInit");
  Context context{};
  Check(Find<int(Context*, Device)>(driver, "cuDevicePrimaryCtxRetain")(&context, 0),
        "cuDevicePrimaryCtxRetain");
  Check(Find<int(Context)>(driver, "cuCtxSetCurrent")(context), "cuCtxSetCurrent");
  Module module{};
  Check(Find<int(Module*, const void*)>(driver, "cuModuleLoadData")(&module, kEmptyKernel),
        "cuModuleLoadData");
  Function kernel{};
  Check(Find<int(Function*, Module, const char*)>(driver, "cuModuleGetFunction")(&kernel, module,
                                                                                 "empty"),
        "cuModuleGetFunction");
  Stream stream{};
  Check(Find<int(Stream*, unsigned)>(driver, "cuStreamCreate")(&stream, kStreamNonBlocking),
        "cuStreamCreate");
  using Launch = int(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                     Stream, void**, void**);
  Launch* launch = Find<Launch>(driver, "cuLaunchKernel");
  auto* synchronize = Find<int(Stream)>(driver, "cuStreamSynchronize");
  std::vector<double> times;
  for (int burst = 0; burst < kBursts; ++burst) {
    const double begin = NowNs();
    for (int i = 0; i < kBurst; ++i)
      Check(launch(kernel, 1, 1, 1, 32, 1, 1, 0, stream, nullptr, nullptr), "cuLaunchKernel");
    times.push_back((NowNs() - begin) / kBurst);
    Check(synchronize(stream), "cuStreamSynchronize");
  }
  std::nth_element(times.begin(), times.begin() + kBursts / 2, times.end());
  return times[kBursts / 2];
}

double RunSelf(const std::string& environment) {
  const std::string command = environment + " /proc/" + std::to_string(getpid()) + "/exe measure";
  FILE* pipe = popen(command.c_str(), "r");
  double ns = -1.0;
  if (pipe == nullptr || std::fscanf(pipe, "%lf", &ns) != 1 || pclose(pipe) != 0) std::exit(1);
  return ns;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "measure") == 0) {
    std::printf("%.1f\n", Measure());
    return 0;
  }
  if (argc != 2) {
    std::fprintf(stderr, "usage: launch_overhead libdivvy_gate.so\n");
    return 2;
  }
  char library[4096];
  if (realpath(argv[1], library) == nullptr) return perror(argv[1]), 1;
  std::vector<double> added;
  for (int i = 0; i < 5; ++i) {
    const double plain = RunSelf("");
    const double gated = RunSelf(std::string("DIVVY_CLASS=batch LD_PRELOAD='") + library + "'");
    std::printf("launch: %.0f ns without the gate, %.0f ns with it, %+.0f ns\n", plain, gated,
                gated - plain);
    added.push_back(gated - plain);
  }
  std::sort(added.begin(), added.end());
  std::printf("median of %zu: %+.0f ns a launch\n", added.size(), added[added.size() / 2]);
}
