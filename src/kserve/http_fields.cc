#include "kserve/http_fields.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <variant>

#include "base/text_safety.h"
#include "kserve/json_tensor.h"

namespace divvy::kserve {
namespace {

constexpr std::string_view kBinarySize = "binary_data_size";

Parameter ReadParameter(std::string_view name, JsonReader& reader) {
  switch (reader.Peek()) {
    case JsonKind::kBool:
      return reader.Bool();
    case JsonKind::kString:
      return reader.String().Text();
    case JsonKind::kNumber: {
      const JsonNumber number = reader.Number();
      if (const auto whole = number.Int()) return *whole;
      if (const auto whole = number.Uint()) return *whole;
      const auto real = number.whole ? std::nullopt : number.Double();
      if (real) return *real;
      reader.Complain(fmt::format("parameter {}: a number beyond 64 bits", Quoted(name)));
      return {};
    }
    default:
      reader.Complain(
          fmt::format("parameter {} must be a string, a number, true or false", Quoted(name)));
      return {};
  }
}

Shape ReadShape(JsonReader& reader) {
  Shape shape;
  reader.BeginArray();
  while (reader.Item()) {
    const JsonNumber number = reader.Number();
    const auto dimension = number.Int();
    if (!dimension || *dimension < 0) {
      reader.Complain(
          fmt::format("dimension {} of a shape is {}, not a whole number from 0 to 2^63",
                      shape.size(), number.text.substr(0, 40)));
    } else if (shape.size() == kMostDimensions) {
      reader.Complain(fmt::format("a shape of more than {} dimensions", kMostDimensions));
    } else {
      shape.push_back(*dimension);
    }
  }
  return shape;
}

DataType ReadDataType(JsonReader& reader) {
  const std::string name = reader.String().Text();
  const auto type = ParseDataType(name);
  if (!type) reader.Complain(fmt::format("datatype {} is unknown", Quoted(name)));
  return type.value_or(DataType::kFp32);
}

tl::unexpected<Error> Refuse(const Tensor& tensor, std::string_view why) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("tensor {}: {}", Quoted(tensor.name), why));
}

}  // namespace

Parameters ReadParameters(JsonReader& reader) {
  Parameters parameters;
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (parameters.size() == kMostParameters) {
      reader.Complain(fmt::format("more than {} parameters", kMostParameters));
    }
    parameters.emplace_back(*key, ReadParameter(*key, reader));
  }
  return parameters;
}

void WriteParameters(const Parameters& parameters, std::string_view left_out, JsonWriter& writer) {
  for (const auto& [name, value] : parameters) {
    if (!left_out.empty() && name == left_out) continue;
    writer.Key(name);
    if (const auto* flag = std::get_if<bool>(&value)) writer.Bool(*flag);
    if (const auto* number = std::get_if<std::int64_t>(&value)) writer.Int(*number);
    if (const auto* number = std::get_if<std::uint64_t>(&value)) writer.Uint(*number);
    if (const auto* number = std::get_if<double>(&value)) writer.Double(*number);
    if (const auto* text = std::get_if<std::string>(&value)) writer.String(*text);
  }
}

void HttpTensors::ReadField(std::string_view key, JsonReader& reader) {
  Tensor& tensor = tensors_.back();
  Source& source = sources_.back();
  if (key == "name") {
    tensor.name = reader.String().Text();
  } else if (key == "datatype") {
    tensor.type = ReadDataType(reader);
  } else if (key == "shape") {
    tensor.shape = ReadShape(reader);
  } else if (key == "data") {
    if (reader.Peek() != JsonKind::kArray) reader.Complain("data must be an array");
    source.data = reader.Skip();
  } else if (key == "parameters") {
    tensor.parameters = ReadParameters(reader);
  } else {
    reader.Skip();
  }
}

void HttpTensors::ReadTensor(JsonReader& reader) {
  if (tensors_.size() == kMostTensors) {
    return reader.Complain(fmt::format("more than {} tensors", kMostTensors));
  }
  Tensor& tensor = tensors_.emplace_back();
  Source& source = sources_.emplace_back();
  bool name = false;
  bool type = false;
  bool shape = false;
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    name = name || *key == "name";
    type = type || *key == "datatype";
    shape = shape || *key == "shape";
    ReadField(*key, reader);
  }
  if (!name || !type || !shape) {
    reader.Complain("a tensor needs a name, a datatype and a shape");
  }
  for (auto it = tensor.parameters.begin(); it != tensor.parameters.end(); ++it) {
    if (it->first != kBinarySize) continue;
    const auto* size = std::get_if<std::int64_t>(&it->second);
    if (size == nullptr || *size < 0) {
      return reader.Complain("binary_data_size must be a whole number of bytes");
    }
    source.binary_size = static_cast<std::size_t>(*size);
    tensor.parameters.erase(it);
    return;
  }
}

void HttpTensors::Read(JsonReader& reader) {
  reader.BeginArray();
  while (reader.Item()) ReadTensor(reader);
}

Result<void> HttpTensors::Locate(std::string_view binary, Depth depth) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    const Source& source = sources_[i];
    if (!source.data.empty()) {
      if (source.binary_size) return Refuse(tensor, "both data and binary_data_size are given");
      if (tensor.type == DataType::kFp16 || tensor.type == DataType::kBf16) {
        return Refuse(tensor, fmt::format("{} cannot travel in JSON; send it in binary, with "
                                          "binary_data_size",
                                          Name(tensor.type)));
      }
      if (auto count = CountOf(tensor.shape); !count) return Refuse(tensor, count.error().message);
      any_json_ = true;
      continue;
    }
    const std::size_t size = source.binary_size.value_or(0);
    if (size > binary.size() - at) {
      return Refuse(tensor,
                    fmt::format("binary_data_size is {}, but {} bytes follow the JSON head "
                                "for it; Inference-Header-Content-Length must be the length "
                                "of the JSON head alone",
                                size, binary.size() - at));
    }
    tensor.bytes = binary.substr(at, size);
    at += size;
    auto fits = depth == Depth::kFull
                    ? CheckBytes(tensor.type, tensor.shape, tensor.bytes, tensor.name)
                    : CheckSize(tensor.type, tensor.shape, size, tensor.name);
    if (!fits && !source.binary_size) {
      return Refuse(tensor, "neither data nor binary_data_size is given");
    }
    if (!fits) return fits;
  }
  if (at != binary.size()) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("unexpected additional data: {} bytes behind the last tensor",
                            binary.size() - at));
  }
  return any_json_ && depth == Depth::kFull ? Convert() : Result<void>();
}

Result<void> HttpTensors::Convert() {
  auto bytes = std::make_shared<std::string>();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Source& source = sources_[i];
    if (source.data.empty()) continue;
    source.offset = bytes->size();
    const auto count = CountOf(tensors_[i].shape);
    auto done = AppendJsonData(source.data, tensors_[i].type, *count, tensors_[i].name, *bytes);
    if (!done) return done;
    source.size = bytes->size() - source.offset;
  }
  // Only now does the text stay where it is.
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const Source& source = sources_[i];
    if (source.data.empty()) continue;
    tensors_[i].bytes = std::string_view(*bytes).substr(source.offset, source.size);
  }
  storage_ = std::move(bytes);
  return {};
}

void BeginTensor(const Tensor& tensor, JsonWriter& writer) {
  writer.BeginObject();
  writer.Key("name");
  writer.String(tensor.name);
  writer.Key("datatype");
  writer.String(Name(tensor.type));
  writer.Key("shape");
  writer.BeginArray();
  for (const std::int64_t dimension : tensor.shape) writer.Int(dimension);
  writer.EndArray();
}

void WriteBinaryParameters(const Tensor& tensor, JsonWriter& writer) {
  writer.Key("parameters");
  writer.BeginObject();
  WriteParameters(tensor.parameters, kBinarySize, writer);
  writer.Key(kBinarySize);
  writer.Uint(tensor.bytes.size());
  writer.EndObject();
}

}  // namespace divvy::kserve
