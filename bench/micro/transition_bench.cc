#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <random>
#include <variant>
#include <vector>

#include "gpu/brute_force.h"
#include "gpu/catalogue.h"
#include "gpu/enumerate.h"
#include "gpu/fragmentation.h"
#include "gpu/transition.h"

// How long planning takes, beside how long it would take by searching the graph of
// all layouts, which is the obvious exact method. An iteration asks `queries`
// questions; `time_per_query` is what a caller waits for one.

namespace divvy::gpu {
namespace {

using Layout = std::vector<MigInstance>;

struct Query {
  std::vector<PresentInstance> present;
  std::vector<WantedInstance> wanted;
};

const GpuModel& A100() { return **FindGpuModel("A100-40GB"); }

// All ordered pairs of the maximal layouts, the target by profiles alone.
std::vector<Query> MaximalPairs(const GpuModel& model, ProfileSet set) {
  const auto maximal = EnumerateMaximalLayouts(model, model.Select(set));
  std::vector<Query> queries;
  for (const MigLayout& from : maximal) {
    for (const MigLayout& to : maximal) {
      Query query;
      for (const MigInstance& instance : from.instances()) query.present.push_back({instance});
      for (const MigInstance& instance : to.instances()) {
        query.wanted.push_back({instance.profile, std::nullopt});
      }
      queries.push_back(std::move(query));
    }
  }
  return queries;
}

int DestroyedByPlanner(const GpuModel& model, const std::vector<Query>& queries) {
  int destroyed = 0;
  for (const Query& query : queries) {
    const auto answer = PlanTransition(model, query.present, query.wanted);
    destroyed += std::get<Transition>(answer).destroyed;
  }
  return destroyed;
}

// What mig-parted does: clear the GPU unless everything is as wanted already.
int DestroyedByClearing(const std::vector<Query>& queries) {
  int destroyed = 0;
  for (const Query& query : queries) {
    Layout present;
    std::vector<ProfileIndex> wanted;
    for (const PresentInstance& each : query.present) present.push_back(each.instance);
    for (const WantedInstance& want : query.wanted) wanted.push_back(want.profile);
    if (ProfilesOf(present) != wanted) destroyed += static_cast<int>(present.size());
  }
  return destroyed;
}

// The fewest destroyed by 0-1 breadth-first search, the graph given.
int DestroyedByGraph(const brute_force::LayoutGraph& graph, const std::vector<Query>& queries) {
  int destroyed = 0;
  for (const Query& query : queries) {
    Layout present;
    for (const PresentInstance& each : query.present) present.push_back(each.instance);
    const auto destroys = graph.Destroys(graph.IndexOf(present), {});
    int least = brute_force::kUnreached;
    for (std::size_t i = 0; i < destroys.size(); ++i) {
      if (destroys[i] >= least || graph.layouts()[i].size() != query.wanted.size()) continue;
      const auto grant = brute_force::GrantOf(graph.model(), graph.layouts()[i], query.wanted);
      if (grant.instances == static_cast<int>(query.wanted.size())) least = destroys[i];
    }
    destroyed += least;
  }
  return destroyed;
}

void Report(benchmark::State& state, std::size_t queries) {
  const auto count = static_cast<double>(queries);
  state.counters["queries"] = count;
  state.counters["time_per_query"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

void BM_PlanAllMaximalPairs(benchmark::State& state, ProfileSet set) {
  const auto queries = MaximalPairs(A100(), set);
  const brute_force::LayoutGraph graph(A100(), A100().Select(set));

  const auto begin = std::chrono::steady_clock::now();
  const int least = DestroyedByGraph(graph, queries);
  const std::chrono::duration<double> graph_time = std::chrono::steady_clock::now() - begin;

  int destroyed = 0;
  std::chrono::duration<double> plan_time{};
  for ([[maybe_unused]] auto _ : state) {
    const auto start = std::chrono::steady_clock::now();
    destroyed = DestroyedByPlanner(A100(), queries);
    plan_time += std::chrono::steady_clock::now() - start;
  }
  if (destroyed != least) state.SkipWithError("the planner destroys more than it must");
  Report(state, queries.size());
  state.counters["destroyed"] = destroyed;
  state.counters["destroyed_by_clearing"] = DestroyedByClearing(queries);
  state.counters["times_faster_than_graph"] =
      graph_time.count() * static_cast<double>(state.iterations()) / plan_time.count();
}
BENCHMARK_CAPTURE(BM_PlanAllMaximalPairs, base, ProfileSet::kBase)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(BM_PlanAllMaximalPairs, with_double_memory, ProfileSet::kDouble)
    ->Unit(benchmark::kMillisecond);

// The baseline of the ratio above, on its own.
void BM_SearchGraphForAllMaximalPairs(benchmark::State& state) {
  const auto queries = MaximalPairs(A100(), ProfileSet::kBase);
  const brute_force::LayoutGraph graph(A100(), A100().Select(ProfileSet::kBase));
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(DestroyedByGraph(graph, queries));
  }
  Report(state, queries.size());
}
BENCHMARK(BM_SearchGraphForAllMaximalPairs)->Unit(benchmark::kMillisecond);

// Unreachable targets cost the most: the nearest layout is a search of its own.
void BM_PlanWithBusyInstances(benchmark::State& state) {
  auto queries = MaximalPairs(A100(), ProfileSet::kBase);
  std::mt19937 random(1);
  std::size_t unreachable = 0;
  for (Query& query : queries) {
    for (PresentInstance& each : query.present) each.busy = random() % 3 == 0;
    const auto answer = PlanTransition(A100(), query.present, query.wanted);
    unreachable += std::holds_alternative<Unreachable>(answer) ? 1 : 0;
  }
  for ([[maybe_unused]] auto _ : state) {
    for (const Query& query : queries) {
      benchmark::DoNotOptimize(PlanTransition(A100(), query.present, query.wanted));
    }
  }
  Report(state, queries.size());
  state.counters["unreachable"] = static_cast<double>(unreachable);
}
BENCHMARK(BM_PlanWithBusyInstances)->Unit(benchmark::kMillisecond);

// The most choice a search can have: every profile of a GPU wanted as often as it
// exists, anywhere on an empty GPU.
void BM_PlanTheImpossible(benchmark::State& state, const char* gpu) {
  const GpuModel& model = **FindGpuModel(gpu);
  std::vector<WantedInstance> wanted;
  for (const ProfileIndex profile : model.Select(ProfileSet::kAll)) {
    const int count = model.profile(profile).max_instances;
    wanted.insert(wanted.end(), static_cast<std::size_t>(count), {profile, std::nullopt});
  }
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(PlanTransition(model, {}, wanted));
  }
}
BENCHMARK_CAPTURE(BM_PlanTheImpossible, a100, "A100-40GB")->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_PlanTheImpossible, rtx_pro, "RTX-PRO-6000-Blackwell-96GB")
    ->Unit(benchmark::kMicrosecond);

void BM_DefragmentEveryLayout(benchmark::State& state) {
  const auto base = A100().Select(ProfileSet::kBase);
  std::vector<std::vector<PresentInstance>> presents;
  for (const MigLayout& layout : EnumerateLayouts(A100(), base)) {
    presents.emplace_back();
    for (const MigInstance& instance : layout.instances()) presents.back().push_back({instance});
  }
  for ([[maybe_unused]] auto _ : state) {
    for (const auto& present : presents) {
      for (const ProfileIndex wanted : base) {
        benchmark::DoNotOptimize(PlanDefragmentation(A100(), present, wanted));
      }
    }
  }
  Report(state, presents.size() * base.size());
}
BENCHMARK(BM_DefragmentEveryLayout)->Unit(benchmark::kMillisecond);

void BM_MeasureEveryLayout(benchmark::State& state) {
  const auto layouts = EnumerateLayouts(A100(), A100().Select(ProfileSet::kBase));
  for ([[maybe_unused]] auto _ : state) {
    for (const MigLayout& layout : layouts) benchmark::DoNotOptimize(MeasureFreeSpace(layout));
  }
  Report(state, layouts.size());
}
BENCHMARK(BM_MeasureEveryLayout)->Unit(benchmark::kMillisecond);

void BM_Enumerate(benchmark::State& state, const char* gpu, ProfileSet set) {
  const GpuModel& model = **FindGpuModel(gpu);
  const auto profiles = model.Select(set);
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(EnumerateLayouts(model, profiles));
  }
  state.counters["layouts"] = static_cast<double>(EnumerateLayouts(model, profiles).size());
}
BENCHMARK_CAPTURE(BM_Enumerate, a100_base, "A100-40GB", ProfileSet::kBase)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(BM_Enumerate, rtx_pro_all, "RTX-PRO-6000-Blackwell-96GB", ProfileSet::kAll)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace divvy::gpu
