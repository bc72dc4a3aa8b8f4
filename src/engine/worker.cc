#include "engine/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "base/number.h"
#include "base/text_safety.h"
#include "divvy_gate.h"
#include "kserve/http_infer.h"
#include "net/target.h"

namespace divvy::engine {
namespace {

// Of one batch; also the most that one connection may have under way.
constexpr std::size_t kMostRequests = 65536;

net::HttpLimits Limits() {
  // The one client is the router, which holds clients to limits of its own.
  return {.head_bytes = 256 << 10,
          .body_bytes = std::size_t{8} << 30,
          .idle_time = std::chrono::hours(24 * 365),
          .pipelined = kMostRequests};
}

Duration Now() { return std::chrono::steady_clock::now().time_since_epoch(); }

net::HttpAnswer Json(std::string text, int status = 200) {
  return {.status = status,
          .headers = {{"Content-Type", "application/json"}},
          .body = {net::Slice(std::move(text))}};
}

net::HttpAnswer Fault(int status, std::string_view message) {
  return Json(kserve::ErrorJson(message), status);
}

// The whole number in a header; nothing without the header.
Result<std::optional<std::size_t>> NumberIn(const net::HttpRequest& request, std::string_view name,
                                            std::size_t least, std::size_t most) {
  const std::optional<std::string_view> value = net::FindHeader(request.headers, name);
  if (!value) return std::optional<std::size_t>();
  const std::optional<std::uint64_t> number = ParseUnsigned(*value);
  if (!number || *number < least || *number > most) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("header {}: {} is no whole number from {} to {}", name, Quoted(*value),
                            least, most));
  }
  return std::optional<std::size_t>(*number);
}

std::optional<Error> UnknownEncoding(const net::HttpRequest& request) {
  const auto encoding = net::FindHeader(request.headers, "content-encoding");
  if (!encoding || *encoding == "identity") return std::nullopt;
  return Error{ErrorCode::kUnsupported,
               fmt::format("content encoding {} is not undone here; send the body as it is",
                           Quoted(*encoding))};
}

}  // namespace

// Requests that run as one, and the ways back.
struct Worker::Batch {
  std::size_t wanted = 1;
  Duration arrived{};
  TimePoint whole{};  // When the last of it had come.
  std::vector<Question> questions;
  std::vector<std::unique_ptr<net::HttpReply>> replies;
  std::atomic<bool> gone{false};  // Who asked has closed the connection: nobody waits.
};

// What a target asks for: /v2/models/MODEL/versions/VERSION/WHAT, /v2/health/WHAT, ...
struct Worker::Path {
  enum class Kind { kUnknown, kServer, kHealth, kStatistics, kModel };
  Kind kind = Kind::kUnknown;
  std::string model = {};
  std::string version = {};
  std::string what = {};

  static Path Parse(std::string_view target) {
    const auto split = net::SplitPath(target);
    if (!split || split->empty() || split->front() != "v2") return {};
    const std::vector<std::string>& parts = *split;
    const std::size_t count = parts.size();
    if (count == 1) return {.kind = Kind::kServer};
    if (parts[1] == "health" && count == 3) return {.kind = Kind::kHealth, .what = parts[2]};
    if (parts[1] != "models" || count < 3) return {};
    if (parts[2] == "stats" && count == 3) return {.kind = Kind::kStatistics};
    Path path{.kind = Kind::kModel, .model = parts[2]};
    std::size_t next = 3;
    if (count >= 5 && parts[3] == "versions") {
      path.version = parts[4];
      next = 5;
    }
    if (next < count) path.what = parts[next++];
    if (next < count) return {};
    return path;
  }

  // Why the model is not the one that is served.
  std::optional<Error> Mismatch(const std::string& served) const {
    if (model != served) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("there is no model {} here, only '{}'", Quoted(model), served)};
    }
    if (version.empty() || version == "1") return std::nullopt;
    return Error{ErrorCode::kNotFound,
                 fmt::format("model '{}' has no version {}, only 1", served, Quoted(version))};
  }
};

Worker::Worker(net::Loop& loop, std::string model, Lane::MakeEngine make,
               std::function<void(Result<void>)> made)
    : loop_(loop),
      model_(std::move(model)),
      self_(std::make_shared<Worker*>(this)),
      server_(loop, Limits(), streams_,
              [this](net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
                Handle(std::move(request), std::move(reply));
              }),
      lane_(std::move(make), [this, made = std::move(made)](Result<Engine*> engine) {
        loop_.Post([self = std::weak_ptr(self_), made, engine = std::move(engine)] {
          const auto worker = self.lock();
          if (!worker) return;
          if (engine) (*worker)->Take(**engine);
          made(engine ? Result<void>() : Result<void>(Fail(engine.error())));
        });
      }) {
  statistics_.name = model_;
}

Worker::~Worker() = default;

void Worker::Take(Engine& engine) {
  description_ = std::make_unique<const Description>(engine.description());
  if (!engine.held_back()) return;
  engine_ = &engine;
  loop_.KeepTimeExactly();
}

void Worker::Serve(int listening) { server_.Serve(listening); }

void Worker::Drain(std::function<void()> done) {
  draining_ = true;
  for (auto& [connection, batch] : std::exchange(collecting_, {})) {
    Refuse(*batch, {ErrorCode::kUnavailable, "the worker is stopping"});
  }
  server_.Drain(std::move(done));
}

void Worker::Handle(net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
  const Path path = Path::Parse(request.target);
  if (path.kind == Path::Kind::kUnknown) return reply->Send(Fault(404, "Not Found"));
  const bool infers = path.kind == Path::Kind::kModel && path.what == "infer";
  if (request.method != (infers ? "POST" : "GET")) {
    return reply->Send(Fault(405, "Method Not Allowed"));
  }
  if (infers) return Infer(request, path, std::move(reply));
  reply->Send(Answer(path));
}

net::HttpAnswer Worker::Answer(const Path& path) const {
  switch (path.kind) {
    case Path::Kind::kServer:
      return Json(kserve::ToJson(kserve::ServerMetadata{
          .name = "divvy-worker",
          .version = DIVVY_VERSION,
          .extensions = {"classification", "model_configuration", "binary_tensor_data",
                         "parameters", "statistics"}}));
    case Path::Kind::kHealth:
      if (path.what == "live") return {};
      if (path.what != "ready") break;
      return {.status = ready() && !draining_ ? 200 : 400, .headers = {}, .body = {}};
    case Path::Kind::kStatistics:
      return Json(kserve::ToJson(std::vector{statistics_}));
    case Path::Kind::kModel:
      return AnswerForModel(path);
    case Path::Kind::kUnknown:
      break;
  }
  return Fault(404, "Not Found");
}

net::HttpAnswer Worker::AnswerForModel(const Path& path) const {
  if (const auto mismatch = path.Mismatch(model_)) return ErrorAnswer(*mismatch);
  if (path.what == "stats") return Json(kserve::ToJson(std::vector{statistics_}));
  if (!ready()) {
    return Fault(path.what == "ready" ? 400 : 503,
                 fmt::format("model '{}' is still loading", model_));
  }
  if (path.what == "ready") return {};
  if (path.what.empty()) return Json(kserve::ToJson(description_->metadata));
  if (path.what == "config") {
    return Json(kserve::ToJson(kserve::ModelConfig{.metadata = description_->metadata,
                                                   .backend = description_->backend,
                                                   .dynamic_batching = false,
                                                   .parameters = description_->parameters}));
  }
  return Fault(404, "Not Found");
}

void Worker::Infer(const net::HttpRequest& request, const Path& path,
                   std::unique_ptr<net::HttpReply> reply) {
  Question question{.body = request.body, .header_length = {}, .fault = path.Mismatch(model_)};
  if (!question.fault) question.fault = UnknownEncoding(request);
  auto length = NumberIn(request, "inference-header-content-length", 0, request.body.size());
  if (length) {
    question.header_length = *length;
  } else if (!question.fault) {
    question.fault = length.error();
  }

  const std::uint64_t connection = reply->connection();
  const auto count = NumberIn(request, "divvy-batch", 1, kMostRequests);
  auto found = collecting_.find(connection);
  if (found != collecting_.end() && (!count || *count)) {
    const std::shared_ptr<Batch> broken = std::move(found->second);
    collecting_.erase(found);
    Refuse(*broken, {ErrorCode::kInvalidArgument,
                     fmt::format("the batch was to be of {} requests, but after {} another began",
                                 broken->wanted, broken->questions.size())});
    found = collecting_.end();
  }
  if (!count && !question.fault) question.fault = count.error();

  std::shared_ptr<Batch> batch =
      found != collecting_.end() ? found->second : std::make_shared<Batch>();
  if (found == collecting_.end()) {
    batch->arrived = Now();
    batch->wanted = count ? count->value_or(1) : 1;
    if (batch->wanted > 1) collecting_[connection] = batch;
    reply->OnGone([self = std::weak_ptr(self_), weak = std::weak_ptr(batch), connection] {
      const auto worker = self.lock();
      const auto left = weak.lock();
      if (!worker || !left) return;
      left->gone = true;
      // Later, since dropping the batch ends the reply whose call this is.
      (*worker)->loop_.Post([self, connection, left] {
        const auto still = self.lock();
        if (!still) return;
        auto& collecting = (*still)->collecting_;
        const auto same = collecting.find(connection);
        if (same != collecting.end() && same->second == left) collecting.erase(same);
      });
    });
  }
  batch->questions.push_back(std::move(question));
  batch->replies.push_back(std::move(reply));
  if (batch->questions.size() < batch->wanted) return;
  collecting_.erase(connection);
  Start(std::move(batch));
}

void Worker::Start(std::shared_ptr<Batch> batch) {
  if (!ready() || draining_) {
    return Refuse(*batch, {ErrorCode::kUnavailable,
                           draining_ ? "the worker is stopping"
                                     : fmt::format("model '{}' is still loading", model_)});
  }
  if (engine_ == nullptr) return RunInLane(std::move(batch));
  batch->whole = loop_.now();
  waiting_.push_back(std::move(batch));
  if (!holding_) RunHere();
}

void Worker::RunInLane(std::shared_ptr<Batch> batch) {
  lane_.Post([this, batch = std::move(batch)](Engine& engine) mutable {
    Execution execution;
    const Duration started = Now();
    if (!batch->gone) {
      divvy_request_begin(static_cast<std::uint64_t>(batch->arrived.count()));
      execution = Execute(engine, batch->questions);
      divvy_request_end();
    }
    // Moved, not copied: replies end in the loop's thread.
    loop_.Post([self = std::weak_ptr(self_), batch = std::move(batch),
                execution = std::move(execution), started]() mutable {
      if (const auto worker = self.lock()) {
        (*worker)->Finish(*batch, std::move(execution), started);
      }
    });
  });
}

// Runs what waits until something is to be held back. The gate need not know: nothing of this is on
// a GPU.
void Worker::RunHere() {
  while (!waiting_.empty() && !holding_) {
    const std::shared_ptr<Batch> batch = std::move(waiting_.front());
    waiting_.pop_front();
    const Duration started = Now();
    Execution execution;
    if (!batch->gone) execution = Execute(*engine_, batch->questions);
    // From when it could begin, not from when we came to it: so our own delays do not add up.
    held_until_ = std::max(batch->whole, held_until_) + execution.held_back;
    if (held_until_ <= loop_.Clock()) {
      Finish(*batch, std::move(execution), started);
      continue;
    }
    holding_ = true;
    loop_.At(held_until_, [self = std::weak_ptr(self_), batch,
                           held = std::make_shared<Execution>(std::move(execution)), started] {
      const auto worker = self.lock();
      if (!worker) return;
      (*worker)->holding_ = false;
      (*worker)->Finish(*batch, std::move(*held), started);
      (*worker)->RunHere();
    });
  }
}

void Worker::Finish(Batch& batch, Execution execution, Duration started) {
  // Answers of a connection leave it in order, so that none goes before the first is there. Thus
  // they leave together, in one system call and for one reader.
  for (std::size_t i = execution.answers.size(); i-- > 0;) {
    batch.replies[i]->Send(std::move(execution.answers[i]));
  }
  for (const RunRecord& run : execution.runs) Count(run, batch, started);
  statistics_.fail.count += execution.refused;
  batch.replies.clear();
}

void Worker::Refuse(Batch& batch, const Error& error) {
  for (std::unique_ptr<net::HttpReply>& reply : batch.replies) {
    net::HttpAnswer answer = ErrorAnswer(error);
    AddRunHeaders(answer, {}, 0);
    reply->Send(std::move(answer));
  }
  statistics_.fail.count += batch.replies.size();
  batch.replies.clear();
}

void Worker::Count(const RunRecord& run, const Batch& batch, Duration started) {
  const auto add = [](kserve::DurationStat& to, std::uint64_t count, Duration each) {
    to.count += count;
    to.ns += count * static_cast<std::uint64_t>(each.count());
  };
  const std::uint64_t succeeded = run.requests - run.failed;
  const Duration whole = Now() - batch.arrived;
  statistics_.last_inference_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  add(statistics_.success, succeeded, whole);
  add(statistics_.fail, run.failed, whole);
  if (succeeded == 0) return;
  statistics_.inference_count += static_cast<std::uint64_t>(run.items);
  ++statistics_.execution_count;
  add(statistics_.queue, succeeded, started - batch.arrived);
  add(statistics_.compute_input, succeeded, run.times.input);
  add(statistics_.compute_infer, succeeded, run.times.infer);
  add(statistics_.compute_output, succeeded, run.times.output);
  kserve::ModelStatistics::Batch& by_items =
      statistics_.batches[static_cast<std::uint64_t>(run.items)];
  add(by_items.compute_input, 1, run.times.input);
  add(by_items.compute_infer, 1, run.times.infer);
  add(by_items.compute_output, 1, run.times.output);
}

}  // namespace divvy::engine
