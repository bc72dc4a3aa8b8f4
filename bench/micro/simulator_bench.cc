// How fast the simulator is: requests a second on one core, over the number of
// requests and of GPUs, beside a baseline in the same run that only draws the
// arrivals and moves them through the event queue. And what one routing decision
// costs. Memory and allocations are counted, not guessed.
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <vector>

#include "serving/dispatcher.h"
#include "sim/event_queue.h"
#include "sim/simulation.h"

namespace {
std::uint64_t g_allocations = 0;  // NOLINT: the only way to count operator new's.
}  // namespace

void* operator new(std::size_t size) {
  ++g_allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*size*/) noexcept { std::free(memory); }

namespace divvy {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Seven instances a GPU on made-up latencies, five of size 1 and two of size 2: a
// batch takes 3 ms and 2 ms / size an item.
serving::Setup Gpus(int gpus) {
  serving::Setup setup;
  setup.models = {"model"};
  for (const int size : {1, 2}) {
    std::vector<Duration> times;
    for (int items = 1; items <= 32; ++items) {
      times.push_back(FromMilliseconds(3 + 2.0 * items / size));
    }
    setup.tables.emplace_back(times);
  }
  for (int gpu = 0; gpu < gpus; ++gpu) {
    for (int i = 0; i < 7; ++i) {
      setup.replicas.push_back({.size = i < 5 ? 1 : 2, .table = i < 5 ? 0U : 1U});
    }
  }
  return setup;
}

sim::Source LoadOf(int gpus) {
  workload::Load load;
  load.rate = 7 * gpus / 0.018 * 0.7;  // About 70 % busy.
  load.batches = workload::BatchDistribution::LogNormal(6, 0.9, 32);
  return {.model = serving::ModelId{0}, .slo = std::chrono::milliseconds(100), .arrivals = load};
}

struct Speed {
  double seconds;
  std::uint64_t allocations;
  sim::SimResult result;
};

Speed Run(int gpus, const char* route, std::uint64_t requests) {
  const serving::Setup setup = Gpus(gpus);
  const std::vector<sim::Source> sources = {LoadOf(gpus)};
  sim::Options options;
  options.requests = requests;
  const auto parsed = serving::ParseRoute(route);
  const std::uint64_t before = g_allocations;
  const auto begin = Clock::now();
  auto result = sim::Simulate(setup, *parsed, sources, {}, options);
  return {Since(begin), g_allocations - before, std::move(result)};
}

double Baseline(std::uint64_t requests) {
  const auto begin = Clock::now();
  workload::ArrivalStream stream(std::get<workload::Load>(LoadOf(8).arrivals), 1);
  sim::EventQueue<std::uint64_t> events;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < 56; ++i) events.Push(TimePoint(Duration(i)), i);
  for (std::uint64_t i = 0; i < requests; ++i) {
    const auto arrival = stream.Next();
    for (int event = 0; event < 2; ++event) {
      sum += events.next().what;
      events.Pop();
      events.Push(TimePoint(arrival->at + std::chrono::milliseconds(arrival->batch)), i);
    }
  }
  if (sum == 42) fmt::print("\n");  // Keeps the work.
  return Since(begin);
}

long PeakMib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss / 1024;
}

// A server's view: time from Submit to the choice, on a dispatcher in mid-load.
// False when one takes a microsecond or more.
bool Decisions() {
  struct Nobody final : serving::Executor, serving::Listener {
    void Start(serving::LaneId lane, std::span<const serving::Request>, int, Duration d) override {
      ends.Push(now + d, lane);
    }
    void Answered(const serving::Request&, const serving::Service&) override {}
    void Refused(const serving::Request&, serving::Refusal, TimePoint) override {}
    TimePoint now{};
    sim::EventQueue<serving::LaneId> ends;
  };
  bool met = true;
  fmt::print("\nA routing decision with 56 partitions (Submit, queueing included)\n");
  fmt::print("{:<16} {:>10} {:>10}\n", "route", "p50 ns", "p99 ns");
  const serving::Setup setup = Gpus(8);
  for (const char* route :
       {"elsa", "divvy", "fifs", "shortest-queue", "weighted", "elsa+merge+shed"}) {
    Nobody nobody;
    serving::Dispatcher dispatcher(setup, *serving::ParseRoute(route), nobody, nobody, {});
    workload::ArrivalStream stream(std::get<workload::Load>(LoadOf(8).arrivals), 1);
    std::vector<double> times;
    for (std::uint64_t i = 0; i < 200000; ++i) {
      const auto arrival = stream.Next();
      const TimePoint now(arrival->at);
      while (!nobody.ends.empty() && nobody.ends.next().at <= now) {
        const auto event = nobody.ends.next();
        nobody.ends.Pop();
        nobody.now = event.at;
        dispatcher.Finished(event.what, event.at);
      }
      nobody.now = now;
      const serving::Request request{i, {},  arrival->batch,
                                     0, now, now + std::chrono::milliseconds(100)};
      const auto begin = Clock::now();
      dispatcher.Submit(request, now);
      times.push_back(Since(begin) * 1e9);
    }
    std::ranges::sort(times);
    met = met && times[times.size() / 2] < 1000;
    fmt::print("{:<16} {:>10.0f} {:>10.0f}\n", route, times[times.size() / 2],
               times[times.size() * 99 / 100]);
  }
  return met;
}

// Eight models, each on five partitions; with `all`, on those of 112 that a controller could
// bring up, the rest of which are down.
serving::Setup Places(bool all) {
  serving::Setup setup;
  for (const int size : {1, 2, 3, 4, 7}) {
    std::vector<Duration> times;
    for (int items = 1; items <= 32; ++items) {
      times.push_back(FromMilliseconds(3 + 2.0 * items / size));
    }
    setup.tables.emplace_back(times);
  }
  for (std::uint32_t model = 0; model < 8; ++model) {
    setup.models.push_back(fmt::format("model-{}", model));
    for (std::size_t i = 0; i < 112; ++i) {
      const bool up = i % 23 == 0;
      if (!up && !all) continue;
      setup.replicas.push_back({.model = serving::ModelId{model},
                                .size = static_cast<int>(i % 5),
                                .table = i % 5,
                                .up = up});
    }
  }
  return setup;
}

// What replicas that are down cost those that are up. False when it is more than a fifth.
bool Sleepers() {
  std::vector<sim::Source> sources;
  for (std::uint32_t model = 0; model < 8; ++model) {
    sources.push_back(LoadOf(1));
    sources.back().model = serving::ModelId{model};
  }
  const serving::Setup awake = Places(false);
  const serving::Setup all = Places(true);
  fmt::print("\nPartitions that are down: 40 up of {} against 40 of 40, nanoseconds a request\n",
             all.replicas.size());
  fmt::print("{:<16} {:>10} {:>10} {:>10}\n", "route", "40 of 40", "of all", "x");
  bool met = true;
  for (const char* route :
       {"elsa", "divvy", "fifs", "shortest-queue", "weighted", "elsa+merge+shed"}) {
    std::array<double, 2> least = {1e9, 1e9};
    std::array<std::uint64_t, 2> in_time{};
    for (int round = 0; round < 20; ++round) {
      for (const std::size_t which : {0, 1}) {
        const auto begin = Clock::now();
        const auto result = sim::Simulate(which == 0 ? awake : all, *serving::ParseRoute(route),
                                          sources, {}, {.requests = 50000});
        least[which] = std::min(least[which], Since(begin) / 50000 * 1e9);
        in_time[which] = result.models[0].in_time;
      }
    }
    const double times = least[1] / least[0];
    met = met && times < 1.2 && in_time[0] == in_time[1];
    fmt::print("{:<16} {:>10.0f} {:>10.0f} {:>10.2f}\n", route, least[0], least[1], times);
  }
  return met;
}

}  // namespace
}  // namespace divvy

int main() {
  using divvy::Run;
  const double baseline = divvy::Baseline(1000000);
  fmt::print("Baseline (arrivals and event queue only): {:.2f} million requests a second\n\n",
             1 / baseline);
  fmt::print("{:<16} {:>7} {:>10} {:>9} {:>12} {:>10} {:>12} {:>9}\n", "route", "GPUs", "requests",
             "seconds", "requests/s", "baseline x", "allocations", "peak MiB");
  const auto row = [&](const char* route, int gpus, std::uint64_t requests) {
    const auto speed = Run(gpus, route, requests);
    fmt::print("{:<16} {:>7} {:>10} {:>9.3f} {:>12.0f} {:>10.2f} {:>12} {:>9}\n", route, gpus,
               requests, speed.seconds, static_cast<double>(requests) / speed.seconds,
               speed.seconds / (baseline * static_cast<double>(requests) / 1e6), speed.allocations,
               divvy::PeakMib());
    std::fflush(stdout);
    return speed;
  };
  const auto few = row("elsa", 8, 100000);
  const auto some = row("elsa", 8, 1000000);
  const long peak = divvy::PeakMib();
  const auto many = row("elsa", 8, 10000000);
  const bool flat = divvy::PeakMib() <= peak + 1 && many.allocations == few.allocations;
  for (const char* route : {"divvy", "fifs", "shortest-queue", "weighted"}) row(route, 8, 1000000);
  for (const char* route : {"elsa", "divvy"}) row(route, 10000, 2000000);
  const bool quick = divvy::Decisions();
  const bool sleep = divvy::Sleepers();

  const double speed = 1e6 / some.seconds;
  const double growth = many.seconds / (100 * few.seconds);
  const auto bar = [](bool met, const std::string& what) {
    fmt::print("{:<7}{}\n", met ? "met" : "MISSED", what);
    return met;
  };
  fmt::print("\n");
  bool all =
      bar(speed >= 2e6,
          fmt::format("elsa, 8 GPUs: at least 2 million requests a second: {:.2f}", speed / 1e6));
  all = bar(growth < 1.3,
            fmt::format("time for 1e7 requests / 100 times that for 1e5: {:.2f}", growth)) &&
        all;
  all = bar(flat, "memory and allocations the same for 1e5 and 1e7 requests") && all;
  all = bar(quick, "a decision with 56 partitions takes less than 1 us at the median") && all;
  all = bar(sleep, "partitions that are down cost less than a fifth, and change nothing") && all;
  return all ? 0 : 1;
}
