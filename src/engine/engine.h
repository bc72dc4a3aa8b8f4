#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "kserve/tensor.h"

namespace divvy::engine {

// How an engine is made. The command line of a worker says all of it.
struct EngineConfig {
  std::string model;
  std::string artifact = {};  // Path of the model's file; may be empty.
  std::string device = "cpu";
  int max_batch = 1;                                // Items; 0: the model has no batch dimension.
  int threads = 0;                                  // 0: the engine's choice.
  std::vector<kserve::TensorMetadata> inputs = {};  // Shapes without the batch dimension.
  std::vector<kserve::TensorMetadata> outputs = {};
  std::map<std::string, std::string> options = {};
};

// A tensor that a run has made, and its bytes, which no later run touches.
struct Output {
  kserve::Tensor tensor;  // Its bytes lie in `storage`.
  std::shared_ptr<const char[]> storage;
};

struct Description {
  kserve::ModelMetadata metadata;  // Shapes with the batch dimension, where there is one.
  std::string backend;
  std::map<std::string, std::string> parameters = {};  // For the model's config: what else to know.
};

// `shape` as metadata have it: behind a -1 where there is a batch dimension.
[[nodiscard]] kserve::Shape WithBatch(const kserve::Shape& shape, int max_batch);

// Room for a tensor's bytes, aligned to 64, not cleared. Never null.
[[nodiscard]] std::shared_ptr<char[]> AllocateBytes(std::size_t bytes);

// Runs one model, one batch at a time. All calls from one thread.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual const Description& description() const = 0;
  // `inputs`: all of the metadata's, in their order, with bytes that fit their shapes; where there
  // is a batch dimension all have the same first one, at most max_batch. Returns all outputs, in
  // the metadata's order. kInvalidArgument: the inputs are at fault; anything else: the engine is.
  [[nodiscard]] virtual Result<std::vector<Output>> Run(std::span<const kserve::Tensor> inputs) = 0;
  // Of an engine that takes time and computes nothing: how long whoever called the last Run is to
  // hold its outputs back. Such a Run returns at once, and may be called in a thread that must not
  // wait. Nothing: Run takes its time itself.
  virtual std::optional<Duration> held_back() const { return std::nullopt; }
};

}  // namespace divvy::engine
