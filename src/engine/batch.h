#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "kserve/tensor.h"

// Requests that run together: their inputs joined along the first dimension, the outputs split
// again.

namespace divvy::engine {

// A request that a model can run.
struct Member {
  std::vector<kserve::Tensor> inputs;  // All of the model's, in its order.
  std::int64_t items = 1;              // What the first dimension says, where it is the batch's.
};

// Holds a request against the model: inputs and requested outputs that exist, types, shapes, bytes,
// and not more items than a batch may have. kInvalidArgument names what is wrong, and what is
// right.
[[nodiscard]] Result<Member> CheckMember(const kserve::ModelMetadata& model,
                                         const kserve::InferRequest& request);

// Indices of members that can run as one: equal but for the first dimension, and no more than
// `max_batch` items together. Every member is in one group; both groups (by their first) and
// members keep their order. max_batch 0: each runs alone.
[[nodiscard]] std::vector<std::vector<std::size_t>> Group(std::span<const Member> members,
                                                          int max_batch);

struct Joined {
  std::vector<kserve::Tensor> inputs;  // Point into `storage`; with one member, into its own.
  std::vector<std::shared_ptr<char[]>> storage;
};

// The inputs of a group as one batch. REQUIRES: not empty, members that Group put together.
[[nodiscard]] Joined Join(std::span<const Member* const> members);

// What each member gets of a batch's outputs, copying none; `items` are the members'. kUnavailable
// names the output that is not of as many items as the batch. One member gets all as it is.
[[nodiscard]] Result<std::vector<std::vector<Output>>> Split(std::span<const Output> outputs,
                                                             std::span<const std::int64_t> items);

}  // namespace divvy::engine
