// What a launch costs more under the gate: of a training job that is alone on its GPU, with a
// driver that does nothing. The bar is 0.3 us.

#include <dlfcn.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

namespace {

constexpr double kBarNs = 300;
constexpr int kBatches = 1001;
constexpr int kLaunches = 2000;  // Of a batch.
constexpr unsigned kKinds = 64;  // Of kernels, one after the other, as in a step of training.

using LaunchKernel = int (*)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                             unsigned, void*, void**, void**);

double NanosecondsOf(LaunchKernel launch) {
  const auto begin = std::chrono::steady_clock::now();
  for (unsigned i = 0; i < kLaunches; ++i) {
    const std::uintptr_t kind = i % kKinds;
    launch(reinterpret_cast<void*>((kind + 1) * 64), 128, 1, 1, 256, 1, 1, 0, nullptr, nullptr,
           nullptr);
  }
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / kLaunches;
}

double Median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + values.size() / 2);
  return values[values.size() / 2];
}

bool HasBoard() { return !std::filesystem::is_empty(std::getenv("DIVVY_BOARD_DIR")); }

// In the process that has the gate loaded: with it and past it by turns, so that whatever else this
// machine does hits both.
int Measure() {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (driver == nullptr) {
    std::printf("%s\n", dlerror());
    return 1;
  }
  const auto gated = reinterpret_cast<LaunchKernel>(dlsym(driver, "cuLaunchKernel"));
  const auto ungated = reinterpret_cast<LaunchKernel>(dlsym(driver, "stub_launch"));
  NanosecondsOf(gated);  // Joins, and learns the kernels.
  if (!HasBoard()) {
    std::printf("the gate is not loaded, or has not joined a board\n");
    return 1;
  }
  std::vector<double> with;
  std::vector<double> without;
  for (int i = 0; i < kBatches; ++i) {
    with.push_back(NanosecondsOf(gated));
    without.push_back(NanosecondsOf(ungated));
  }
  const double more = Median(with) - Median(without);
  std::printf("A launch: %.1f ns under the gate, %.1f ns past it (medians of %d batches of %d)\n\n",
              Median(with), Median(without), kBatches, kLaunches);
  std::printf(
      "%-7sa launch of a batch job without latency jobs costs less than %.1f us more: %.3f\n",
      more < kBarNs ? "met" : "MISSED", kBarNs / 1e3, more / 1e3);
  return more < kBarNs ? 0 : 1;
}

// Runs this program once more, with the gate loaded as `divvy run --class batch` does.
int RunUnderTheGate(const std::string& directory) {
  setenv("LD_PRELOAD", GATE_LIBRARY, 1);
  setenv("LD_LIBRARY_PATH", STUB_CUDA_DIRECTORY, 1);
  setenv("DIVVY_CLASS", "batch", 1);
  setenv("DIVVY_BOARD_DIR", directory.c_str(), 1);
  std::string self = "/proc/self/exe";
  std::string measure = "measure";
  const std::array<char*, 3> argv{self.data(), measure.data(), nullptr};
  pid_t child = 0;
  int status = 0;
  if (posix_spawn(&child, self.c_str(), nullptr, nullptr, argv.data(), environ) != 0 ||
      waitpid(child, &status, 0) != child)
    return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::strcmp(argv[1], "measure") == 0) return Measure();
  std::string directory = std::filesystem::temp_directory_path() / "divvy-bench-XXXXXX";
  if (mkdtemp(directory.data()) == nullptr) {
    std::perror("mkdtemp");
    return 1;
  }
  const int status = RunUnderTheGate(directory);
  std::filesystem::remove_all(directory);
  return status;
}
