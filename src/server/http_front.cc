#include "server/http_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/text_safety.h"
#include "kserve/describe.h"
#include "kserve/http_infer.h"
#include "kserve/status.h"
#include "net/target.h"
#include "server/admission.h"
#include "server/compression.h"

namespace divvy::server {
namespace {

constexpr std::string_view kHeadLength = "Inference-Header-Content-Length";
// While a request's JSON is read nobody else is served: a few hundredths of a second at most.
constexpr std::size_t kMostJson = 8 << 20;
constexpr std::size_t kMostTraceParent = 128;
constexpr std::size_t kMostTraceState = 512;

net::HttpAnswer Json(std::string text, int status = 200) {
  net::HttpAnswer answer{
      .status = status, .headers = {{"Content-Type", "application/json"}}, .body = {}};
  answer.body.emplace_back(std::move(text));
  return answer;
}

net::HttpAnswer NotFound() { return Json(kserve::ErrorJson("Not Found"), 404); }

net::HttpAnswer NotAllowed(std::string_view verb) {
  net::HttpAnswer answer = Json(kserve::ErrorJson("Method Not Allowed"), 405);
  answer.headers.emplace_back("Allow", std::string(verb));
  return answer;
}

// Its number; nothing for none; an error for what is no length.
[[nodiscard]] Result<std::optional<std::size_t>> HeadLength(const net::HeaderViews& headers) {
  const auto text = net::FindHeader(headers, kHeadLength);
  if (!text) return std::optional<std::size_t>();
  std::size_t length = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), length);
  if (parsed.ec != std::errc() || parsed.ptr != text->data() + text->size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: {} is not a number of bytes", kHeadLength, Quoted(*text)));
  }
  return std::optional<std::size_t>(length);
}

// The body as it was before it was compressed.
[[nodiscard]] Result<net::Slice> PlainBody(const net::HttpRequest& request, std::size_t most) {
  const auto header = net::FindHeader(request.headers, "Content-Encoding");
  const auto encoding = ParseEncoding(header.value_or(""));
  if (!encoding) return Fail(encoding.error());
  if (*encoding == Encoding::kIdentity) return request.body;
  auto plain = Decompress(*encoding, request.body.view(), most);
  if (!plain) return Fail(plain.error());
  return net::Slice(std::move(*plain));
}

// What must go back with the answer, for as long as the request is under way.
struct Waiting {
  std::unique_ptr<net::HttpReply> reply;
  std::shared_ptr<Generation> generation;
  const Generation::Model* model = nullptr;
  TimePoint arrival{};
  TimePoint deadline{};
  Encoding encoding = Encoding::kIdentity;
  bool timing = false;
  bool shed_with_503 = false;
  std::string trace;
  Service* service = nullptr;
  std::shared_ptr<const void> held;
  bool gone = false;             // The client.
  kserve::InferRequest request;  // For timing alone.
};

void AddTiming(const Waiting& waiting, const Answer& answer, net::HttpAnswer& out) {
  const auto length = HeadLength(answer.response.headers);
  auto decoded =
      kserve::DecodeHttpResponse(answer.response.body.view(), length ? *length : std::nullopt);
  if (!decoded) return;
  kserve::Parameters timing = TimingOf(answer, waiting.arrival, waiting.deadline,
                                       waiting.generation->worker(answer.replica).name);
  kserve::Parameters& parameters = decoded->response.parameters;
  parameters.insert(parameters.end(), timing.begin(), timing.end());
  auto encoded = kserve::EncodeHttpResponse(decoded->response, waiting.request);
  if (!encoded) return;
  out.headers.clear();
  if (encoded->binary) {
    out.headers.emplace_back(kHeadLength, std::to_string(encoded->head.size()));
  }
  out.headers.emplace_back("Content-Type",
                           encoded->binary ? "application/octet-stream" : "application/json");
  out.body.clear();
  out.body.emplace_back(std::move(encoded->head));
  auto keep = std::make_shared<std::pair<net::Slice, std::shared_ptr<const std::string>>>(
      answer.response.body, decoded->storage);
  for (const std::string_view tensor : encoded->tensors) out.body.emplace_back(keep, tensor);
}

// Tensors in binary gain little, and while one answer is compressed no other is sent.
bool IsWorthCompressing(const net::HttpAnswer& answer) {
  constexpr std::size_t kMost = 1 << 20;
  const bool binary = std::ranges::any_of(
      answer.headers, [](const auto& header) { return header.first == kHeadLength; });
  std::size_t size = 0;
  for (const net::Slice& slice : answer.body) size += slice.size();
  return answer.status == 200 && !binary && size <= kMost;
}

void CompressBody(Encoding encoding, net::HttpAnswer& answer) {
  std::string whole;
  for (const net::Slice& slice : answer.body) whole += slice.view();
  answer.body.clear();
  answer.body.emplace_back(Compress(encoding, whole));
  answer.headers.emplace_back("Content-Encoding", std::string(Name(encoding)));
}

void Reply(Waiting& waiting, Outcome outcome, TimePoint now) {
  net::HttpAnswer out;
  if (const auto* why = std::get_if<serving::Refusal>(&outcome)) {
    out = ErrorAnswer(ErrorOf(*why, *waiting.model), waiting.shed_with_503);
    out.headers.emplace_back("divvy-shed-reason", std::string(serving::Describe(*why)));
  } else {
    auto& answer = std::get<Answer>(outcome);
    out.status = answer.response.status;
    for (const std::string_view name : {kHeadLength, std::string_view("Content-Type")}) {
      if (const auto value = net::FindHeader(answer.response.headers, name)) {
        out.headers.emplace_back(name, *value);
      }
    }
    out.body.push_back(answer.response.body);
    if (waiting.timing && out.status == 200) AddTiming(waiting, answer, out);
    if (waiting.encoding != Encoding::kIdentity && IsWorthCompressing(out)) {
      CompressBody(waiting.encoding, out);
    }
    const Duration took = answer.finished - waiting.arrival;
    const bool in_time = answer.finished <= waiting.deadline;
    if (waiting.gone && out.status == 200) {
      waiting.service->metrics.Canceled(waiting.model->spec.name, took, in_time);
    }
    waiting.held.reset();  // From here on it is the answer that takes room.
    if (const auto held = waiting.service->HoldAnswer(out.body); !held) {
      if (out.status == 200 && !waiting.gone) {
        waiting.service->metrics.NoRoom(waiting.model->spec.name, took, in_time);
      }
      out = ErrorAnswer(held.error(), waiting.shed_with_503);
      out.headers.emplace_back("divvy-shed-reason", std::string(Metrics::kNoRoom));
    }
  }
  if (!waiting.trace.empty()) out.headers.emplace_back("traceparent", waiting.trace);
  waiting.service->LogAccess("http", waiting.model->spec.name, std::to_string(out.status),
                             now - waiting.arrival);
  waiting.reply->Send(std::move(out));
}

}  // namespace

// "/v2/models/M/versions/1/infer", taken apart.
struct HttpFront::Path {
  std::vector<std::string> parts;
  std::string model;
  std::string version;
  std::string verb;  // After model and version: "infer", "".

  bool is(std::initializer_list<std::string_view> words) const {
    return std::equal(parts.begin(), parts.end(), words.begin(), words.end());
  }
  bool is_model() const { return !model.empty(); }

  explicit Path(std::vector<std::string> split) : parts(std::move(split)) {
    if (parts.size() < 3 || parts[0] != "v2" || parts[1] != "models") return;
    std::size_t next = 3;
    if (parts.size() >= 5 && parts[3] == "versions") {
      const bool digits = parts[4].find_first_not_of("0123456789") == std::string::npos;
      if (!digits || parts[4].empty()) return;
      version = parts[4];
      next = 5;
    }
    if (parts.size() > next + 1) return;
    if (parts.size() == next + 1) verb = parts[next];
    model = parts[2];
  }
};

net::HttpAnswer ErrorAnswer(const Error& error, bool shed_with_503) {
  net::HttpAnswer answer = Json(kserve::ErrorJson(error.message), kserve::HttpStatusOf(error.code));
  if (answer.status == 429) {
    if (shed_with_503) answer.status = 503;
    answer.headers.emplace_back("Retry-After", "1");
  }
  if (answer.status == 501) answer.headers.emplace_back("Accept-Encoding", "gzip, deflate");
  if (answer.status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  return answer;
}

void HttpFront::Handle(net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
  auto parts = net::SplitPath(request.target);
  if (!parts) return reply->Send(NotFound());
  const Path path(std::move(*parts));
  const bool health = path.parts.size() == 3 && path.parts[1] == "health";
  if (!service_.options.token.empty() && !health &&
      !HasToken(net::FindHeader(request.headers, "Authorization").value_or(""),
                service_.options.token)) {
    return reply->Send(ErrorAnswer(
        {ErrorCode::kPermissionDenied, "a bearer token is required, and this is not it"}));
  }
  if (path.is_model() && path.verb == "infer") {
    if (request.method != "POST") return reply->Send(NotAllowed("POST"));
    return Infer(request, path, std::move(reply));
  }
  net::HttpAnswer answer = Describe(request, path);
  if (const auto held = service_.HoldAnswer(answer.body); !held) {
    answer = ErrorAnswer(held.error(), service_.options.shed_with_503);
  }
  reply->Send(std::move(answer));
}

net::HttpAnswer HttpFront::Describe(const net::HttpRequest& request, const Path& path) const {
  if (path.parts.empty() || path.parts[0] != "v2") return NotFound();
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (path.parts.size() >= 2 && path.parts[1] == "repository") {
    if (path.parts.back() == "index" && path.parts.size() <= 4) {
      return request.method == "POST" ? Index(request) : NotAllowed("POST");
    }
    const bool loads = path.parts.back() == "load" || path.parts.back() == "unload";
    if (!loads || path.parts.size() < 5 || path.parts.size() > 6) return NotFound();
    if (request.method != "POST") return NotAllowed("POST");
    return ErrorAnswer({ErrorCode::kUnavailable,
                        "models are loaded and unloaded by the fleet file alone: edit it and send "
                        "SIGHUP"});
  }
  if (path.is({"v2"})) {
    return reads ? Json(kserve::ToJson(service_.Describe())) : NotAllowed("GET");
  }
  if (path.is({"v2", "health", "live"})) {
    return reads ? net::HttpAnswer{} : NotAllowed("GET");
  }
  if (path.is({"v2", "health", "ready"})) {
    if (!reads) return NotAllowed("GET");
    return {.status = service_.ready() ? 200 : 400, .headers = {}, .body = {}};
  }
  // Unless a model has that name, which then is meant.
  if (path.is({"v2", "models", "stats"}) && service_.generation->Find("stats") == nullptr) {
    return reads ? Json(kserve::ToJson(service_.Statistics(nullptr))) : NotAllowed("GET");
  }
  if (!path.is_model()) return NotFound();
  const bool known =
      path.verb.empty() || path.verb == "ready" || path.verb == "config" || path.verb == "stats";
  if (!known) return NotFound();
  return reads ? DescribeModel(path) : NotAllowed("GET");
}

net::HttpAnswer HttpFront::DescribeModel(const Path& path) const {
  const auto model = FindModel(*service_.generation, path.model, path.version);
  if (!model) return ErrorAnswer(model.error());
  const bool ready = service_.generation->IsReady(**model);
  if (path.verb == "ready") {
    if (ready) return {};
    return Json(kserve::ErrorJson(fmt::format("model '{}' is not ready", path.model)), 400);
  }
  if (path.verb == "stats") return Json(kserve::ToJson(service_.Statistics(*model)));
  if (!(*model)->metadata) {
    return Json(kserve::ErrorJson(fmt::format("model '{}' is not ready", path.model)), 503);
  }
  const kserve::ModelConfig config = service_.ConfigOf(**model);
  return Json(path.verb == "config" ? kserve::ToJson(config) : kserve::ToJson(config.metadata));
}

net::HttpAnswer HttpFront::Index(const net::HttpRequest& request) const {
  const auto query = kserve::ParseIndexBody(request.body.view());
  if (!query) return ErrorAnswer(query.error());
  return Json(kserve::ToJson(service_.Index(query->ready)));
}

void HttpFront::Infer(const net::HttpRequest& request, const Path& path,
                      std::unique_ptr<net::HttpReply> reply) {
  const TimePoint arrival = loop_.Clock();
  const auto refuse = [&](const Error& error, std::optional<int> status = {}) {
    service_.metrics.Rejected(path.model);
    net::HttpAnswer answer = ErrorAnswer(error, service_.options.shed_with_503);
    if (status) answer = Json(kserve::ErrorJson(error.message), *status);
    service_.LogAccess("http", Quoted(path.model), std::to_string(answer.status),
                       loop_.Clock() - arrival);
    reply->Send(std::move(answer));
  };
  const auto known = FindModel(*service_.generation, path.model, path.version);
  if (!known) return refuse(known.error());
  const auto length = HeadLength(request.headers);
  if (!length) return refuse(length.error());
  const auto body =
      PlainBody(request, std::min(service_.options.body_bytes, service_.options.pending_bytes));
  if (!body) {
    // As a body that comes so large: no reason to come again, unlike what there is no room for now.
    constexpr int kTooLarge = 413;
    const bool large = body.error().code == ErrorCode::kResourceExhausted;
    return refuse(body.error(), large ? std::optional(kTooLarge) : std::nullopt);
  }
  if (length->value_or(body->size()) > kMostJson) {
    return refuse(
        {ErrorCode::kInvalidArgument,
         fmt::format("JSON of more than {} MiB: send large tensors in binary", kMostJson >> 20)});
  }
  const auto hold = service_.Hold(body->size());
  if (!hold) return refuse(hold.error());
  const kserve::ModelMetadata* metadata = (*known)->metadata ? &*(*known)->metadata : nullptr;
  auto decoded = kserve::DecodeHttpRequest(body->view(), *length, kserve::Depth::kHead, metadata);
  if (!decoded) return refuse(decoded.error());
  decoded->request.model = path.model;
  decoded->request.version = path.version;
  auto inference = Admit(*service_.generation, decoded->request, arrival, {});
  if (!inference) return refuse(inference.error());

  net::HttpQuestion& question = inference->question;
  question.target = "/v2/models/" + net::EscapedPart(path.model) + "/infer";
  if (*length) question.headers.emplace_back(kHeadLength, std::to_string(**length));
  question.body.push_back(*body);
  auto waiting = std::make_shared<Waiting>();
  waiting->reply = std::move(reply);
  waiting->generation = service_.generation;
  waiting->model = *known;
  waiting->held = *hold;
  waiting->service = &service_;
  waiting->arrival = arrival;
  waiting->deadline = inference->deadline;
  waiting->shed_with_503 = service_.options.shed_with_503;
  if (const auto accepts = net::FindHeader(request.headers, "Accept-Encoding")) {
    waiting->encoding = PreferredEncoding(*accepts);
  }
  // Longer ones than the standard has are not passed on: a worker's limits are not the client's.
  const auto trace = net::FindHeader(request.headers, "traceparent");
  if (trace && trace->size() <= kMostTraceParent) {
    waiting->trace = *trace;
    question.headers.emplace_back("traceparent", waiting->trace);
    const auto state = net::FindHeader(request.headers, "tracestate");
    if (state && state->size() <= kMostTraceState) {
      question.headers.emplace_back("tracestate", *state);
    }
  }
  waiting->reply->OnGone([weak = std::weak_ptr(waiting)] {
    if (const auto to = weak.lock()) to->gone = true;
  });
  waiting->timing = WantsTiming(decoded->request);
  if (waiting->timing) waiting->request = std::move(decoded->request);
  inference->done = [waiting, &loop = loop_](Outcome outcome) {
    Reply(*waiting, std::move(outcome), loop.Clock());
  };
  service_.generation->router().Infer(std::move(*inference));
}

void MetricsFront::Handle(const net::HttpRequest& request, std::unique_ptr<net::HttpReply> reply,
                          const Metrics::Gauges& gauges) const {
  const auto parts = net::SplitPath(request.target);
  if (!parts || parts->size() != 1 || parts->front() != "metrics") return reply->Send(NotFound());
  if (request.method != "GET") return reply->Send(NotAllowed("GET"));
  net::HttpAnswer answer{
      .status = 200, .headers = {{"Content-Type", "text/plain; version=0.0.4"}}, .body = {}};
  answer.body.emplace_back(service_.metrics.Render(gauges));
  reply->Send(std::move(answer));
}

}  // namespace divvy::server
