#include "sim/simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/random.h"
#include "sim/event_queue.h"
#include "sim/timeline.h"

namespace divvy::sim {
namespace {

using serving::LaneId;
using serving::ModelId;
using serving::Refusal;
using serving::ReplicaId;
using serving::Request;

// How often a server would look for requests beyond hope.
constexpr Duration kExpiryPeriod = std::chrono::milliseconds(5);

struct Event {
  enum class Kind : std::uint32_t { kArrival, kFinish, kUp, kDown, kExpiry };
  Kind kind;
  std::uint32_t index;  // Of the source, lane or replica.
};

class Simulation final : public serving::Executor, public serving::Listener {
 public:
  Simulation(const serving::Setup& setup, const serving::RouteOptions& route,
             std::span<const Source> sources, std::span<const Switch> switches,
             const Options& options)
      : setup_(setup),
        options_(options),
        sources_(sources),
        switches_(switches),
        sheds_(route.shed),
        noise_(options.seed ^ 0x5bd1e995),
        slot_(setup.models.size()),
        dispatcher_(setup, route, *this, *this, TimePoint{}) {
    Check(options.op == nullptr || options.slot > Duration(0), "a slot takes time");
    result_.models.resize(setup.models.size());
    result_.replicas.resize(setup.replicas.size());
    for (std::size_t i = 0; i < setup.replicas.size(); ++i) {
      const auto most = setup.tables[setup.replicas[i].table].max_batch();
      result_.replicas[i].by_items.resize(static_cast<std::size_t>(most));
    }
    if (options.timelines) {
      for (const serving::ReplicaSpec& spec : setup.replicas) timelines_.emplace_back(spec.lanes);
    }
    events_.Reserve(static_cast<std::size_t>(dispatcher_.lanes()) + sources.size() +
                    switches.size() + 1);
    streams_ = StreamsOf(sources, options.seed);
  }

  SimResult Run() {
    next_batch_.resize(streams_.size());
    for (std::uint32_t i = 0; i < streams_.size(); ++i) ScheduleArrival(i);
    for (const Switch& change : switches_) ScheduleSwitch(change);
    if (options_.warm_up == 0) counted_from_ = TimePoint{};
    while (!result_.gave_up && (TickIsDue() ? Tick() : Step())) {
    }
    Conclude();
    return std::move(result_);
  }

  // Executor.
  void Start(LaneId lane, std::span<const Request> batch, int items, Duration expected) override {
    Duration actual = expected;
    const ReplicaId replica = dispatcher_.replica_of(lane);
    if (!options_.spread.empty()) actual = Spread(expected, TableOf(replica));
    events_.Push(now_ + actual, {Event::Kind::kFinish, static_cast<std::uint32_t>(lane)});
    ++running_;
    if (options_.log != nullptr) {
      Log("start", "lane={} replica={} requests={} items={} takes_ms={:.6f}",
          static_cast<std::uint32_t>(lane), static_cast<std::uint32_t>(replica), batch.size(),
          items, Milliseconds(actual));
    }
    if (options_.timelines) timelines_[Index(replica)].Add(now_ - TimePoint{}, actual);
    if (!counted_from_) return;
    ReplicaResult& result = result_.replicas[Index(replica)];
    result.busy += actual;
    ++result.batches;
    result.requests += batch.size();
    result.items += static_cast<std::uint64_t>(items);
    ++result.by_items[static_cast<std::size_t>(items) - 1];
  }

  // Listener.
  void Answered(const Request& request, const serving::Service& service) override {
    const bool in_time = service.finished <= request.deadline;
    if (options_.log != nullptr) {
      Log("answer", "id={} latency_ms={:.6f} {}", request.tag,
          Milliseconds(service.finished - request.arrival), in_time ? "in-time" : "late");
    }
    if (options_.op != nullptr) ++(in_time ? SlotOf(request).in_time : SlotOf(request).late);
    if (request.tag < options_.warm_up) return;
    if (!in_time) CountMiss();
    ModelResult& model = result_.models[Index(request.model)];
    ++model.answered;
    model.in_time += in_time ? 1 : 0;
    model.latency.Add(service.finished - request.arrival);
  }

  void Refused(const Request& request, Refusal why, TimePoint /*now*/) override {
    if (options_.log != nullptr) Log("refuse", "id={} {}", request.tag, Describe(why));
    if (options_.op != nullptr) ++SlotOf(request).refused;
    if (request.tag < options_.warm_up) return;
    CountMiss();
    ++result_.models[Index(request.model)].refused[static_cast<std::size_t>(why)];
  }

 private:
  template <typename Id>
  static std::size_t Index(Id id) {
    return static_cast<std::size_t>(id);
  }

  SlotCounts& SlotOf(const Request& request) { return slot_[Index(request.model)]; }

  std::size_t TableOf(ReplicaId replica) const { return setup_.replicas[Index(replica)].table; }

  // A log-normal factor with mean 1.
  Duration Spread(Duration expected, std::size_t table) {
    const double sigma = options_.spread[table];
    if (sigma <= 0) return expected;
    const double factor = std::exp(sigma * noise_.Normal() - sigma * sigma / 2);
    const double ns = static_cast<double>(expected.count()) * factor;
    return std::max(Duration(1), Duration(static_cast<Duration::rep>(ns)));
  }

  void CountMiss() {
    ++missed_;
    if (options_.give_up_after && missed_ > *options_.give_up_after) result_.gave_up = true;
  }

  void ScheduleArrival(std::uint32_t source) {
    const auto arrival = streams_[source].Next();
    if (arrival && arrival->at > options_.duration) ended_by_time_ = true;
    if (!arrival || arrival->at > options_.duration) return;
    ++coming_;
    next_batch_[source] = arrival->batch;
    events_.Push(TimePoint(arrival->at), {Event::Kind::kArrival, source});
  }

  void ScheduleSwitch(const Switch& change) {
    events_.Push(change.at, {change.up ? Event::Kind::kUp : Event::Kind::kDown,
                             static_cast<std::uint32_t>(change.replica)});
  }

  // Ticks are not events of the queue: there they would come behind what was scheduled
  // for the same instant before them.
  bool TickIsDue() const {
    return options_.op != nullptr && (events_.empty() || events_.next().at >= next_tick_);
  }

  // True when a slot from now on may see a request, or is within the time that was set.
  bool IsUnderWay() const {
    if (running_ > 0 || dispatcher_.waiting() > 0) return true;
    if (arrived_ == options_.requests) return false;
    if (coming_ > 0) return true;
    return options_.duration != Duration::max() && now_ < TimePoint(options_.duration);
  }

  // False when it was the last tick, and with it the end of the run.
  bool Tick() {
    now_ = next_tick_;
    next_tick_ += options_.slot;
    const bool goes_on = IsUnderWay();
    asked_.clear();
    options_.op->Tick(now_, slot_, asked_);
    std::ranges::fill(slot_, SlotCounts{});
    for (const Switch& change : asked_) {
      Check(change.at >= now_, "an operator switches nothing in the past");
      Check(Index(change.replica) < setup_.replicas.size(), "an operator switches what is there");
      if (!goes_on) continue;
      if (change.at == now_) {
        TakeSwitch(change.replica, change.up);
      } else {
        ScheduleSwitch(change);
      }
    }
    return goes_on;
  }

  // False when nothing happens any more.
  bool Step() {
    if (events_.empty()) return false;
    const auto [at, order, what] = events_.next();
    events_.Pop();
    now_ = at;
    ++result_.events;
    Handle(what);
    return true;
  }

  void Handle(Event event) {
    switch (event.kind) {
      case Event::Kind::kArrival:
        return Arrive(event.index);
      case Event::Kind::kFinish:
        last_answer_ = end_ = now_;
        --running_;
        return dispatcher_.Finished(static_cast<LaneId>(event.index), now_);
      case Event::Kind::kUp:
      case Event::Kind::kDown:
        return TakeSwitch(static_cast<ReplicaId>(event.index), event.kind == Event::Kind::kUp);
      case Event::Kind::kExpiry:
        dispatcher_.Expire(now_);
        expiry_scheduled_ = false;
        return ScheduleExpiry();
    }
  }

  void Arrive(std::uint32_t index) {
    const Source& source = sources_[index];
    const int batch = next_batch_[index];
    --coming_;
    if (arrived_ == options_.requests) return;  // Of a slower source; the run is over without it.
    if (!counted_from_ && arrived_ == options_.warm_up) counted_from_ = now_;
    const Request request{arrived_++,      source.model, batch,
                          source.priority, now_,         now_ + source.slo};
    last_arrival_ = end_ = now_;
    if (options_.log != nullptr) {
      Log("arrive", "id={} model={} batch={}", request.tag, setup_.models[Index(source.model)],
          batch);
    }
    if (options_.op != nullptr) ++SlotOf(request).offered;
    if (request.tag >= options_.warm_up) ++result_.models[Index(source.model)].offered;
    dispatcher_.Submit(request, now_);
    ScheduleArrival(index);
    ScheduleExpiry();
  }

  void TakeSwitch(ReplicaId replica, bool up) {
    if (options_.log != nullptr) {
      Log(up ? "up" : "down", "replica={}", static_cast<std::uint32_t>(replica));
    }
    if (up) {
      dispatcher_.SetUp(replica, now_);
    } else {
      dispatcher_.SetDown(replica, now_);
    }
  }

  void ScheduleExpiry() {
    if (!sheds_ || expiry_scheduled_ || dispatcher_.waiting() == 0) return;
    expiry_scheduled_ = true;
    events_.Push(now_ + kExpiryPeriod, {Event::Kind::kExpiry, 0});
  }

  void Conclude() {
    // A run that its time ended lasted that long, though nothing may have come at the end.
    if (ended_by_time_) end_ = std::max(end_, TimePoint(options_.duration));
    const TimePoint from = counted_from_.value_or(end_);
    result_.counted = end_ - from;
    result_.drained = last_answer_ - std::min(last_answer_, last_arrival_);
    const double counted_s = std::max(Seconds(result_.counted), 1e-12);
    for (std::size_t i = 0; i < result_.replicas.size(); ++i) {
      ReplicaResult& replica = result_.replicas[i];
      replica.utilization =
          std::min(1.0, Seconds(replica.busy) / (counted_s * setup_.replicas[i].lanes));
      if (options_.timelines) replica.timeline = timelines_[i].Result(end_ - TimePoint{});
    }
  }

  template <typename... Args>
  void Log(std::string_view kind, fmt::format_string<Args...> format, Args&&... args) {
    fmt::memory_buffer line;
    fmt::format_to(std::back_inserter(line), "{}.{:09} {} ",
                   now_.time_since_epoch().count() / 1000000000,
                   now_.time_since_epoch().count() % 1000000000, kind);
    fmt::format_to(std::back_inserter(line), format, std::forward<Args>(args)...);
    line.push_back('\n');
    options_.log->Write({line.data(), line.size()});
  }

  const serving::Setup& setup_;
  const Options& options_;
  std::span<const Source> sources_;
  std::span<const Switch> switches_;
  bool sheds_;
  Random noise_;
  EventQueue<Event> events_;
  std::vector<workload::ArrivalStream> streams_;
  std::vector<int> next_batch_;  // By source: size of the arrival that is scheduled.
  std::vector<TimelineRecorder> timelines_;
  TimePoint now_{};
  TimePoint next_tick_{};
  std::vector<SlotCounts> slot_;  // By model: of the slot that now is, for the operator.
  std::vector<Switch> asked_;     // Scratch, for Tick.
  TimePoint last_arrival_{};
  TimePoint last_answer_{};
  TimePoint end_{};  // Of what counts as the run.
  bool ended_by_time_ = false;
  std::optional<TimePoint> counted_from_;
  std::size_t coming_ = 0;   // Arrivals that are scheduled.
  std::size_t running_ = 0;  // Batches.
  std::uint64_t arrived_ = 0;
  std::uint64_t missed_ = 0;
  bool expiry_scheduled_ = false;
  SimResult result_;
  serving::Dispatcher dispatcher_;
};

}  // namespace

std::vector<workload::ArrivalStream> StreamsOf(std::span<const Source> sources,
                                               std::uint64_t seed) {
  std::vector<workload::ArrivalStream> streams;
  streams.reserve(sources.size());
  Random seeds(seed);
  for (const Source& source : sources) {
    const std::uint64_t own = seeds.Bits();
    if (const auto* load = std::get_if<workload::Load>(&source.arrivals)) {
      streams.emplace_back(*load, own);
    } else {
      streams.emplace_back(std::get<std::span<const workload::Arrival>>(source.arrivals));
    }
  }
  return streams;
}

std::uint64_t ModelResult::shed() const {
  return std::accumulate(refused.begin(), refused.end(), std::uint64_t{0});
}

double ModelResult::attainment() const {
  return offered == 0 ? 1 : static_cast<double>(in_time) / static_cast<double>(offered);
}

Duration ModelResult::Quantile(double q) const {
  const std::uint64_t all = answered + shed();
  if (all == 0) return Duration(0);
  const double rank = std::ceil(q * static_cast<double>(all));
  if (rank > static_cast<double>(answered)) return Duration::max();
  return latency.Quantile(rank / static_cast<double>(answered));
}

double SimResult::Goodput(std::size_t model) const {
  const double seconds = Seconds(counted);
  return seconds <= 0 ? 0 : static_cast<double>(models[model].in_time) / seconds;
}

SimResult Simulate(const serving::Setup& setup, const serving::RouteOptions& route,
                   std::span<const Source> sources, std::span<const Switch> switches,
                   const Options& options) {
  return Simulation(setup, route, sources, switches, options).Run();
}

}  // namespace divvy::sim
