#include "client/dialect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <utility>

#include "base/text_safety.h"
#include "kserve/grpc_infer.h"
#include "kserve/http_infer.h"
#include "kserve/json.h"
#include "kserve/wire.h"

namespace divvy::client {
namespace {

constexpr Duration kLookEvery = std::chrono::milliseconds(100);
constexpr int kAnyDimension = -1;

// A part of a path.
std::string Escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '_' || c == '.' || c == '~') {
      escaped += c;
    } else {
      fmt::format_to(std::back_inserter(escaped), "%{:02X}", byte);
    }
  }
  return escaped;
}

std::string PathOf(std::string_view model, std::string_view rest) {
  return fmt::format("/v2/models/{}{}", Escaped(model), rest);
}

net::Headers HeadersOf(const Dialect& dialect) {
  if (dialect.token.empty()) return {};
  return {{dialect.grpc ? "authorization" : "Authorization", "Bearer " + dialect.token}};
}

Call GrpcCall(const Dialect& dialect, std::string_view method, std::string message) {
  Call call{.target = fmt::format("/inference.GRPCInferenceService/{}", method),
            .headers = HeadersOf(dialect),
            .body = {}};
  call.body.emplace_back(std::move(message));
  return call;
}

Call HttpCall(const Dialect& dialect, std::string verb, std::string target) {
  return {.verb = std::move(verb),
          .target = std::move(target),
          .headers = HeadersOf(dialect),
          .body = {}};
}

// About a model: the field that all messages of this kind have.
Call AboutModel(const Dialect& dialect, const std::string& model, std::string_view method,
                std::string_view path) {
  if (!dialect.grpc) return HttpCall(dialect, "GET", PathOf(model, path));
  kserve::WireWriter writer;
  writer.Text(1, model);
  return GrpcCall(dialect, method, writer.Take());
}

Reply Ask(net::Loop& loop, Transport& transport, const Call& call, Duration patience) {
  std::optional<Reply> reply;
  transport.Send(call, [] {}, [&reply](Reply got) { reply = std::move(got); });
  const TimePoint limit = loop.Clock() + patience;
  while (!reply && loop.Clock() < limit) loop.Round(kLookEvery);
  if (reply) return std::move(*reply);
  transport.Drop();
  return {Outcome::kUnanswered, fmt::format("no answer within {:.3g} s", Seconds(patience)), {}};
}

Error ErrorOf(const Reply& reply, std::string_view what) {
  return {ErrorCode::kUnavailable, fmt::format("{}: {}", what, reply.reason)};
}

Result<std::vector<kserve::IndexEntry>> IndexOfJson(std::string_view json) {
  std::vector<kserve::IndexEntry> index;
  kserve::JsonReader reader(json);
  reader.BeginArray();
  while (reader.Item()) {
    kserve::IndexEntry& entry = index.emplace_back();
    reader.BeginObject();
    while (const auto key = reader.Key()) {
      if (*key == "name") {
        entry.name = reader.String().Text();
      } else if (*key == "state") {
        entry.state = reader.String().Text();
      } else {
        reader.Skip();
      }
    }
  }
  reader.End();
  if (!reader.ok()) return Fail(reader.error());
  return index;
}

Result<std::vector<kserve::IndexEntry>> IndexOfProto(std::string_view message) {
  std::vector<kserve::IndexEntry> index;
  kserve::WireReader reader(message, "RepositoryIndexResponse");
  while (const auto field = reader.Next()) {
    if (field->number != 1) continue;
    kserve::IndexEntry& entry = index.emplace_back();
    kserve::WireReader model(reader.Bytes(*field), "ModelIndex");
    while (const auto part = model.Next()) {
      if (part->number == 1) entry.name = model.Text(*part);
      if (part->number == 3) entry.state = model.Text(*part);
    }
    reader.Complain(model);
  }
  if (!reader.ok()) return Fail(reader.error());
  return index;
}

kserve::TensorMetadata TensorOfProto(kserve::WireReader& outer, const kserve::WireField& field) {
  kserve::TensorMetadata tensor;
  kserve::WireReader reader(outer.Bytes(field), "TensorMetadata");
  while (const auto part = reader.Next()) {
    if (part->number == 1) tensor.name = reader.Text(*part);
    if (part->number == 2) {
      const auto type = kserve::ParseDataType(reader.Text(*part));
      if (!type) reader.Complain("an unknown datatype");
      tensor.type = type.value_or(kserve::DataType::kFp32);
    }
    if (part->number == 3) {
      kserve::WireScalars scalars(reader, *part, kserve::WireType::kVarint);
      while (const auto value = scalars.Next()) {
        tensor.shape.push_back(static_cast<std::int64_t>(*value));
      }
    }
  }
  outer.Complain(reader);
  return tensor;
}

Result<std::vector<kserve::TensorMetadata>> InputsOfProto(std::string_view message) {
  std::vector<kserve::TensorMetadata> inputs;
  kserve::WireReader reader(message, "ModelMetadataResponse");
  while (const auto field = reader.Next()) {
    if (field->number == 4) inputs.push_back(TensorOfProto(reader, *field));
  }
  if (!reader.ok()) return Fail(reader.error());
  return inputs;
}

Result<std::vector<kserve::TensorMetadata>> InputsOf(const Dialect& dialect,
                                                     std::string_view answer) {
  if (dialect.grpc) return InputsOfProto(answer);
  auto metadata = kserve::ParseModelMetadata(answer);
  if (!metadata) return Fail(metadata.error());
  return std::move(metadata->inputs);
}

// max_batch_size of a config.
Result<int> MaxBatchOf(const Dialect& dialect, std::string_view answer) {
  if (!dialect.grpc) return kserve::ParseMaxBatch(answer);
  int max_batch = 0;
  kserve::WireReader reader(answer, "ModelConfigResponse");
  while (const auto field = reader.Next()) {
    if (field->number != 1) continue;
    kserve::WireReader config(reader.Bytes(*field), "ModelConfig");
    while (const auto part = config.Next()) {
      if (part->number == 4) max_batch = static_cast<int>(config.Varint(*part));
    }
    reader.Complain(config);
  }
  if (!reader.ok()) return Fail(reader.error());
  return max_batch;
}

Error NoSense(std::string_view what, const Error& error) {
  return {ErrorCode::kUnavailable, fmt::format("{}: {}", what, error.message)};
}

}  // namespace

Call InferCall(const Dialect& dialect, const kserve::InferRequest& request,
               const std::shared_ptr<const void>& owner) {
  Call call{.target = "", .headers = HeadersOf(dialect), .body = {}};
  if (dialect.grpc) {
    call.target = "/inference.GRPCInferenceService/ModelInfer";
    for (kserve::Piece& piece : kserve::EncodeGrpcRequest(request)) {
      if (!piece.own.empty()) call.body.emplace_back(std::move(piece.own));
      if (!piece.borrowed.empty()) call.body.emplace_back(owner, piece.borrowed);
    }
    return call;
  }
  call.target = PathOf(request.model, "/infer");
  kserve::HttpMessage message = kserve::EncodeHttpRequest(request);
  if (message.binary) {
    call.headers.emplace_back("Inference-Header-Content-Length",
                              std::to_string(message.head.size()));
  }
  call.headers.emplace_back("Content-Type",
                            message.binary ? "application/octet-stream" : "application/json");
  call.body.emplace_back(std::move(message.head));
  for (const std::string_view tensor : message.tensors) {
    if (!tensor.empty()) call.body.emplace_back(owner, tensor);
  }
  return call;
}

Result<std::vector<kserve::IndexEntry>> AskForModels(net::Loop& loop, Transport& transport,
                                                     const Dialect& dialect, Duration patience) {
  constexpr std::string_view kWhat = "asking the server for its models";
  const Call call = dialect.grpc ? GrpcCall(dialect, "RepositoryIndex", "")
                                 : HttpCall(dialect, "POST", "/v2/repository/index");
  const Reply reply = Ask(loop, transport, call, patience);
  if (reply.outcome != Outcome::kAnswered) return Fail(ErrorOf(reply, kWhat));
  auto index = dialect.grpc ? IndexOfProto(reply.body.view()) : IndexOfJson(reply.body.view());
  if (!index) return Fail(NoSense(kWhat, index.error()));
  return index;
}

Result<ModelFacts> AskForModel(net::Loop& loop, Transport& transport, const Dialect& dialect,
                               const std::string& model, Duration patience) {
  const std::string what = fmt::format("asking the server about model {}", Quoted(model));
  const Call about = AboutModel(dialect, model, "ModelMetadata", "");
  const Reply metadata = Ask(loop, transport, about, patience);
  if (metadata.outcome != Outcome::kAnswered) return Fail(ErrorOf(metadata, what));
  auto inputs = InputsOf(dialect, metadata.body.view());
  if (!inputs) return Fail(NoSense(what, inputs.error()));

  ModelFacts facts{.name = model, .inputs = std::move(*inputs)};
  const bool any_first =
      !facts.inputs.empty() && std::ranges::all_of(facts.inputs, [](const auto& input) {
        return !input.shape.empty() && input.shape.front() == kAnyDimension;
      });
  const Call config_call = AboutModel(dialect, model, "ModelConfig", "/config");
  const Reply config = Ask(loop, transport, config_call, patience);
  if (config.outcome != Outcome::kAnswered) {
    facts.batched = any_first;
    return facts;
  }
  const auto max_batch = MaxBatchOf(dialect, config.body.view());
  if (!max_batch) return Fail(NoSense(what, max_batch.error()));
  facts.max_batch = *max_batch;
  facts.batched = *max_batch > 0 && any_first;
  return facts;
}

}  // namespace divvy::client
