#include "kserve/describe.h"

#include <fmt/format.h>

#include <limits>
#include <span>

#include "kserve/json.h"
#include "kserve/json_writer.h"

namespace divvy::kserve {
namespace {

// A config says TYPE_STRING where the messages say BYTES.
std::string ConfigType(DataType type) {
  return fmt::format("TYPE_{}", type == DataType::kBytes ? "STRING" : Name(type));
}

void Member(std::string_view key, std::string_view text, JsonWriter& writer) {
  writer.Key(key);
  writer.String(text);
}

template <typename List>
void Numbers(std::string_view key, const List& numbers, JsonWriter& writer) {
  writer.Key(key);
  writer.BeginArray();
  for (const auto number : numbers) writer.Int(number);
  writer.EndArray();
}

void Texts(std::string_view key, const std::vector<std::string>& texts, JsonWriter& writer) {
  writer.Key(key);
  writer.BeginArray();
  for (const std::string& text : texts) writer.String(text);
  writer.EndArray();
}

void WriteTensors(std::string_view key, const std::vector<TensorMetadata>& tensors,
                  JsonWriter& writer) {
  writer.Key(key);
  writer.BeginArray();
  for (const TensorMetadata& tensor : tensors) {
    writer.BeginObject();
    Member("name", tensor.name, writer);
    Member("datatype", Name(tensor.type), writer);
    Numbers("shape", tensor.shape, writer);
    writer.EndObject();
  }
  writer.EndArray();
}

void WriteConfigTensors(std::string_view key, const std::vector<TensorMetadata>& tensors,
                        int max_batch, JsonWriter& writer) {
  writer.Key(key);
  writer.BeginArray();
  for (const TensorMetadata& tensor : tensors) {
    writer.BeginObject();
    Member("name", tensor.name, writer);
    Member("data_type", ConfigType(tensor.type), writer);
    Numbers("dims", ConfigDimensions(tensor, max_batch), writer);
    writer.EndObject();
  }
  writer.EndArray();
}

void WriteDuration(std::string_view key, const DurationStat& duration, JsonWriter& writer) {
  writer.Key(key);
  writer.BeginObject();
  writer.Key("count");
  writer.Uint(duration.count);
  writer.Key("ns");
  writer.Uint(duration.ns);
  writer.EndObject();
}

void WriteStatistics(const ModelStatistics& model, JsonWriter& writer) {
  writer.BeginObject();
  Member("name", model.name, writer);
  Member("version", model.version, writer);
  writer.Key("last_inference");
  writer.Uint(model.last_inference_ms);
  writer.Key("inference_count");
  writer.Uint(model.inference_count);
  writer.Key("execution_count");
  writer.Uint(model.execution_count);
  writer.Key("inference_stats");
  writer.BeginObject();
  WriteDuration("success", model.success, writer);
  WriteDuration("fail", model.fail, writer);
  WriteDuration("queue", model.queue, writer);
  WriteDuration("compute_input", model.compute_input, writer);
  WriteDuration("compute_infer", model.compute_infer, writer);
  WriteDuration("compute_output", model.compute_output, writer);
  // We keep no cache; clients look for these all the same.
  WriteDuration("cache_hit", {}, writer);
  WriteDuration("cache_miss", {}, writer);
  writer.EndObject();
  writer.Key("response_stats");
  writer.BeginObject();
  writer.EndObject();
  writer.Key("batch_stats");
  writer.BeginArray();
  for (const auto& [items, batch] : model.batches) {
    writer.BeginObject();
    writer.Key("batch_size");
    writer.Uint(items);
    WriteDuration("compute_input", batch.compute_input, writer);
    WriteDuration("compute_infer", batch.compute_infer, writer);
    WriteDuration("compute_output", batch.compute_output, writer);
    writer.EndObject();
  }
  writer.EndArray();
  writer.Key("memory_usage");
  writer.BeginArray();
  writer.EndArray();
  writer.EndObject();
}

// The shape of metadata, where -1 stands for any size.
Shape ReadShape(JsonReader& reader) {
  Shape shape;
  reader.BeginArray();
  while (reader.Item()) {
    const auto dimension = reader.Number().Int();
    if (!dimension || *dimension < -1) {
      reader.Complain("a dimension must be a whole number from -1");
    } else if (shape.size() == kMostDimensions) {
      reader.Complain(fmt::format("a shape of more than {} dimensions", kMostDimensions));
    } else {
      shape.push_back(*dimension);
    }
  }
  return shape;
}

std::vector<TensorMetadata> ReadTensors(JsonReader& reader) {
  std::vector<TensorMetadata> tensors;
  reader.BeginArray();
  while (reader.Item()) {
    TensorMetadata& tensor = tensors.emplace_back();
    reader.BeginObject();
    while (const auto key = reader.Key()) {
      if (*key == "name") {
        tensor.name = reader.String().Text();
      } else if (*key == "datatype") {
        const auto type = ParseDataType(reader.String().Text());
        if (!type) reader.Complain("an unknown datatype");
        tensor.type = type.value_or(DataType::kFp32);
      } else if (*key == "shape") {
        tensor.shape = ReadShape(reader);
      } else {
        reader.Skip();
      }
    }
  }
  return tensors;
}

}  // namespace

std::span<const std::int64_t> ConfigDimensions(const TensorMetadata& tensor, int max_batch) {
  const std::span<const std::int64_t> shape(tensor.shape);
  return max_batch > 0 && !shape.empty() ? shape.subspan(1) : shape;
}

std::string ToJson(const ServerMetadata& metadata) {
  JsonWriter writer;
  writer.BeginObject();
  Member("name", metadata.name, writer);
  Member("version", metadata.version, writer);
  Texts("extensions", metadata.extensions, writer);
  writer.EndObject();
  return writer.Take();
}

std::string ToJson(const ModelMetadata& metadata) {
  JsonWriter writer;
  writer.BeginObject();
  Member("name", metadata.name, writer);
  Texts("versions", metadata.versions, writer);
  Member("platform", metadata.platform, writer);
  WriteTensors("inputs", metadata.inputs, writer);
  WriteTensors("outputs", metadata.outputs, writer);
  writer.EndObject();
  return writer.Take();
}

std::string ToJson(const ModelConfig& config) {
  JsonWriter writer;
  writer.BeginObject();
  Member("name", config.metadata.name, writer);
  Member("platform", config.metadata.platform, writer);
  Member("backend", config.backend, writer);
  writer.Key("max_batch_size");
  writer.Int(config.metadata.max_batch);
  WriteConfigTensors("input", config.metadata.inputs, config.metadata.max_batch, writer);
  WriteConfigTensors("output", config.metadata.outputs, config.metadata.max_batch, writer);
  writer.Key("instance_group");
  writer.BeginArray();
  writer.BeginObject();
  Member("name", config.metadata.name, writer);
  Member("kind", "KIND_GPU", writer);
  writer.Key("count");
  writer.Int(config.instances);
  writer.EndObject();
  writer.EndArray();
  if (config.dynamic_batching) {
    writer.Key("dynamic_batching");
    writer.BeginObject();
    Numbers("preferred_batch_size", config.preferred_batches, writer);
    writer.Key("priority_levels");
    writer.Int(config.priority_levels);
    writer.EndObject();
  }
  writer.Key("parameters");
  writer.BeginObject();
  for (const auto& [key, value] : config.parameters) {
    writer.Key(key);
    writer.BeginObject();
    Member("string_value", value, writer);
    writer.EndObject();
  }
  writer.EndObject();
  writer.Key("model_transaction_policy");
  writer.BeginObject();
  writer.Key("decoupled");
  writer.Bool(false);
  writer.EndObject();
  writer.EndObject();
  return writer.Take();
}

std::string ToJson(const std::vector<ModelStatistics>& statistics) {
  JsonWriter writer;
  writer.BeginObject();
  writer.Key("model_stats");
  writer.BeginArray();
  for (const ModelStatistics& model : statistics) WriteStatistics(model, writer);
  writer.EndArray();
  writer.EndObject();
  return writer.Take();
}

std::string ToJson(const std::vector<IndexEntry>& index) {
  JsonWriter writer;
  writer.BeginArray();
  for (const IndexEntry& entry : index) {
    writer.BeginObject();
    Member("name", entry.name, writer);
    Member("version", entry.version, writer);
    Member("state", entry.state, writer);
    if (!entry.reason.empty()) Member("reason", entry.reason, writer);
    writer.EndObject();
  }
  writer.EndArray();
  return writer.Take();
}

Result<IndexQuery> ParseIndexBody(std::string_view json) {
  IndexQuery query;
  if (json.empty()) return query;
  JsonReader reader(json);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "ready") {
      query.ready = reader.Bool();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (!reader.ok()) return Fail(reader.error());
  return query;
}

Result<ModelMetadata> ParseModelMetadata(std::string_view json) {
  ModelMetadata metadata;
  JsonReader reader(json);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "name") {
      metadata.name = reader.String().Text();
    } else if (*key == "platform") {
      metadata.platform = reader.String().Text();
    } else if (*key == "versions") {
      metadata.versions.clear();
      reader.BeginArray();
      while (reader.Item()) metadata.versions.push_back(reader.String().Text());
    } else if (*key == "inputs") {
      metadata.inputs = ReadTensors(reader);
    } else if (*key == "outputs") {
      metadata.outputs = ReadTensors(reader);
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (!reader.ok()) return Fail(reader.error());
  return metadata;
}

Result<int> ParseMaxBatch(std::string_view config_json) {
  std::optional<std::int64_t> max_batch = 0;
  JsonReader reader(config_json);
  reader.BeginObject();
  while (const auto key = reader.Key()) {
    if (*key == "max_batch_size") {
      max_batch = reader.Number().Int();
    } else {
      reader.Skip();
    }
  }
  reader.End();
  if (!max_batch || *max_batch < 0 || *max_batch > std::numeric_limits<int>::max()) {
    reader.Complain("max_batch_size must be a whole number from 0 to 2147483647");
  }
  if (!reader.ok()) return Fail(reader.error());
  return static_cast<int>(*max_batch);
}

}  // namespace divvy::kserve
