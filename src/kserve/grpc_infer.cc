#include "kserve/grpc_infer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <utility>
#include <variant>

#include "base/text_safety.h"
#include "kserve/duplicate.h"
#include "kserve/typed_contents.h"
#include "kserve/wire.h"

// Field numbers are those of protos/inference.proto.

namespace divvy::kserve {
namespace {

std::optional<Parameter> ReadParameter(std::string_view message, WireReader& outer) {
  std::optional<Parameter> parameter;
  WireReader reader(message, "InferParameter");
  while (const auto field = reader.Next()) {
    // Of a oneof, the last one counts.
    if (field->number == 1) parameter = reader.Bool(*field);
    if (field->number == 2) parameter = static_cast<std::int64_t>(reader.Varint(*field));
    if (field->number == 3) parameter = std::string(reader.Text(*field));
    if (field->number == 4) {
      const double number = reader.Double(*field);
      // JSON, in which it may travel on, has no such numbers.
      if (!std::isfinite(number)) reader.Complain("double_param is not a finite number");
      parameter = number;
    }
    if (field->number == 5) parameter = reader.Varint(*field);
  }
  outer.Complain(reader);
  return parameter;
}

// An entry of map<string, InferParameter>.
void ReadEntry(WireReader& outer, const WireField& entry, Parameters& parameters) {
  if (parameters.size() == kMostParameters) {
    return outer.Complain(fmt::format("more than {} parameters", kMostParameters));
  }
  WireReader reader(outer.Bytes(entry), "parameter");
  std::string_view key;
  std::optional<Parameter> value;
  while (const auto field = reader.Next()) {
    if (field->number == 1) key = reader.Text(*field);
    if (field->number == 2) value = ReadParameter(reader.Bytes(*field), reader);
  }
  if (!value) reader.Complain(fmt::format("{} has no value", Quoted(key)));
  outer.Complain(reader);
  if (value) parameters.emplace_back(key, std::move(*value));
}

// Protobuf lets the last of two entries count; nobody means that.
void CheckUnique(const Parameters& parameters, WireReader& reader) {
  if (parameters.size() < 2) return;
  std::vector<std::string_view> names;
  names.reserve(parameters.size());
  for (const auto& [name, value] : parameters) names.push_back(name);
  if (const auto twice = FindDuplicate(names)) {
    reader.Complain(fmt::format("parameter {} occurs twice", Quoted(*twice)));
  }
}

// Reads a message's tensors into a list that the caller keeps.
class GrpcTensors {
 public:
  explicit GrpcTensors(std::vector<Tensor>& tensors) : tensors_(tensors) {}

  // InferInputTensor or InferOutputTensor, which have the same fields.
  void Read(WireReader& outer, const WireField& message) {
    if (tensors_.size() == kMostTensors) {
      return outer.Complain(fmt::format("more than {} tensors", kMostTensors));
    }
    Tensor& tensor = tensors_.emplace_back();
    WireReader reader(outer.Bytes(message), "tensor");
    std::string_view type;
    while (const auto field = reader.Next()) {
      if (field->number == 1) tensor.name = reader.Text(*field);
      if (field->number == 2) type = reader.Text(*field);
      if (field->number == 3) ReadShape(reader, *field, tensor.shape);
      if (field->number == 4) ReadEntry(reader, *field, tensor.parameters);
      if (field->number == 5) AddContents(reader, *field);
    }
    if (const auto known = ParseDataType(type)) {
      tensor.type = *known;
    } else {
      reader.Complain(fmt::format("{}: datatype {} is unknown", Quoted(tensor.name), Quoted(type)));
    }
    CheckUnique(tensor.parameters, reader);
    outer.Complain(reader);
  }

  // An entry of raw_input_contents or raw_output_contents.
  void ReadRaw(WireReader& outer, const WireField& field) {
    if (raw_.size() == kMostTensors) {
      return outer.Complain(fmt::format("more than {} raw contents", kMostTensors));
    }
    raw_.push_back(outer.Bytes(field));
  }

  // Finds each tensor's bytes. What typed contents are converted to; null if there were none.
  [[nodiscard]] Result<std::shared_ptr<const std::string>> Locate() {
    if (!raw_.empty()) {
      if (auto located = LocateRaw(); !located) return Fail(located.error());
      return nullptr;
    }
    auto storage = std::make_shared<std::string>();
    std::vector<std::size_t> ends;
    ends.reserve(tensors_.size());
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      if (auto done = Convert(i, *storage); !done) {
        return Fail(done.error().code,
                    fmt::format("{}: {}", Quoted(tensors_[i].name), done.error().message));
      }
      ends.push_back(storage->size());
    }
    // Only now does the text stay where it is.
    std::size_t begin = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      Tensor& tensor = tensors_[i];
      tensor.bytes = std::string_view(*storage).substr(begin, ends[i] - begin);
      begin = ends[i];
      if (auto fits = CheckBytes(tensor.type, tensor.shape, tensor.bytes, tensor.name); !fits) {
        return Fail(fits.error());
      }
    }
    return storage;
  }

 private:
  // Typed contents: of which tensor, and a message. Several of one tensor are parts of one.
  struct Typed {
    std::size_t tensor;
    std::string_view message;
  };

  static void ReadShape(WireReader& reader, const WireField& field, Shape& shape) {
    WireScalars scalars(reader, field, WireType::kVarint);
    while (const auto value = scalars.Next()) {
      if (shape.size() == kMostDimensions) {
        return reader.Complain(fmt::format("a shape of more than {} dimensions", kMostDimensions));
      }
      shape.push_back(static_cast<std::int64_t>(*value));
    }
  }

  void AddContents(WireReader& reader, const WireField& field) {
    typed_.push_back({tensors_.size() - 1, reader.Bytes(field)});
  }

  Result<void> LocateRaw() {
    if (!typed_.empty()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} has typed contents, but the message has raw contents too; use "
                              "one or the other for all tensors",
                              Quoted(tensors_[typed_.front().tensor].name)));
    }
    if (raw_.size() != tensors_.size()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{} tensors, but raw contents of {}", tensors_.size(), raw_.size()));
    }
    for (std::size_t i = 0; i < raw_.size(); ++i) {
      Tensor& tensor = tensors_[i];
      tensor.bytes = raw_[i];
      if (auto fits = CheckBytes(tensor.type, tensor.shape, tensor.bytes, tensor.name); !fits) {
        return fits;
      }
    }
    return {};
  }

  Result<void> Convert(std::size_t tensor, std::string& storage) {
    while (next_typed_ < typed_.size() && typed_[next_typed_].tensor == tensor) {
      auto done = AppendTypedContents(typed_[next_typed_].message, tensors_[tensor].type, storage);
      if (!done) return done;
      ++next_typed_;
    }
    return {};
  }

  std::vector<Tensor>& tensors_;
  std::vector<std::string_view> raw_;
  std::vector<Typed> typed_;  // In the order of the tensors.
  std::size_t next_typed_ = 0;
};

void ReadOutput(WireReader& outer, const WireField& message,
                std::vector<RequestedOutput>& outputs) {
  if (outputs.size() == kMostTensors) {
    return outer.Complain(fmt::format("more than {} outputs", kMostTensors));
  }
  RequestedOutput& output = outputs.emplace_back();
  WireReader reader(outer.Bytes(message), "InferRequestedOutputTensor");
  while (const auto field = reader.Next()) {
    if (field->number == 1) output.name = reader.Text(*field);
    if (field->number == 2) ReadEntry(reader, *field, output.parameters);
  }
  CheckUnique(output.parameters, reader);
  outer.Complain(reader);
}

void WriteParameters(std::uint32_t number, const Parameters& parameters, WireWriter& writer) {
  for (const auto& [name, value] : parameters) {
    WireWriter parameter;
    if (const auto* flag = std::get_if<bool>(&value)) parameter.VarintAlways(1, *flag ? 1 : 0);
    if (const auto* whole = std::get_if<std::int64_t>(&value)) {
      parameter.VarintAlways(2, static_cast<std::uint64_t>(*whole));
    }
    if (const auto* text = std::get_if<std::string>(&value)) parameter.Bytes(3, *text);
    if (const auto* real = std::get_if<double>(&value)) parameter.DoubleAlways(4, *real);
    if (const auto* whole = std::get_if<std::uint64_t>(&value)) parameter.VarintAlways(5, *whole);
    WireWriter entry;
    entry.Text(1, name);
    entry.Bytes(2, parameter.text());
    writer.Bytes(number, entry.text());
  }
}

void WriteTensor(std::uint32_t number, const Tensor& tensor, WireWriter& writer) {
  WireWriter message;
  message.Text(1, tensor.name);
  message.Text(2, Name(tensor.type));
  message.Packed(3, tensor.shape);
  WriteParameters(4, tensor.parameters, message);
  writer.Bytes(number, message.text());
}

// The head, and the tensors' bytes behind it as raw contents.
std::vector<Piece> WithRaw(WireWriter head, std::uint32_t number,
                           const std::vector<Tensor>& tensors) {
  std::vector<Piece> pieces;
  pieces.reserve(tensors.size() + 1);
  for (const Tensor& tensor : tensors) {
    head.Length(number, tensor.bytes.size());
    pieces.push_back({head.Take(), tensor.bytes});
    head = WireWriter();
  }
  if (tensors.empty()) pieces.push_back({head.Take(), {}});
  return pieces;
}

}  // namespace

Result<GrpcInfer> DecodeGrpcRequest(std::string_view message) {
  GrpcInfer infer;
  InferRequest& request = infer.request;
  GrpcTensors inputs(request.inputs);
  WireReader reader(message, "ModelInferRequest");
  while (const auto field = reader.Next()) {
    if (field->number == 1) request.model = reader.Text(*field);
    if (field->number == 2) request.version = reader.Text(*field);
    if (field->number == 3) request.id = reader.Text(*field);
    if (field->number == 4) ReadEntry(reader, *field, request.parameters);
    if (field->number == 5) inputs.Read(reader, *field);
    if (field->number == 6) ReadOutput(reader, *field, request.outputs);
    if (field->number == 7) inputs.ReadRaw(reader, *field);
  }
  CheckUnique(request.parameters, reader);
  if (!reader.ok()) return Fail(reader.error());
  auto fine = CheckNames(request, "triton_enable_empty_final_response");
  if (!fine) return Fail(fine.error());
  auto storage = inputs.Locate();
  if (!storage) return Fail(storage.error());
  infer.storage = std::move(*storage);
  return infer;
}

Result<GrpcInferResponse> DecodeGrpcResponse(std::string_view message) {
  GrpcInferResponse infer;
  InferResponse& response = infer.response;
  GrpcTensors outputs(response.outputs);
  WireReader reader(message, "ModelInferResponse");
  while (const auto field = reader.Next()) {
    if (field->number == 1) response.model = reader.Text(*field);
    if (field->number == 2) response.version = reader.Text(*field);
    if (field->number == 3) response.id = reader.Text(*field);
    if (field->number == 4) ReadEntry(reader, *field, response.parameters);
    if (field->number == 5) outputs.Read(reader, *field);
    if (field->number == 6) outputs.ReadRaw(reader, *field);
  }
  CheckUnique(response.parameters, reader);
  if (!reader.ok()) return Fail(reader.error());
  auto storage = outputs.Locate();
  if (!storage) return Fail(storage.error());
  infer.storage = std::move(*storage);
  return infer;
}

std::vector<Piece> EncodeGrpcRequest(const InferRequest& request) {
  WireWriter writer;
  writer.Text(1, request.model);
  writer.Text(2, request.version);
  writer.Text(3, request.id);
  WriteParameters(4, request.parameters, writer);
  for (const Tensor& input : request.inputs) WriteTensor(5, input, writer);
  for (const RequestedOutput& output : request.outputs) {
    WireWriter message;
    message.Text(1, output.name);
    WriteParameters(2, output.parameters, message);
    writer.Bytes(6, message.text());
  }
  return WithRaw(std::move(writer), 7, request.inputs);
}

std::vector<Piece> EncodeGrpcResponse(const InferResponse& response) {
  WireWriter writer;
  writer.Text(1, response.model);
  writer.Text(2, response.version);
  writer.Text(3, response.id);
  WriteParameters(4, response.parameters, writer);
  for (const Tensor& output : response.outputs) WriteTensor(5, output, writer);
  return WithRaw(std::move(writer), 6, response.outputs);
}

std::vector<Piece> EncodeStreamResponse(std::vector<Piece> response) {
  std::size_t size = 0;
  for (const Piece& piece : response) size += piece.own.size() + piece.borrowed.size();
  WireWriter writer;
  writer.Length(2, size);
  if (response.empty()) response.emplace_back();
  response.front().own.insert(0, writer.text());
  return response;
}

std::string EncodeStreamError(std::string_view message) {
  WireWriter writer;
  writer.Text(1, message);
  return writer.Take();
}

}  // namespace divvy::kserve
