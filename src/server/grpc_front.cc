#include "server/grpc_front.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text_safety.h"
#include "kserve/describe.h"
#include "kserve/grpc_infer.h"
#include "kserve/http_infer.h"
#include "kserve/status.h"
#include "net/target.h"
#include "server/admission.h"

namespace divvy::server {
namespace {

constexpr std::string_view kService = "/inference.GRPCInferenceService/";
constexpr std::string_view kHealth = "/grpc.health.v1.Health/Check";
constexpr std::string_view kStreamInfer = "/inference.GRPCInferenceService/ModelStreamInfer";
// The stream of a client that reads slower than it asks is ended once this much waits for it.
constexpr std::size_t kMostUnsent = 256 << 20;
// Requests of one stream under way.
constexpr std::size_t kMostPending = 1024;

std::vector<net::Slice> Slices(std::vector<kserve::Piece> pieces,
                               const std::shared_ptr<const void>& owner) {
  std::vector<net::Slice> slices;
  for (kserve::Piece& piece : pieces) {
    if (!piece.own.empty()) slices.emplace_back(std::move(piece.own));
    if (!piece.borrowed.empty()) slices.emplace_back(owner, piece.borrowed);
  }
  return slices;
}

Error ErrorOf(const net::HttpResponse& response) {
  return {kserve::ErrorCodeOf(response.status), kserve::ParseErrorJson(response.body.view())};
}

// What an answer is made of, kept until it is sent.
struct Parts {
  net::Slice body;
  std::shared_ptr<const std::string> storage;
};

}  // namespace

net::GrpcStatus StatusOf(const Error& error) {
  net::GrpcCode code = net::GrpcCode::kUnknown;
  switch (error.code) {
    case ErrorCode::kInvalidArgument:
      code = net::GrpcCode::kInvalidArgument;
      break;
    case ErrorCode::kNotFound:
      code = net::GrpcCode::kNotFound;
      break;
    case ErrorCode::kResourceExhausted:
      code = net::GrpcCode::kResourceExhausted;
      break;
    case ErrorCode::kFailedPrecondition:
      code = net::GrpcCode::kFailedPrecondition;
      break;
    case ErrorCode::kPermissionDenied:
      code = net::GrpcCode::kUnauthenticated;
      break;
    case ErrorCode::kUnavailable:
      code = net::GrpcCode::kUnavailable;
      break;
    case ErrorCode::kUnsupported:
      code = net::GrpcCode::kUnimplemented;
      break;
    case ErrorCode::kAborted:
      code = net::GrpcCode::kInternal;
      break;
  }
  return {code, error.message};
}

void GrpcFront::OnMessage(const std::shared_ptr<net::GrpcCall>& call, net::Slice message) {
  const std::string& token = service_.options.token;
  if (!token.empty() && call->method() != kHealth) {
    const auto given = std::ranges::find_if(
        call->metadata(), [](const auto& header) { return header.first == "authorization"; });
    if (given == call->metadata().end() || !HasToken(given->second, token)) {
      return call->Finish(
          {net::GrpcCode::kUnauthenticated, "a bearer token is required, and this is not it"});
    }
  }
  if (call->method() == kStreamInfer) {
    Stream& stream = streams_[call.get()];
    stream.call = call;
    ++stream.pending;
    return Infer(call, message, true);
  }
  if (call->messages() > 1) {
    if (!call->finished()) {
      call->Finish({net::GrpcCode::kInvalidArgument, "this call takes one message"});
    }
    return;
  }
  Unary(call, message);
}

// Triton's clients open their stream when they start.
bool GrpcFront::MayWait(const std::string& method) const { return method == kStreamInfer; }

void GrpcFront::OnHalfClose(const std::shared_ptr<net::GrpcCall>& call) {
  if (call->method() != kStreamInfer) {
    if (call->messages() == 0 && !call->finished()) {
      call->Finish({net::GrpcCode::kInvalidArgument, "this call takes a message"});
    }
    return;
  }
  Stream& stream = streams_[call.get()];
  stream.call = call;
  stream.half_closed = true;
  ++stream.pending;
  Answered(call, true);
}

void GrpcFront::OnCancelled(const std::shared_ptr<net::GrpcCall>& call) {
  streams_.erase(call.get());
}

void GrpcFront::Drain() {
  std::vector<std::shared_ptr<net::GrpcCall>> idle;
  for (const auto& [id, stream] : streams_) {
    if (stream.pending == 0) idle.push_back(stream.call);
  }
  for (const auto& call : idle) {
    streams_.erase(call.get());
    call->Finish({net::GrpcCode::kUnavailable, "the server ends"});
  }
}

void GrpcFront::Answered(const std::shared_ptr<net::GrpcCall>& call, bool streams) {
  if (!streams) return;
  const auto found = streams_.find(call.get());
  if (found == streams_.end()) return;  // Cancelled.
  if (--found->second.pending != 0) return;
  if (!found->second.half_closed && !service_.draining) return;
  const bool whole = found->second.half_closed;
  streams_.erase(found);
  if (whole) return call->Finish({});
  call->Finish({net::GrpcCode::kUnavailable, "the server ends"});
}

void GrpcFront::WriteError(const std::shared_ptr<net::GrpcCall>& call, const std::string& message) {
  if (call->cancelled() || call->finished()) return;
  std::vector<net::Slice> slices;
  slices.emplace_back(kserve::EncodeStreamError(message));
  const bool reads = call->unsent() <= kMostUnsent;
  if (reads && service_.HoldAnswer(slices)) return call->Write(std::move(slices));
  // One more error for each request would be room for as many as the client cares to send.
  streams_.erase(call.get());
  call->Finish(
      {net::GrpcCode::kResourceExhausted, reads ? "no room is left for the answers of this stream"
                                                : "the client does not read its answers"});
}

void GrpcFront::Unary(const std::shared_ptr<net::GrpcCall>& call, const net::Slice& message) {
  const std::string& method = call->method();
  if (method == kHealth) {
    // status = 1: SERVING or NOT_SERVING.
    std::string response = "\x08";
    response += service_.ready() ? '\x01' : '\x02';
    std::vector<net::Slice> slices;
    slices.emplace_back(std::move(response));
    call->Write(std::move(slices));
    return call->Finish({});
  }
  if (!method.starts_with(kService)) {
    return call->Finish({net::GrpcCode::kUnimplemented, "unknown service " + Quoted(method)});
  }
  const std::string_view name = std::string_view(method).substr(kService.size());
  if (name == "ModelInfer") return Infer(call, message, false);
  auto answer = Describe(name, message);
  if (!answer) return call->Finish(StatusOf(answer.error()));
  std::vector<net::Slice> slices;
  slices.emplace_back(std::move(*answer));
  if (const auto fits = service_.HoldAnswer(slices); !fits) {
    return call->Finish(StatusOf(fits.error()));
  }
  call->Write(std::move(slices));
  call->Finish({});
}

Result<std::string> GrpcFront::Describe(std::string_view method, const net::Slice& message) const {
  if (method == "ServerLive") return kserve::BoolProto(true);
  if (method == "ServerReady") return kserve::BoolProto(service_.ready());
  if (method == "ServerMetadata") return kserve::ToProto(service_.Describe());
  if (method == "RepositoryIndex") {
    const auto query = kserve::ParseIndexQuery(message.view());
    if (!query) return Fail(query.error());
    return kserve::ToProto(service_.Index(query->ready));
  }
  if (method == "RepositoryModelLoad" || method == "RepositoryModelUnload") {
    return Fail(ErrorCode::kUnavailable,
                "models are loaded and unloaded by the fleet file alone: edit it and send SIGHUP");
  }
  return DescribeModel(method, message);
}

Result<std::string> GrpcFront::DescribeModel(std::string_view method,
                                             const net::Slice& message) const {
  const bool known = method == "ModelReady" || method == "ModelMetadata" ||
                     method == "ModelConfig" || method == "ModelStatistics";
  if (!known) {
    return Fail(ErrorCode::kUnsupported, fmt::format("{} is not offered here", Quoted(method)));
  }
  const auto asked = kserve::ParseModelName(message.view());
  if (!asked) return Fail(asked.error());
  if (method == "ModelStatistics" && asked->name.empty()) {
    return kserve::ToProto(service_.Statistics(nullptr));
  }
  const auto model = FindModel(*service_.generation, asked->name, asked->version);
  if (!model) return Fail(model.error());
  if (method == "ModelReady") return kserve::BoolProto(service_.generation->IsReady(**model));
  if (method == "ModelStatistics") return kserve::ToProto(service_.Statistics(*model));
  if (!(*model)->metadata) {
    return Fail(ErrorCode::kUnavailable, fmt::format("model '{}' is not ready", asked->name));
  }
  const kserve::ModelConfig config = service_.ConfigOf(**model);
  return method == "ModelConfig" ? kserve::ToProto(config) : kserve::ToProto(config.metadata);
}

void GrpcFront::Infer(const std::shared_ptr<net::GrpcCall>& call, const net::Slice& message,
                      bool streams) {
  const TimePoint arrival = loop_.Clock();
  const auto refuse = [this, call, streams, arrival](const Error& error) {
    service_.LogAccess("grpc", "", StatusOf(error).message, loop_.Clock() - arrival);
    if (!streams) {
      if (!call->cancelled() && !call->finished()) call->Finish(StatusOf(error));
      return;
    }
    WriteError(call, error.message);
    Answered(call, true);
  };
  if (streams && streams_[call.get()].pending > kMostPending) {
    return refuse(
        {ErrorCode::kResourceExhausted, "too many requests of this stream are unanswered"});
  }
  auto hold = service_.Hold(message.size());
  if (!hold) return refuse(hold.error());
  if (call->unsent() > kMostUnsent) {
    return refuse({ErrorCode::kResourceExhausted, "the client does not read its answers"});
  }
  auto decoded = kserve::DecodeGrpcRequest(message.view());
  if (!decoded) {
    service_.metrics.Rejected("");
    return refuse(decoded.error());
  }
  auto inference = Admit(*service_.generation, decoded->request, arrival, call->deadline());
  if (!inference) {
    service_.metrics.Rejected(decoded->request.model);
    return refuse(inference.error());
  }
  // It is for us, and HTTP has no such word.
  std::erase_if(decoded->request.parameters,
                [](const auto& parameter) { return parameter.first.starts_with("triton_"); });
  const kserve::HttpMessage encoded = kserve::EncodeHttpRequest(decoded->request);
  net::HttpQuestion& question = inference->question;
  question.target = "/v2/models/" + net::EscapedPart(decoded->request.model) + "/infer";
  question.headers.emplace_back("Inference-Header-Content-Length",
                                std::to_string(encoded.head.size()));
  question.body.emplace_back(encoded.head);
  const auto keep = std::make_shared<Parts>(Parts{message, decoded->storage});
  for (const std::string_view tensor : encoded.tensors) question.body.emplace_back(keep, tensor);

  const bool timing = WantsTiming(decoded->request);
  const TimePoint deadline = inference->deadline;
  const Generation::Model* model = service_.generation->Find(decoded->request.model);
  inference->done = [this, call, refuse, streams, timing, arrival, deadline, model,
                     generation = service_.generation, held = *hold](Outcome outcome) {
    if (const auto* why = std::get_if<serving::Refusal>(&outcome)) {
      return refuse(server::ErrorOf(*why, *model));
    }
    const auto& answer = std::get<Answer>(outcome);
    if (answer.response.status != 200) return refuse(ErrorOf(answer.response));
    std::optional<std::size_t> length;
    if (const auto text =
            net::FindHeader(answer.response.headers, "Inference-Header-Content-Length")) {
      length = std::strtoull(std::string(*text).c_str(), nullptr, 10);
    }
    auto response = kserve::DecodeHttpResponse(answer.response.body.view(), length);
    if (!response) {
      return refuse({ErrorCode::kAborted, "the worker's answer: " + response.error().message});
    }
    if (call->cancelled() || call->finished()) {
      service_.metrics.Canceled(model->spec.name, answer.finished - arrival,
                                answer.finished <= deadline);
      return Answered(call, streams);
    }
    if (timing) {
      kserve::Parameters parameters =
          TimingOf(answer, arrival, deadline, generation->worker(answer.replica).name);
      response->response.parameters.insert(response->response.parameters.end(), parameters.begin(),
                                           parameters.end());
    }
    std::vector<kserve::Piece> pieces = kserve::EncodeGrpcResponse(response->response);
    if (streams) pieces = kserve::EncodeStreamResponse(std::move(pieces));
    const auto owner = std::make_shared<Parts>(Parts{answer.response.body, response->storage});
    std::vector<net::Slice> slices = Slices(std::move(pieces), owner);
    if (const auto fits = service_.HoldAnswer(slices); !fits) {
      service_.metrics.NoRoom(model->spec.name, answer.finished - arrival,
                              answer.finished <= deadline);
      return refuse(fits.error());
    }
    service_.LogAccess("grpc", model->spec.name, "OK", loop_.Clock() - arrival);
    call->Write(std::move(slices));
    if (!streams) return call->Finish({});
    Answered(call, true);
  };
  service_.generation->router().Infer(std::move(*inference));
}

}  // namespace divvy::server
