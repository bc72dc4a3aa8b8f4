#include <dlfcn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "sim_job_options.h"

// A program that uses CUDA, as a serving or a training job does, for tests on the simulated driver:
// its kernels take as long as they are told. Says READY when it has begun to work, and at its end,
// or on SIGTERM, one line `RESULT {..}`.

namespace divvy::tests {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

std::atomic<bool> stop{false};
static_assert(std::atomic<bool>::is_always_lock_free);

// What one thread of the job saw.
struct Report {
  std::vector<double> milliseconds;  // Of each request, from when it was due, or step.
  double longest_gap_ms = 0;         // Between the ends of two.
  long errors = 0;
  int first_error = 0;
  double seconds = 0;

  // Whether the call went well.
  bool Note(cuda::Result result) {
    if (result == cuda::kSuccess) return true;
    if (errors++ == 0) first_error = result;
    return false;
  }
};

// Marks of requests, if a library that takes them is loaded.
struct Marks {
  void (*begin)(std::uint64_t arrival_ns) = nullptr;
  void (*end)() = nullptr;
};

Marks FindMarks() {
  return {reinterpret_cast<void (*)(std::uint64_t)>(dlsym(RTLD_DEFAULT, "divvy_request_begin")),
          reinterpret_cast<void (*)()>(dlsym(RTLD_DEFAULT, "divvy_request_end"))};
}

// CPU time, as a framework takes to come to its next launch.
void Think(double us) {
  if (us <= 0) return;
  const auto end = Clock::now() + Seconds(us * 1e-6);
  while (Clock::now() < end) {
  }
}

// The work of one thread: its stream, its graph if it has one, and how it waits.
class Worker {
 public:
  Worker(const Cuda& cuda, const JobOptions& options, cuda::Function function, Report& report)
      : cuda_(cuda), options_(options), function_(function), report_(report) {}

  bool Prepare() {
    if (options_.stream == JobStream::kOwn &&
        !report_.Note(cuda_.stream_create(&stream_, cuda::kStreamNonBlocking))) {
      return false;
    }
    if (options_.stream == JobStream::kOfPool) {
      for (cuda::Stream& stream : pool_) {
        if (!report_.Note(cuda_.stream_create(&stream, cuda::kStreamNonBlocking))) return false;
      }
      stream_ = pool_.front();
    }
    const bool records = options_.sync == JobSync::kEvent || options_.sync == JobSync::kQueryEvent;
    if (records && !report_.Note(cuda_.event_create(&event_, 0))) return false;
    if (options_.sync == JobSync::kCopy && !report_.Note(cuda_.memory_allocate(&answer_, 4096))) {
      return false;
    }
    return !options_.graph || MakeGraph();
  }

  // One request or step, to its end.
  bool RunOnce() {
    if (options_.stream == JobStream::kOfPool) stream_ = pool_[++step_ % pool_.size()];
    for (int i = 0; i < options_.waits; ++i) {
      if (!LaunchAndWait()) return false;
    }
    return true;
  }

 private:
  bool LaunchAndWait() {
    if (graph_ != nullptr) {
      Think(options_.think_us);
      if (!report_.Note(cuda_.graph_launch(graph_, stream_))) return false;
    } else if (!LaunchKernels(true)) {
      return false;
    }
    return report_.Note(Synchronise());
  }

  bool MakeGraph() {
    cuda::Graph graph = nullptr;
    if (!report_.Note(cuda_.begin_capture(stream_, cuda::kCaptureThreadLocal))) return false;
    if (!LaunchKernels(false)) return false;
    return report_.Note(cuda_.end_capture(stream_, &graph)) &&
           report_.Note(cuda_.graph_instantiate(&graph_, graph, 0));
  }

  bool LaunchKernels(bool think) {
    auto us = static_cast<float>(options_.us);
    void* parameters[] = {&us};
    for (int i = 0; i < options_.kernels; ++i) {
      if (think) Think(options_.think_us);
      if (!report_.Note(Launch(parameters))) return false;
    }
    return true;
  }

  cuda::Result Launch(void** parameters) {
    const unsigned blocks = options_.blocks;
    const unsigned threads = options_.threads_per_block;
    switch (options_.launch) {
      case JobLaunch::kPlain:
        return cuda_.launch(function_, blocks, 1, 1, threads, 1, 1, 0, stream_, parameters,
                            nullptr);
      case JobLaunch::kEx: {
        const cuda::LaunchConfig config{blocks, 1, 1, threads, 1, 1, 0, stream_, nullptr, 0};
        return cuda_.launch_ex(&config, function_, parameters, nullptr);
      }
      case JobLaunch::kCooperative:
        return cuda_.launch_cooperative(function_, blocks, 1, 1, threads, 1, 1, 0, stream_,
                                        parameters);
    }
    return cuda::kUnknown;
  }

  cuda::Result Synchronise() {
    switch (options_.sync) {
      case JobSync::kStream:
        return cuda_.stream_synchronize(stream_);
      case JobSync::kContext:
        return cuda_.context_synchronize();
      case JobSync::kEvent: {
        const auto recorded = cuda_.event_record(event_, stream_);
        return recorded == cuda::kSuccess ? cuda_.event_synchronize(event_) : recorded;
      }
      case JobSync::kQuery:
        return Poll([&] { return cuda_.stream_query(stream_); });
      case JobSync::kQueryEvent: {
        const auto recorded = cuda_.event_record(event_, stream_);
        return recorded == cuda::kSuccess ? Poll([&] { return cuda_.event_query(event_); })
                                          : recorded;
      }
      case JobSync::kHost: {
        // The job itself asks nobody.
        std::atomic<bool> done{false};
        const auto set = [](void* flag) { static_cast<std::atomic<bool>*>(flag)->store(true); };
        const auto result = cuda_.launch_host_function(stream_, set, &done);
        if (result != cuda::kSuccess) return result;
        return Poll([&] { return done.load() ? cuda::kSuccess : cuda::kNotReady; });
      }
      case JobSync::kCopy: {
        // A copy waits for the default stream only; one's own comes first.
        char bytes[64];
        if (stream_ != nullptr) {
          const auto result = cuda_.stream_synchronize(stream_);
          if (result != cuda::kSuccess) return result;
        }
        return cuda_.copy_to_host(bytes, answer_, sizeof(bytes));
      }
    }
    return cuda::kUnknown;
  }

  template <typename Ask>
  static cuda::Result Poll(Ask ask) {
    while (true) {
      const cuda::Result result = ask();
      if (result != cuda::kNotReady) return result;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  const Cuda& cuda_;
  const JobOptions& options_;
  cuda::Function function_;
  Report& report_;
  cuda::Stream stream_ = nullptr;
  std::array<cuda::Stream, 24> pool_ = {};
  std::size_t step_ = 0;
  cuda::GraphExec graph_ = nullptr;
  cuda::Event event_ = nullptr;
  cuda::DevicePointer answer_ = 0;
};

// Requests when they are due, or steps one after the other, until there were enough.
void RunLoop(const JobOptions& options, Worker& worker, unsigned long seed, Report& report) {
  constexpr long kTooManyErrors = 20;
  const Marks marks = options.marked ? FindMarks() : Marks{};
  std::mt19937_64 random(seed);
  const auto start = Clock::now();
  auto due = start;
  auto last_end = start;
  const auto is_over = [&](Clock::time_point now) {
    return options.secs > 0 && Seconds(now - start).count() >= options.secs;
  };
  for (long i = 0; (options.count == 0 || i < options.count) && !stop.load(); ++i) {
    if (options.rate > 0) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
      const double gap = -std::log(1 - uniform) * options.threads / options.rate;
      due += std::chrono::duration_cast<Clock::duration>(Seconds(gap));
      if (is_over(due)) break;
      std::this_thread::sleep_until(due);
    } else {
      due = Clock::now();
      if (is_over(due)) break;
    }
    if (marks.begin != nullptr) {
      const std::chrono::nanoseconds arrival = due.time_since_epoch();
      marks.begin(static_cast<std::uint64_t>(arrival.count()));
    }
    const bool went_well = worker.RunOnce();
    if (marks.end != nullptr) marks.end();
    const auto now = Clock::now();
    if (went_well) report.milliseconds.push_back(Seconds(now - due).count() * 1e3);
    report.longest_gap_ms = std::max(report.longest_gap_ms, Seconds(now - last_end).count() * 1e3);
    last_end = now;
    if (report.errors >= kTooManyErrors) break;
  }
  report.seconds = Seconds(Clock::now() - start).count();
}

// A child as data loaders have: it uses no CUDA but a call that must fail in peace.
pid_t ForkChild(const Cuda& cuda) {
  const pid_t child = fork();
  if (child != 0) return child;
  cuda::Context context = nullptr;
  _exit(cuda.get_current(&context) == cuda::kNotInitialized ? 0 : 1);
}

double Percentile(const std::vector<double>& sorted, double share) {
  if (sorted.empty()) return 0;
  const long place = std::lround(share * static_cast<double>(sorted.size() - 1));
  return sorted[static_cast<std::size_t>(place)];
}

void Print(const std::vector<Report>& reports, int child_status) {
  Report all;
  for (const Report& each : reports) {
    all.milliseconds.insert(all.milliseconds.end(), each.milliseconds.begin(),
                            each.milliseconds.end());
    if (all.first_error == 0) all.first_error = each.first_error;
    all.errors += each.errors;
    all.seconds = std::max(all.seconds, each.seconds);
    all.longest_gap_ms = std::max(all.longest_gap_ms, each.longest_gap_ms);
  }
  std::ranges::sort(all.milliseconds);
  double sum = 0;
  for (const double each : all.milliseconds) sum += each;
  const auto n = all.milliseconds.size();
  std::printf(
      "RESULT {\"n\": %zu, \"p50_ms\": %.3f, \"p95_ms\": %.3f, \"p99_ms\": %.3f, \"max_ms\": %.3f, "
      "\"ms_per_step\": %.3f, \"longest_gap_ms\": %.3f, \"seconds\": %.3f, \"errors\": %ld, "
      "\"first_error\": %d, \"child_status\": %d}\n",
      n, Percentile(all.milliseconds, 0.5), Percentile(all.milliseconds, 0.95),
      Percentile(all.milliseconds, 0.99), n == 0 ? 0 : all.milliseconds.back(),
      n == 0 ? 0 : sum / static_cast<double>(n), all.longest_gap_ms, all.seconds, all.errors,
      all.first_error, child_status);
}

struct Gpu {
  cuda::Context context = nullptr;
  cuda::Function function = nullptr;
};

// Sets a GPU up in the main thread. False with the error in `report`.
bool Prepare(const Cuda& cuda, const JobOptions& options, int number, Gpu& gpu, Report& report) {
  int device = 0;
  cuda::Module module = nullptr;
  const std::string name = options.nccl ? "ncclDevKernel_x" : "job_kernel";
  const std::string code = "kernel " + name + " param_us=1\n";
  cuda::DevicePointer memory = 0;
  return report.Note(cuda.init(0)) && report.Note(cuda.device_get(&device, number)) &&
         report.Note(cuda.primary_retain(&gpu.context, device)) &&
         report.Note(cuda.set_current(gpu.context)) &&
         report.Note(cuda.module_load(&module, code.c_str())) &&
         report.Note(cuda.module_function(&gpu.function, module, name.c_str())) &&
         (options.alloc == 0 || report.Note(cuda.memory_allocate(&memory, options.alloc)));
}

int Run(const JobOptions& options) {
  std::string problem;
  const auto cuda = FindCuda(options.lookup, options.stream == JobStream::kPerThread, problem);
  if (!cuda) {
    std::fprintf(stderr, "divvy-sim-job: %s\n", problem.c_str());
    return 2;
  }
  std::vector<Report> reports(static_cast<std::size_t>(options.threads));
  std::vector<Gpu> gpus(static_cast<std::size_t>(options.gpus));
  bool ready = true;
  for (std::size_t i = 0; i < gpus.size() && ready; ++i)
    ready = Prepare(*cuda, options, static_cast<int>(i), gpus[i], reports[0]);
  int child_status = 0;
  if (ready) {
    const pid_t child = options.fork_child ? ForkChild(*cuda) : 0;
    std::atomic<int> warming{options.threads};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < reports.size(); ++i) {
      threads.emplace_back([&, i] {
        const Gpu& gpu = gpus[i % gpus.size()];
        Worker worker(*cuda, options, gpu.function, reports[i]);
        const bool warm =
            reports[i].Note(cuda->set_current(gpu.context)) && worker.Prepare() && worker.RunOnce();
        if (warming.fetch_sub(1) == 1) {
          std::puts("READY");
          std::fflush(stdout);
        }
        if (warm) RunLoop(options, worker, options.seed + i, reports[i]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (child > 0) waitpid(child, &child_status, 0);
  }
  Print(reports, child_status);
  return std::ranges::all_of(reports, [](const Report& each) { return each.errors == 0; }) ? 0 : 1;
}

}  // namespace
}  // namespace divvy::tests

int main(int argc, char** argv) {
  std::signal(SIGTERM, [](int) { divvy::tests::stop.store(true); });
  std::string problem;
  const auto options = divvy::tests::ParseJobOptions(argc, argv, problem);
  if (!options) {
    std::fprintf(stderr, "divvy-sim-job: %s\n%s", problem.c_str(), divvy::tests::JobUsage());
    return 2;
  }
  return divvy::tests::Run(*options);
}
