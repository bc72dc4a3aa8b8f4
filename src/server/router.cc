#include "server/router.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/check.h"

namespace divvy::server {
namespace {

// Between looks at what waits beyond hope and what hangs.
constexpr Duration kTick = std::chrono::milliseconds(5);
constexpr int kMostLosses = 3;
// Of a request's time: what is kept for its way from the client and back, which we do not see.
// Under overload batches are formed to end just in time, and without this they would end just too
// late.
constexpr int kShareForTheWay = 100;
constexpr Duration kMostForTheWay = std::chrono::milliseconds(2);

// What a worker has to do while its answers and our next batch are on their way. Each batch ahead
// is bound to it early, and runs after those before it, of which the dispatcher knows nothing: so
// they are few, and even full ones are done in this time.
constexpr Duration kAhead = std::chrono::microseconds(200);
constexpr Duration::rep kMostAhead = 7;

serving::Setup Down(serving::Setup setup) {
  for (serving::ReplicaSpec& replica : setup.replicas) {
    Check(replica.lanes == 1, "a replica is one worker");
    replica.up = false;
    const serving::LatencyTable& table = setup.tables[replica.table];
    replica.lanes += static_cast<int>(std::min(kAhead / table(table.max_batch()), kMostAhead));
  }
  return setup;
}

// "12 3400 5": microseconds for input, inference and output of a batch, as our worker says.
std::optional<std::array<std::uint64_t, 3>> ComputeOf(const net::HttpResponse& response) {
  const auto header = net::FindHeader(response.headers, "divvy-compute-us");
  if (!header) return {};
  std::array<std::uint64_t, 3> ns{};
  const char* at = header->data();
  const char* const end = at + header->size();
  for (std::uint64_t& value : ns) {
    double us = 0;
    const auto parsed = std::from_chars(at, end, us);
    if (parsed.ec != std::errc() || !(us >= 0) || us > 1e12) return {};
    value = static_cast<std::uint64_t>(us * 1000);
    at = parsed.ptr == end ? end : parsed.ptr + 1;
  }
  return ns;
}

net::HttpResponse PoisonAnswer() {
  net::HttpResponse response;
  response.status = 500;
  response.headers = {{"Content-Type", "application/json"}};
  response.body = net::Slice::Static(
      R"({"error":"three workers failed while they ran this request; it is not tried again"})");
  return response;
}

}  // namespace

Router::Router(net::Loop& loop, serving::Setup setup, const serving::RouteOptions& route,
               HangLimits hang, Tally& tally,
               std::function<void(serving::ReplicaId, Error why)> broken)
    : loop_(loop),
      setup_(Down(std::move(setup))),
      hang_(hang),
      tally_(tally),
      broken_(std::move(broken)),
      dispatcher_(setup_, route, *this, *this, loop.now()),
      backends_(setup_.replicas.size()),
      lanes_(static_cast<std::size_t>(dispatcher_.lanes())) {}

Router::~Router() {
  if (ticking_) loop_.Cancel(tick_);
}

void Router::Infer(Inference inference) {
  std::uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(inferences_.size());
    inferences_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
  }
  ++pending_;
  const Duration way =
      std::min((inference.deadline - inference.arrival) / kShareForTheWay, kMostForTheWay);
  const serving::Request request{.tag = slot,
                                 .model = inference.model,
                                 .batch = inference.items,
                                 .priority = inference.priority,
                                 .arrival = inference.arrival,
                                 .deadline = inference.deadline - way};
  inferences_[slot] = std::move(inference);
  dispatcher_.Submit(request, Now());
  KeepTicking();
  Deliver();
}

void Router::BringUp(serving::ReplicaId replica, std::unique_ptr<Backend> backend) {
  Check(!is_up(replica), "a replica that is down");
  this->backend(replica) = std::move(backend);
  dispatcher_.SetUp(replica, Now());
  Deliver();
}

void Router::TakeDown(serving::ReplicaId replica, bool failed) {
  if (is_up(replica)) Drop(replica, failed);
}

bool Router::IsBusy(serving::ReplicaId replica) {
  return std::ranges::any_of(lanes(replica), &Lane::running);
}

void Router::Drop(serving::ReplicaId replica, bool failed) {
  // A worker runs its batches in order: only the oldest can be why it failed.
  const Lane* guilty = nullptr;
  for (const Lane& lane : lanes(replica)) {
    if (failed && lane.running && (guilty == nullptr || lane.order < guilty->order)) guilty = &lane;
  }
  backend(replica)->Abandon();
  // May be reached from within the backend's callback.
  loop_.Post([gone = std::shared_ptr<Backend>(std::move(backend(replica)))] {});
  // Down first, or what failed would be tried there again.
  dispatcher_.SetDown(replica, Now());
  for (Lane& lane : lanes(replica)) {
    lane.hangs_at = TimePoint::max();
    ++lane.batches;
    if (!std::exchange(lane.running, false)) continue;
    tally_.Lost(replica);
    for (const std::uint64_t tag : lane.tags) inferences_[tag].losses += &lane == guilty ? 1 : 0;
    dispatcher_.Failed(static_cast<serving::LaneId>(&lane - lanes_.data()), Now());
  }
  Deliver();
}

int Router::up(serving::ModelId model) const {
  int count = 0;
  for (std::size_t i = 0; i < backends_.size(); ++i) {
    if (setup_.replicas[i].model == model && backends_[i] != nullptr) ++count;
  }
  return count;
}

void Router::WhenIdle(std::function<void()> idle) {
  idle_ = std::move(idle);
  Deliver();
}

void Router::Start(serving::LaneId id, std::span<const serving::Request> batch, int items,
                   Duration expected) {
  const serving::ReplicaId replica = dispatcher_.replica_of(id);
  Lane& lane = of(id);
  lane.tags.clear();
  questions_.clear();
  for (const serving::Request& request : batch) {
    lane.tags.push_back(request.tag);
    if (!IsPoison(request.tag)) questions_.push_back(&inferences_[request.tag].question);
  }
  lane.started = now_;
  lane.order = ++started_;
  lane.running = true;
  lane.expected = expected;
  lane.items = items;
  lane.hangs_at =
      now_ + std::max(hang_.least, Duration(static_cast<Duration::rep>(
                                       hang_.factor * static_cast<double>(expected.count()))));
  tally_.Started(replica, items);
  if (questions_.empty()) {
    loop_.Post([this, id, run = ++lane.batches] {
      if (run == of(id).batches) Ended(id, std::vector<net::HttpResponse>());
    });
    return;
  }
  ++lane.batches;
  backend(replica)->Run(questions_,
                        [this, id](auto responses) { Ended(id, std::move(responses)); });
}

// What has taken so many workers down with it is not given another. Two may be chance, as when
// somebody restarts one worker after the other.
bool Router::IsPoison(std::uint64_t tag) const { return inferences_[tag].losses >= kMostLosses; }

void Router::Ended(serving::LaneId id, Result<std::vector<net::HttpResponse>> responses) {
  const serving::ReplicaId replica = dispatcher_.replica_of(id);
  if (!responses) {
    // Where we could not connect, neither the worker nor what it was to run is to blame.
    Drop(replica, responses.error().code != ErrorCode::kResourceExhausted);
    broken_(replica, responses.error());
    return;
  }
  Lane& lane = of(id);
  lane.hangs_at = TimePoint::max();
  lane.running = false;
  // Exact, since what a batch took is learned from it.
  const TimePoint now = Now();
  const bool tells = !responses->empty() && std::ranges::all_of(*responses, [](const auto& answer) {
    return answer.status == 200;
  });
  if (tells) {
    tally_.Took(replica, lane.expected, now - lane.started);
    if (const auto ns = ComputeOf(responses->front())) tally_.Computed(replica, lane.items, *ns);
  }
  lane.responses.clear();
  auto next = responses->begin();
  for (const std::uint64_t tag : lane.tags) {
    if (IsPoison(tag)) {
      lane.responses.push_back(PoisonAnswer());
    } else {
      lane.responses.push_back(std::move(*next++));
    }
  }
  finishing_ = &lane;
  dispatcher_.Finished(id, now, tells);
  Deliver();
}

// With the deadline that the client knows.
serving::Request Router::AsAsked(serving::Request request) const {
  request.deadline = inferences_[request.tag].deadline;
  return request;
}

void Router::Answered(const serving::Request& request, const serving::Service& service) {
  Lane& lane = *finishing_;
  const auto at = std::ranges::find(lane.tags, request.tag) - lane.tags.begin();
  Answer answer{.response = std::move(lane.responses[static_cast<std::size_t>(at)]),
                .replica = service.replica,
                .started = service.started,
                .finished = service.finished,
                .batch_items = service.items};
  tally_.Answered(AsAsked(request), service, answer.response.status);
  outcomes_.emplace_back(std::move(inferences_[request.tag].done), std::move(answer));
  inferences_[request.tag] = {};
  free_.push_back(static_cast<std::uint32_t>(request.tag));
}

void Router::Refused(const serving::Request& request, serving::Refusal why, TimePoint now) {
  tally_.Refused(AsAsked(request), why, now);
  outcomes_.emplace_back(std::move(inferences_[request.tag].done), why);
  inferences_[request.tag] = {};
  free_.push_back(static_cast<std::uint32_t>(request.tag));
}

void Router::Deliver() {
  if (delivering_) return;
  delivering_ = true;
  while (!outcomes_.empty()) {
    auto batch = std::exchange(outcomes_, {});
    for (auto& [done, outcome] : batch) {
      --pending_;
      done(std::move(outcome));
    }
  }
  delivering_ = false;
  if (pending_ == 0 && idle_ != nullptr) std::exchange(idle_, nullptr)();
}

void Router::KeepTicking() {
  if (ticking_ || pending_ == 0) return;
  ticking_ = true;
  tick_ = loop_.At(loop_.now() + kTick, [this] {
    ticking_ = false;
    Tick();
  });
}

void Router::Tick() {
  const TimePoint now = Now();
  dispatcher_.Expire(now);
  std::vector<serving::ReplicaId> hung;
  for (std::size_t i = 0; i < backends_.size(); ++i) {
    const auto replica = static_cast<serving::ReplicaId>(i);
    const auto hangs = [now](const Lane& lane) { return lane.hangs_at <= now; };
    if (is_up(replica) && std::ranges::any_of(lanes(replica), hangs)) hung.push_back(replica);
  }
  for (const serving::ReplicaId replica : hung) {
    Drop(replica, true);
    broken_(replica, {ErrorCode::kUnavailable, "its batch takes far longer than expected"});
  }
  KeepTicking();
  Deliver();
}

}  // namespace divvy::server
