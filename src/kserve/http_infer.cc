#include "kserve/http_infer.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <variant>

#include "base/text_safety.h"
#include "kserve/http_fields.h"
#include "kserve/json.h"
#include "kserve/json_tensor.h"
#include "kserve/json_writer.h"

namespace divvy::kserve {
namespace {

constexpr std::string_view kBinaryOutput = "binary_data_output";
constexpr std::string_view kBinary = "binary_data";

// A body's two parts.
struct Parts {
  std::string_view head;
  std::string_view binary;
};

Result<Parts> Split(std::string_view body, std::optional<std::size_t> header_length) {
  if (!header_length) return Parts{body, {}};
  if (*header_length > body.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("Inference-Header-Content-Length is {}, but the body has {} bytes",
                            *header_length, body.size()));
  }
  return Parts{body.substr(0, *header_length), body.substr(*header_length)};
}

RequestedOutput ReadRequestedOutput(JsonReader& reader) {
  RequestedOutput output;
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "name") {
      output.name = reader.String().Text();
    } else if (*key == "parameters") {
      output.parameters = ReadParameters(reader);
    } else {
      reader.Skip();
    }
  }
  return output;
}

std::vector<RequestedOutput> ReadRequestedOutputs(JsonReader& reader) {
  std::vector<RequestedOutput> outputs;
  reader.BeginArray();
  while (reader.Item()) {
    if (outputs.size() == kMostTensors) {
      reader.Complain(fmt::format("more than {} outputs", kMostTensors));
    }
    outputs.push_back(ReadRequestedOutput(reader));
  }
  return outputs;
}

Result<void> CheckFlag(const Parameters& parameters, std::string_view name) {
  const Parameter* value = Find(parameters, name);
  if (value == nullptr || std::holds_alternative<bool>(*value)) return {};
  return Fail(ErrorCode::kInvalidArgument, fmt::format("parameter {} must be true or false", name));
}

Result<void> CheckFlags(const InferRequest& request) {
  if (auto fine = CheckFlag(request.parameters, kBinaryOutput); !fine) return fine;
  for (const RequestedOutput& output : request.outputs) {
    if (auto fine = CheckFlag(output.parameters, kBinary); !fine) return fine;
  }
  return {};
}

// Whether a flag is set; `otherwise` where it is not there, or no flag (over gRPC it may be
// anything).
bool Flag(const Parameters& parameters, std::string_view name, bool otherwise) {
  const Parameter* value = Find(parameters, name);
  const bool* flag = value != nullptr ? std::get_if<bool>(value) : nullptr;
  return flag != nullptr ? *flag : otherwise;
}

bool WantsBinary(const InferRequest& request, std::string_view output_name) {
  const bool otherwise = Flag(request.parameters, kBinaryOutput, false);
  for (const RequestedOutput& output : request.outputs) {
    if (output.name == output_name) return Flag(output.parameters, kBinary, otherwise);
  }
  return otherwise;
}

// Fills in the one dimension that a body's length decides. `shape` is without the batch.
Result<void> FitShape(DataType type, std::size_t body_bytes, std::span<std::int64_t> shape) {
  std::int64_t* open = nullptr;
  std::size_t fixed_bytes = SizeOf(type);
  for (std::int64_t& dimension : shape) {
    if (dimension >= 0) {
      if (__builtin_mul_overflow(fixed_bytes, static_cast<std::size_t>(dimension), &fixed_bytes)) {
        return Fail(ErrorCode::kInvalidArgument, "the model's input has too many elements");
      }
      continue;
    }
    if (open != nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  "a raw request needs an input with at most one dimension of any size");
    }
    open = &dimension;
  }
  if (open == nullptr) return {};
  if (type == DataType::kBytes) {
    *open = 1;
    return {};
  }
  if (fixed_bytes == 0 || body_bytes % fixed_bytes != 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("a raw request's {} bytes are no multiple of {}", body_bytes, fixed_bytes));
  }
  *open = static_cast<std::int64_t>(body_bytes / fixed_bytes);
  return {};
}

// The whole body is the one input's tensor.
Result<HttpInfer> DecodeRaw(std::string_view body, const ModelMetadata* model) {
  if (model == nullptr || model->inputs.size() != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                model == nullptr
                    ? std::string("a raw request needs a model that is known")
                    : fmt::format("a raw request needs a model with one input, {} has {}",
                                  Quoted(model->name), model->inputs.size()));
  }
  const TensorMetadata& input = model->inputs.front();
  Tensor tensor{.name = input.name, .type = input.type, .shape = input.shape, .bytes = body};
  std::span<std::int64_t> rest(tensor.shape);
  if (model->max_batch > 0 && !rest.empty()) {
    rest.front() = 1;
    rest = rest.subspan(1);
  }
  if (auto fitted = FitShape(tensor.type, body.size(), rest); !fitted) return Fail(fitted.error());

  HttpInfer infer;
  if (tensor.type == DataType::kBytes) {
    // The body is the only element, without the length that elements have elsewhere.
    const auto count = CountOf(tensor.shape);
    if (!count || *count != 1 || body.size() > std::numeric_limits<std::uint32_t>::max()) {
      return Fail(ErrorCode::kInvalidArgument,
                  "a raw request with BYTES needs an input of one element");
    }
    const auto length = static_cast<std::uint32_t>(body.size());
    auto element = std::make_shared<std::string>(sizeof length, '\0');
    std::memcpy(element->data(), &length, sizeof length);
    element->append(body);
    tensor.bytes = *element;
    infer.storage = std::move(element);
  }
  if (auto fits = CheckSize(tensor.type, tensor.shape, tensor.bytes.size(), tensor.name); !fits) {
    return Fail(fits.error());
  }
  infer.request.inputs.push_back(std::move(tensor));
  infer.request.parameters.emplace_back(kBinaryOutput, true);
  return infer;
}

// An output's parameters, and its values in JSON.
Result<void> WriteJsonOutput(const Tensor& output, JsonWriter& writer) {
  if (!output.parameters.empty()) {
    writer.Key("parameters");
    writer.BeginObject();
    WriteParameters(output.parameters, "binary_data_size", writer);
    writer.EndObject();
  }
  writer.Key("data");
  return WriteJsonData(output, writer);
}

}  // namespace

Result<HttpInfer> DecodeHttpRequest(std::string_view body, std::optional<std::size_t> header_length,
                                    Depth depth, const ModelMetadata* model) {
  if (header_length == 0) return DecodeRaw(body, model);
  const auto parts = Split(body, header_length);
  if (!parts) return Fail(parts.error());

  HttpInfer infer;
  HttpTensors inputs(infer.request.inputs);
  bool has_inputs = false;
  JsonReader reader(parts->head);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "id") {
      infer.request.id = reader.String().Text();
    } else if (*key == "parameters") {
      infer.request.parameters = ReadParameters(reader);
    } else if (*key == "inputs") {
      has_inputs = true;
      inputs.Read(reader);
    } else if (*key == "outputs") {
      infer.request.outputs = ReadRequestedOutputs(reader);
    } else {
      reader.Skip();
    }
  }
  if (!has_inputs) reader.Complain("the request has no inputs");
  reader.End();
  if (!reader.ok()) return Fail(reader.error());

  // Names first: that shared memory is not supported says more than that data is missing.
  if (auto fine = CheckNames(infer.request, ""); !fine) return Fail(fine.error());
  if (auto fine = CheckFlags(infer.request); !fine) return Fail(fine.error());
  if (auto found = inputs.Locate(parts->binary, depth); !found) return Fail(found.error());
  infer.any_json = inputs.any_json();
  infer.storage = inputs.storage();
  return infer;
}

HttpMessage EncodeHttpRequest(const InferRequest& request) {
  HttpMessage message;
  JsonWriter writer(256);
  writer.BeginObject();
  if (!request.id.empty()) {
    writer.Key("id");
    writer.String(request.id);
  }
  writer.Key("parameters");
  writer.BeginObject();
  WriteParameters(request.parameters, kBinaryOutput, writer);
  writer.Key(kBinaryOutput);
  writer.Bool(true);
  writer.EndObject();
  writer.Key("inputs");
  writer.BeginArray();
  for (const Tensor& input : request.inputs) {
    BeginTensor(input, writer);
    WriteBinaryParameters(input, writer);
    writer.EndObject();
    if (!input.bytes.empty()) message.tensors.push_back(input.bytes);
  }
  writer.EndArray();
  if (!request.outputs.empty()) {
    writer.Key("outputs");
    writer.BeginArray();
    for (const RequestedOutput& output : request.outputs) {
      writer.BeginObject();
      writer.Key("name");
      writer.String(output.name);
      writer.Key("parameters");
      writer.BeginObject();
      WriteParameters(output.parameters, kBinary, writer);
      writer.EndObject();
      writer.EndObject();
    }
    writer.EndArray();
  }
  writer.EndObject();
  message.head = writer.Take();
  message.binary = !message.tensors.empty();
  return message;
}

Result<HttpMessage> EncodeHttpResponse(const InferResponse& response, const InferRequest& request) {
  HttpMessage message;
  JsonWriter writer(256);
  writer.BeginObject();
  const auto text = [&](std::string_view key, const std::string& value) {
    if (value.empty()) return;
    writer.Key(key);
    writer.String(value);
  };
  text("model_name", response.model);
  text("model_version", response.version);
  text("id", response.id);
  if (!response.parameters.empty()) {
    writer.Key("parameters");
    writer.BeginObject();
    WriteParameters(response.parameters, "", writer);
    writer.EndObject();
  }
  writer.Key("outputs");
  writer.BeginArray();
  for (const Tensor& output : response.outputs) {
    BeginTensor(output, writer);
    if (WantsBinary(request, output.name)) {
      WriteBinaryParameters(output, writer);
      if (!output.bytes.empty()) message.tensors.push_back(output.bytes);
    } else if (auto written = WriteJsonOutput(output, writer); !written) {
      return Fail(written.error());
    }
    writer.EndObject();
  }
  writer.EndArray();
  writer.EndObject();
  message.head = writer.Take();
  message.binary = !message.tensors.empty();
  return message;
}

Result<HttpInferResponse> DecodeHttpResponse(std::string_view body,
                                             std::optional<std::size_t> header_length) {
  const auto parts = Split(body, header_length);
  if (!parts) return Fail(parts.error());
  HttpInferResponse infer;
  HttpTensors outputs(infer.response.outputs);
  JsonReader reader(parts->head);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "model_name") {
      infer.response.model = reader.String().Text();
    } else if (*key == "model_version") {
      infer.response.version = reader.String().Text();
    } else if (*key == "id") {
      infer.response.id = reader.String().Text();
    } else if (*key == "parameters") {
      infer.response.parameters = ReadParameters(reader);
    } else if (*key == "outputs") {
      outputs.Read(reader);
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (!reader.ok()) return Fail(reader.error());
  if (auto found = outputs.Locate(parts->binary, Depth::kFull); !found) return Fail(found.error());
  infer.storage = outputs.storage();
  return infer;
}

std::string ParseErrorJson(std::string_view json) {
  JsonReader reader(json);
  std::string text;
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "error") {
      text = reader.String().Text();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  return reader.ok() && !text.empty() ? text : std::string(json);
}

std::string ErrorJson(std::string_view message) {
  JsonWriter writer(message.size() + 16);
  writer.BeginObject();
  writer.Key("error");
  writer.String(message);
  writer.EndObject();
  return writer.Take();
}

}  // namespace divvy::kserve
