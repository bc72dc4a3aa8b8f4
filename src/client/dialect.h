#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "client/transport.h"
#include "kserve/describe.h"
#include "kserve/tensor.h"
#include "net/http.h"
#include "net/loop.h"

namespace divvy::client {

// How the protocol's questions are put to a server: over HTTP or over gRPC.
struct Dialect {
  bool grpc = false;
  std::string token;  // Sent with every request unless it is empty.
};

// An inference. `owner` keeps the tensors' bytes.
[[nodiscard]] Call InferCall(const Dialect& dialect, const kserve::InferRequest& request,
                             const std::shared_ptr<const void>& owner);

// What a model takes.
struct ModelFacts {
  std::string name;
  std::vector<kserve::TensorMetadata> inputs;  // With the batch dimension, where there is one.
  bool batched = false;                        // The first dimension of every input is the batch.
  int max_batch = 0;                           // 0: the server does not say.
};

// Asks the server and runs the loop until it has answered. A model's largest batch comes from its
// config; where a server has no configs, a model is taken to be batched when all inputs begin with
// a dimension of any size. kUnavailable: no answer within `patience`; otherwise what the server
// said.
[[nodiscard]] Result<std::vector<kserve::IndexEntry>> AskForModels(net::Loop& loop,
                                                                   Transport& transport,
                                                                   const Dialect& dialect,
                                                                   Duration patience);
[[nodiscard]] Result<ModelFacts> AskForModel(net::Loop& loop, Transport& transport,
                                             const Dialect& dialect, const std::string& model,
                                             Duration patience);

}  // namespace divvy::client
