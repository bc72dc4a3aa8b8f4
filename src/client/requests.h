#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "client/dialect.h"
#include "client/transport.h"
#include "kserve/tensor.h"

namespace divvy::client {

struct RequestOptions {
  // Of inputs with dimensions of any size, without the batch dimension; they are 16 otherwise.
  std::map<std::string, kserve::Shape> shapes = {};
  std::uint64_t seed = 1;            // Of the contents.
  std::optional<Duration> slo = {};  // Sent as the parameter slo_ms.
};

// The requests to one model, by their number of items. All share one block of contents for each
// input: that of a small request is the beginning of a large one's, so that sending costs no copy
// and the memory does not grow with the number of sizes. Numbers are from 0 to 1, whole ones from 0
// to 99 and so fit for token ids; texts are eight letters.
//
// For one thread.
class Requests {
 public:
  // For requests of at most `largest` items. kInvalidArgument names the model and what does not
  // fit: more items than the model takes, shapes for inputs that it does not have or that
  // contradict it, a request of more than 1 GiB.
  [[nodiscard]] static Result<Requests> Make(const Dialect& dialect, const ModelFacts& model,
                                             int largest, const RequestOptions& options);

  // Made when first asked for; stays where it is. REQUIRES: 0 < items <= largest.
  [[nodiscard]] const Call& Of(int items);

  // Bytes of the inputs of one item.
  std::size_t item_bytes() const { return item_bytes_; }

 private:
  struct Input {
    kserve::Tensor tensor;  // Of one item; its shape has the batch dimension, if there is one.
    std::size_t item_bytes = 0;
    std::shared_ptr<const std::string> contents;  // Shared with all calls.
  };

  Requests() = default;

  Dialect dialect_;
  std::string model_;
  bool batched_ = false;
  kserve::Parameters parameters_;
  std::vector<Input> inputs_;
  std::size_t item_bytes_ = 0;
  std::unordered_map<int, std::unique_ptr<const Call>> calls_;
};

}  // namespace divvy::client
