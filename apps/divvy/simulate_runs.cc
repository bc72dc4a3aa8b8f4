#include "simulate_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

#include "sim/latency_bounded.h"

namespace divvy::app {
namespace {

// A search for the latency-bounded rate is about so many runs.
constexpr int kRunsPerSearch = 15;

// Fewer requests than this say nothing about 95 % of them, and a factor like this is
// what a search gives up at.
constexpr std::uint64_t kLeastForSearch = 1000;
constexpr double kBeyondMeasure = 1e5;

// The curve of a page: so many points, from a fifth of what the plan can carry to
// well beyond it.
constexpr int kCurvePoints = 8;
constexpr double kCurveFrom = 0.2;
constexpr double kCurveTo = 1.6;

// Enough for a p99 on a plot.
constexpr std::uint64_t kCurveRequests = 20000;

bool MakesCurve(const RunPlan& plan) { return plan.details && plan.factors.size() < 3; }

// Whether there is one load to be bounded: with a change on the way there are several.
bool CanBound(const CandidatePlan& candidate) { return candidate.plans.size() == 1; }

std::optional<Duration> QuantileOf(const sim::ModelResult& model, double q) {
  const Duration latency = model.Quantile(q);
  if (model.offered == 0 || latency == Duration::max()) return std::nullopt;
  return latency;
}

class Runner {
 public:
  Runner(const LoadedFleet& fleet, const Candidates& candidates, const RunPlan& plan,
         sim::EventLog* log, RunProgress& progress)
      : fleet_(fleet), candidates_(candidates), plan_(plan), log_(log), progress_(progress) {}

  Study Run() {
    for (std::size_t i = 0; i < candidates_.plans.size(); ++i) {
      for (std::size_t route = 0; route < plan_.routes.size(); ++route) RunPair(i, route);
    }
    return std::move(study_);
  }

 private:
  // One plan under one route.
  void RunPair(std::size_t plan, std::size_t route) {
    plan_index_ = plan;
    route_index_ = route;
    std::optional<double> bounded;
    if (plan_.bounded && CanBound(candidate())) bounded = Bound();
    const double nearest = *std::ranges::min_element(
        plan_.factors, {}, [](double factor) { return std::abs(std::log(factor)); });
    for (const double factor : plan_.factors) {
      const bool typical = factor == nearest;
      const sim::SimResult result =
          Simulate(factor, MostRequests(), log_, plan_.details && typical);
      AddRows(result, factor, bounded, study_.rows);
      if (typical) AddPartitions(result, factor);
      NoteLateChanges(result);
      if (typical) NoteOtherRates(result, factor);
    }
    if (MakesCurve(plan_)) AddCurve(bounded);
  }

  const CandidatePlan& candidate() const { return *candidates_.plans[plan_index_]; }
  const serving::RouteOptions& route() const { return plan_.routes[route_index_]; }

  std::uint64_t MostRequests() const {
    return plan_.requests.value_or(std::numeric_limits<std::uint64_t>::max());
  }

  std::vector<double> SpreadOf(const sim::StagedSetup& staged) const {
    if (plan_.spread.measured) return staged.spread;
    if (!plan_.spread.sigma) return {};
    return std::vector<double>(staged.spread.size(), *plan_.spread.sigma);
  }

  void Tell(std::string_view what) const {
    progress_.Show(fmt::format("{} {} {}", candidate().name, Describe(route()), what));
  }

  // Nothing when there are too few requests to ever be late.
  std::optional<double> Bound() {
    Tell("bounded rate");
    sim::SearchOptions options;
    options.requests = std::clamp(MostRequests(), kLeastForSearch, options.requests);
    options.seed = plan_.seed;
    options.spread = SpreadOf(candidate().staged);
    if (const auto all = RequestsOfTraces()) options.requests = std::min(options.requests, *all);
    options.duration = LengthOfTraces(fleet_.sources);
    const double factor =
        sim::LatencyBoundedFactor(candidate().staged.setup, route(), fleet_.sources, options);
    progress_.Advance(kRunsPerSearch);
    if (factor >= kBeyondMeasure) return std::nullopt;
    return factor;
  }

  // How many there are, where traces are all there is.
  std::optional<std::uint64_t> RequestsOfTraces() const {
    std::uint64_t all = 0;
    for (const sim::Source& source : fleet_.sources) {
      const auto* trace = std::get_if<std::span<const workload::Arrival>>(&source.arrivals);
      if (trace == nullptr) return std::nullopt;
      all += trace->size();
    }
    return all;
  }

  sim::SimResult Simulate(double factor, std::uint64_t requests, sim::EventLog* log,
                          bool timelines) {
    Tell(fmt::format("x{:.3g}", factor));
    std::vector<std::vector<workload::Arrival>> storage;
    std::vector<sim::Source> sources = fleet_.sources;
    if (factor != 1) sources = sim::Scaled(fleet_.sources, factor, storage);
    sim::Options options{.seed = plan_.seed, .requests = requests, .duration = plan_.duration};
    options.duration = std::min(options.duration, LengthOfTraces(sources));
    options.spread = SpreadOf(candidate().staged);
    options.timelines = timelines;
    options.log = log;
    const sim::StagedSetup& staged = candidate().staged;
    sim::SimResult result = sim::Simulate(staged.setup, route(), sources, staged.switches, options);
    progress_.Advance(1);
    return result;
  }

  // Beyond the last arrival of all traces the recipes of other models would go on
  // alone, and a rate over that time would be nobody's.
  static Duration LengthOfTraces(const std::vector<sim::Source>& sources) {
    std::optional<Duration> longest;
    for (const sim::Source& source : sources) {
      const auto* trace = std::get_if<std::span<const workload::Arrival>>(&source.arrivals);
      if (trace != nullptr) longest = std::max(longest.value_or(Duration(0)), trace->back().at);
    }
    return longest.value_or(Duration::max());
  }

  // The share of a run in which a replica takes requests.
  double ShareUp(std::size_t replica, Duration length) const {
    const sim::StagedSetup& staged = candidate().staged;
    TimePoint since = staged.setup.replicas[replica].up ? TimePoint{} : TimePoint(length);
    Duration up{};
    for (const sim::Switch& change : staged.switches) {
      if (static_cast<std::size_t>(change.replica) != replica) continue;
      const TimePoint at = std::min(change.at, TimePoint(length));
      if (!change.up) up += at - since;
      since = change.up ? at : TimePoint(length);
    }
    up += TimePoint(length) - since;
    return length > Duration(0) ? Seconds(up) / Seconds(length) : 1;
  }

  // Of the time in which it takes requests, not of the whole run.
  double UtilizationOf(const sim::SimResult& result, std::size_t replica) const {
    const double up = ShareUp(replica, result.counted);
    return up > 0 ? std::min(1.0, result.replicas[replica].utilization / up) : 0;
  }

  double UtilizationOfModel(const sim::SimResult& result, std::size_t model) const {
    double busy = 0;
    double size = 0;
    const std::vector<serving::ReplicaSpec>& replicas = candidate().staged.setup.replicas;
    for (std::size_t i = 0; i < replicas.size(); ++i) {
      if (static_cast<std::size_t>(replicas[i].model) != model) continue;
      busy += result.replicas[i].utilization * replicas[i].size;
      size += ShareUp(i, result.counted) * replicas[i].size;
    }
    return size > 0 ? std::min(1.0, busy / size) : 0;
  }

  void AddRows(const sim::SimResult& result, double factor, std::optional<double> bounded,
               std::vector<ModelRow>& rows) const {
    for (std::size_t i = 0; i < result.models.size(); ++i) {
      const sim::ModelResult& model = result.models[i];
      const double rate = fleet_.problem.models[i].rate;
      rows.push_back({.plan = plan_index_,
                      .route = route_index_,
                      .model = i,
                      .factor = factor,
                      .rate = rate * factor,
                      .offered = model.offered,
                      .p50 = QuantileOf(model, 0.50),
                      .p95 = QuantileOf(model, 0.95),
                      .p99 = QuantileOf(model, 0.99),
                      .attainment = model.attainment(),
                      .goodput = result.Goodput(i),
                      .shed = model.shed(),
                      .utilization = UtilizationOfModel(result, i)});
      if (bounded) rows.back().bounded_rps = rate * *bounded;
    }
  }

  PartitionRow NewPartition(double factor, std::size_t gpu, const plan::PlannedGpu& planned,
                            const plan::PlannedInstance& instance, TimePoint from) const {
    return {.plan = plan_index_,
            .route = route_index_,
            .factor = factor,
            .gpu = gpu,
            .gpu_name = plan::Describe(planned.gpu),
            .profile = instance.profile,
            .start = instance.start,
            .from = from};
  }

  void AddPartitions(const sim::SimResult& result, double factor) {
    std::vector<PartitionRow> rows;
    const CandidatePlan& from = candidate();
    for (std::size_t i = 0; i < result.replicas.size(); ++i) {
      const sim::StagedSetup::Origin& origin = from.staged.origins[i];
      const std::size_t gpu = from.planned[origin.stage].places[origin.replica].gpu;
      PartitionRow row =
          NewPartition(factor, gpu, from.GpuOf(i), from.InstanceOf(i), from.from[origin.stage]);
      const serving::ReplicaSpec& spec = from.staged.setup.replicas[i];
      const sim::ReplicaResult& replica = result.replicas[i];
      row.kind = PartitionRow::Kind::kModel;
      row.model = static_cast<std::size_t>(spec.model);
      row.runs = from.staged.setup.models[*row.model];
      row.processes = spec.lanes;
      row.max_batch = from.staged.setup.tables[spec.table].max_batch();
      row.utilization = UtilizationOf(result, i);
      row.requests = replica.requests;
      row.batches = replica.batches;
      row.items = replica.items;
      if (plan_.details) {
        row.by_items = replica.by_items;
        row.timeline = replica.timeline;
      }
      rows.push_back(std::move(row));
    }
    AddInstancesWithoutModels(factor, rows);
    std::stable_sort(rows.begin(), rows.end(), [](const PartitionRow& a, const PartitionRow& b) {
      return std::tuple(a.gpu, a.start.value_or(INT32_MAX), a.from) <
             std::tuple(b.gpu, b.start.value_or(INT32_MAX), b.from);
    });
    std::ranges::move(rows, std::back_inserter(study_.partitions));
  }

  // Of the plan that the run begins with: those that come later are often the same
  // ones, and none of them matters to a request.
  void AddInstancesWithoutModels(double factor, std::vector<PartitionRow>& rows) const {
    const plan::Plan& plan = candidate().plans.front();
    for (std::size_t gpu = 0; gpu < plan.gpus.size(); ++gpu) {
      for (const plan::PlannedInstance& instance : plan.gpus[gpu].instances) {
        PartitionRow row = NewPartition(factor, gpu, plan.gpus[gpu], instance, TimePoint{});
        if (instance.runs.empty()) rows.push_back(row);
        for (const plan::Assignment& run : instance.runs) {
          if (run.kind != plan::Assignment::Kind::kJob) continue;
          row.kind = PartitionRow::Kind::kJob;
          row.runs = run.name;
          row.processes = run.processes;
          row.utilization = 1;
          rows.push_back(row);
        }
      }
    }
  }

  void NoteLateChanges(const sim::SimResult& result) {
    if (candidate().plans.size() == 1) return;
    const TimePoint last_change = candidate().from.back();
    if (last_change <= TimePoint(result.counted)) return;
    Note(
        fmt::format("the change at {:.4g} s comes after the last request, at {:.4g} s; --requests "
                    "or --duration make a run longer",
                    Seconds(last_change.time_since_epoch()), Seconds(result.counted)));
  }

  // A run may be too short to see a whole day.
  void NoteOtherRates(const sim::SimResult& result, double factor) {
    if (result.counted <= Duration(0)) return;
    for (std::size_t i = 0; i < result.models.size(); ++i) {
      const planner::ModelDemand& model = fleet_.problem.models[i];
      const double came = static_cast<double>(result.models[i].offered) / Seconds(result.counted);
      const double expected = model.rate * factor;
      // Chance is about the root of the count; bursts make it more.
      const double count = static_cast<double>(result.models[i].offered);
      if (std::abs(came - expected) < std::max(0.1, 5 / std::sqrt(count + 1)) * expected) continue;
      Note(
          fmt::format("{}: {:.4g}/s came during the {:.4g} s of a run, not {:.4g}/s; --requests or "
                      "--duration make a run longer",
                      model.name, came, Seconds(result.counted), expected));
    }
  }

  // Once, though several runs may say it.
  void Note(const std::string& note) {
    if (std::ranges::find(study_.notes, note) == study_.notes.end()) study_.notes.push_back(note);
  }

  void AddCurve(std::optional<double> bounded) {
    const double unit = bounded.value_or(1) > 0 ? bounded.value_or(1) : 1;
    for (int i = 0; i < kCurvePoints; ++i) {
      const double factor = unit * (kCurveFrom + i * (kCurveTo - kCurveFrom) / (kCurvePoints - 1));
      const sim::SimResult result =
          Simulate(factor, std::min(MostRequests(), kCurveRequests), nullptr, false);
      AddRows(result, factor, bounded, study_.curve);
    }
  }

  const LoadedFleet& fleet_;
  const Candidates& candidates_;
  const RunPlan& plan_;
  sim::EventLog* log_;
  RunProgress& progress_;
  std::size_t plan_index_ = 0;  // Of the pair that is being run.
  std::size_t route_index_ = 0;
  Study study_;
};

}  // namespace

int CountRuns(const Candidates& candidates, const RunPlan& plan) {
  int runs = 0;
  for (const auto& candidate : candidates.plans) {
    int of_pair = static_cast<int>(plan.factors.size());
    if (plan.bounded && CanBound(*candidate)) of_pair += kRunsPerSearch;
    if (MakesCurve(plan)) of_pair += kCurvePoints;
    runs += of_pair * static_cast<int>(plan.routes.size());
  }
  return runs;
}

Study RunStudy(const LoadedFleet& fleet, const Candidates& candidates, const RunPlan& plan,
               sim::EventLog* log, RunProgress& progress) {
  progress.Begin(CountRuns(candidates, plan));
  Study study = Runner(fleet, candidates, plan, log, progress).Run();
  if (!MakesCurve(plan) && plan.details) study.curve = study.rows;
  return study;
}

}  // namespace divvy::app
