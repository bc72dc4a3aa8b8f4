#include "kserve/describe.h"
#include "kserve/wire.h"

// Field numbers are those of protos/inference.proto.

namespace divvy::kserve {
namespace {

// The number of model_config.proto's DataType.
std::uint64_t ConfigTypeNumber(DataType type) {
  switch (type) {
    case DataType::kBool:
      return 1;
    case DataType::kUint8:
      return 2;
    case DataType::kUint16:
      return 3;
    case DataType::kUint32:
      return 4;
    case DataType::kUint64:
      return 5;
    case DataType::kInt8:
      return 6;
    case DataType::kInt16:
      return 7;
    case DataType::kInt32:
      return 8;
    case DataType::kInt64:
      return 9;
    case DataType::kFp16:
      return 10;
    case DataType::kFp32:
      return 11;
    case DataType::kFp64:
      return 12;
    case DataType::kBytes:
      return 13;
    case DataType::kBf16:
      return 14;
  }
  return 0;
}

void WriteTensors(std::uint32_t number, const std::vector<TensorMetadata>& tensors,
                  WireWriter& writer) {
  for (const TensorMetadata& tensor : tensors) {
    WireWriter message;
    message.Text(1, tensor.name);
    message.Text(2, Name(tensor.type));
    message.Packed(3, tensor.shape);
    writer.Bytes(number, message.text());
  }
}

void WriteDuration(std::uint32_t number, const DurationStat& duration, WireWriter& writer) {
  WireWriter message;
  message.Varint(1, duration.count);
  message.Varint(2, duration.ns);
  writer.Bytes(number, message.text());
}

std::string ToProto(const ModelStatistics& model) {
  WireWriter writer;
  writer.Text(1, model.name);
  writer.Text(2, model.version);
  writer.Varint(3, model.last_inference_ms);
  writer.Varint(4, model.inference_count);
  writer.Varint(5, model.execution_count);
  WireWriter durations;
  WriteDuration(1, model.success, durations);
  WriteDuration(2, model.fail, durations);
  WriteDuration(3, model.queue, durations);
  WriteDuration(4, model.compute_input, durations);
  WriteDuration(5, model.compute_infer, durations);
  WriteDuration(6, model.compute_output, durations);
  writer.Bytes(6, durations.text());
  for (const auto& [items, batch] : model.batches) {
    WireWriter message;
    message.Varint(1, items);
    WriteDuration(2, batch.compute_input, message);
    WriteDuration(3, batch.compute_infer, message);
    WriteDuration(4, batch.compute_output, message);
    writer.Bytes(7, message.text());
  }
  return writer.Take();
}

}  // namespace

std::string ToProto(const ServerMetadata& metadata) {
  WireWriter writer;
  writer.Text(1, metadata.name);
  writer.Text(2, metadata.version);
  for (const std::string& extension : metadata.extensions) writer.Bytes(3, extension);
  return writer.Take();
}

std::string ToProto(const ModelMetadata& metadata) {
  WireWriter writer;
  writer.Text(1, metadata.name);
  for (const std::string& version : metadata.versions) writer.Bytes(2, version);
  writer.Text(3, metadata.platform);
  WriteTensors(4, metadata.inputs, writer);
  WriteTensors(5, metadata.outputs, writer);
  return writer.Take();
}

std::string ToProto(const ModelConfig& config) {
  const ModelMetadata& metadata = config.metadata;
  WireWriter writer;
  writer.Text(1, metadata.name);
  writer.Text(2, metadata.platform);
  writer.Varint(4, static_cast<std::uint64_t>(metadata.max_batch));
  const auto tensors = [&](std::uint32_t number, std::uint32_t dimensions,
                           const std::vector<TensorMetadata>& list) {
    for (const TensorMetadata& tensor : list) {
      WireWriter message;
      message.Text(1, tensor.name);
      message.Varint(2, ConfigTypeNumber(tensor.type));
      message.Packed(dimensions, ConfigDimensions(tensor, metadata.max_batch));
      writer.Bytes(number, message.text());
    }
  };
  // Dimensions are field 4 of an input and 3 of an output.
  tensors(5, 4, metadata.inputs);
  tensors(6, 3, metadata.outputs);
  constexpr std::uint64_t kKindGpu = 1;
  WireWriter group;
  group.Text(1, metadata.name);
  group.Varint(2, static_cast<std::uint64_t>(config.instances));
  group.Varint(4, kKindGpu);
  writer.Bytes(7, group.text());
  if (config.dynamic_batching) {
    WireWriter batching;
    batching.Packed(1, config.preferred_batches);
    batching.Varint(4, static_cast<std::uint64_t>(config.priority_levels));
    writer.Bytes(11, batching.text());
  }
  for (const auto& [key, value] : config.parameters) {
    WireWriter parameter;
    parameter.Text(1, value);
    WireWriter entry;
    entry.Text(1, key);
    entry.Bytes(2, parameter.text());
    writer.Bytes(14, entry.text());
  }
  writer.Text(17, config.backend);
  WireWriter response;
  response.Bytes(1, writer.text());
  return response.Take();
}

std::string ToProto(const std::vector<ModelStatistics>& statistics) {
  WireWriter writer;
  for (const ModelStatistics& model : statistics) writer.Bytes(1, ToProto(model));
  return writer.Take();
}

std::string ToProto(const std::vector<IndexEntry>& index) {
  WireWriter writer;
  for (const IndexEntry& entry : index) {
    WireWriter message;
    message.Text(1, entry.name);
    message.Text(2, entry.version);
    message.Text(3, entry.state);
    message.Text(4, entry.reason);
    writer.Bytes(1, message.text());
  }
  return writer.Take();
}

std::string BoolProto(bool value) {
  WireWriter writer;
  writer.Varint(1, value ? 1 : 0);
  return writer.Take();
}

std::string ToProto(Health health) {
  WireWriter writer;
  writer.Varint(1, static_cast<std::uint64_t>(health));
  return writer.Take();
}

Result<ModelName> ParseModelName(std::string_view message) {
  ModelName model;
  WireReader reader(message, "request");
  while (const auto field = reader.Next()) {
    if (field->number == 1) model.name = reader.Text(*field);
    if (field->number == 2) model.version = reader.Text(*field);
  }
  if (!reader.ok()) return Fail(reader.error());
  return model;
}

Result<IndexQuery> ParseIndexQuery(std::string_view message) {
  IndexQuery query;
  WireReader reader(message, "RepositoryIndexRequest");
  while (const auto field = reader.Next()) {
    if (field->number == 1) query.repository = reader.Text(*field);
    if (field->number == 2) query.ready = reader.Bool(*field);
  }
  if (!reader.ok()) return Fail(reader.error());
  return query;
}

}  // namespace divvy::kserve
