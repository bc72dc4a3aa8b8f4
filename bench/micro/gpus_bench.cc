// How long a person waits for `divvy gpus` on a node of two simulated H200s, from
// start to end of the process, beside a program that does nothing. The bar is
// 50 ms.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

namespace {

// True when the program ran and exited with 0; its output is thrown away.
bool Run(const std::vector<std::string>& words) {
  std::vector<std::string> copy = words;
  std::vector<char*> argv;
  for (std::string& word : copy) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  const int error = posix_spawn(&child, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  return error == 0 && waitpid(child, &status, 0) == child && status == 0;
}

// Seven instances a GPU, so that there is something to read.
bool MakeNode(const std::string& dir) {
  const std::string state = dir + "/node.json";
  setenv("DIVVY_NVML", NVML_SIM_LIBRARY, 1);
  setenv("DIVVY_NVML_SIM_STATE", state.c_str(), 1);
  setenv("DIVVY_STATE_DIR", dir.c_str(), 1);
  bool made = Run({DIVVY_NVML_SIM_PATH, "init", state, "--gpus", "H200-141GB+mig:2"});
  for (const char* gpu : {"0", "1"}) {
    for (int start = 0; start < 7; ++start) {
      made = made && Run({DIVVY_NVML_SIM_PATH, "create", state, "--gpu", gpu, "--profile",
                          "1g.18gb", "--start", std::to_string(start)});
    }
  }
  return made;
}

void BM_NothingAtAll(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Run({"/bin/true"}));
}
BENCHMARK(BM_NothingAtAll)->Unit(benchmark::kMillisecond)->UseRealTime();

void BM_DivvyGpus(benchmark::State& state) {
  std::string pattern = std::filesystem::temp_directory_path() / "divvy-bench-XXXXXX";
  const std::string dir = mkdtemp(pattern.data());
  if (!MakeNode(dir)) state.SkipWithError("the simulated node could not be made");
  for (auto _ : state) {
    if (!Run({DIVVY_PATH, "gpus"})) state.SkipWithError("divvy gpus failed");
  }
  std::filesystem::remove_all(dir);
}
BENCHMARK(BM_DivvyGpus)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
