#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kserve/tensor.h"

// What a server says about itself and its models, in JSON (HTTP) and protobuf (gRPC).

namespace divvy::kserve {

struct ServerMetadata {
  std::string name = {};
  std::string version = {};
  std::vector<std::string> extensions = {};
};

struct DurationStat {
  std::uint64_t count = 0;
  std::uint64_t ns = 0;
};

struct ModelStatistics {
  std::string name = {};
  std::string version = "1";
  std::uint64_t last_inference_ms = 0;  // Since the epoch.
  std::uint64_t inference_count = 0;    // Items.
  std::uint64_t execution_count = 0;    // Batches.
  DurationStat success = {}, fail = {}, queue = {};
  DurationStat compute_input = {}, compute_infer = {}, compute_output = {};
  struct Batch {
    DurationStat compute_input = {}, compute_infer = {}, compute_output = {};
  };
  std::map<std::uint64_t, Batch> batches = {};  // By items.
};

struct IndexEntry {
  std::string name = {};
  std::string version = "1";
  std::string state = {};  // "READY", "UNAVAILABLE", "LOADING"
  std::string reason = {};
};

// What ModelConfig says beyond the metadata.
struct ModelConfig {
  ModelMetadata metadata = {};
  std::string backend = {};  // "pytorch", "synthetic"
  bool dynamic_batching = true;
  std::vector<int> preferred_batches = {};
  int priority_levels = 8;  // Ours: 1 is highest.
  int instances = 1;
  std::map<std::string, std::string> parameters = {};  // {"key": {"string_value": "value"}}
};

// A tensor's shape as a config has it: without the batch dimension. A view of the tensor's.
[[nodiscard]] std::span<const std::int64_t> ConfigDimensions(const TensorMetadata& tensor,
                                                             int max_batch);

[[nodiscard]] std::string ToJson(const ServerMetadata& metadata);
[[nodiscard]] std::string ToJson(const ModelMetadata& metadata);
[[nodiscard]] std::string ToJson(const ModelConfig& config);
[[nodiscard]] std::string ToJson(
    const std::vector<ModelStatistics>& statistics);  // {"model_stats": [...]}
[[nodiscard]] std::string ToJson(const std::vector<IndexEntry>& index);

// The same as the protobuf response messages of the RPCs of these names.
[[nodiscard]] std::string ToProto(const ServerMetadata& metadata);
[[nodiscard]] std::string ToProto(const ModelMetadata& metadata);
[[nodiscard]] std::string ToProto(const ModelConfig& config);
[[nodiscard]] std::string ToProto(const std::vector<ModelStatistics>& statistics);
[[nodiscard]] std::string ToProto(const std::vector<IndexEntry>& index);
// ServerLiveResponse, ServerReadyResponse, ModelReadyResponse: one bool, field 1.
[[nodiscard]] std::string BoolProto(bool value);

// grpc.health.v1.HealthCheckResponse. Its request's `service` is read by ParseModelName().
enum class Health { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };
[[nodiscard]] std::string ToProto(Health health);

// What clients ask, over gRPC: name=1 and version=2 of the Model*Request messages.
struct ModelName {
  std::string name = {};
  std::string version = {};
};
[[nodiscard]] Result<ModelName> ParseModelName(std::string_view message);
// RepositoryIndexRequest: repository_name=1, ready=2.
struct IndexQuery {
  std::string repository = {};
  bool ready = false;
};
[[nodiscard]] Result<IndexQuery> ParseIndexQuery(std::string_view message);
// The same over HTTP: nothing, or {"ready": true}. The repository is in the path.
[[nodiscard]] Result<IndexQuery> ParseIndexBody(std::string_view json);

// A worker's answers, read back by the router. The metadata says nothing of max_batch, which stays
// 0.
[[nodiscard]] Result<ModelMetadata> ParseModelMetadata(std::string_view json);
// max_batch_size of a config in JSON.
[[nodiscard]] Result<int> ParseMaxBatch(std::string_view config_json);

}  // namespace divvy::kserve
