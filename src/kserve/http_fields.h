#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kserve/http_infer.h"
#include "kserve/json.h"
#include "kserve/json_writer.h"
#include "kserve/tensor.h"

// The parts that requests and answers over HTTP have in common.

namespace divvy::kserve {

// Reads a `parameters` object. Mistakes are the reader's to report.
[[nodiscard]] Parameters ReadParameters(JsonReader& reader);
// Writes the members of one; a parameter named `left_out`, unless that is empty, is not written.
void WriteParameters(const Parameters& parameters, std::string_view left_out, JsonWriter& writer);

// Reads a message's list of tensors into one that the caller keeps, which must outlive this.
class HttpTensors {
 public:
  explicit HttpTensors(std::vector<Tensor>& tensors) : tensors_(tensors) {}

  // Reads the list. Mistakes are the reader's to report.
  void Read(JsonReader& reader);

  // Finds each tensor's bytes: in `binary`, which follows the head and must be used up, or,
  // converted at Depth::kFull, in storage().
  [[nodiscard]] Result<void> Locate(std::string_view binary, Depth depth);

  bool any_json() const { return any_json_; }
  // What converted tensors' bytes point into; null if there are none.
  const std::shared_ptr<const std::string>& storage() const { return storage_; }

 private:
  // Where a tensor's bytes are.
  struct Source {
    std::optional<std::size_t> binary_size;
    std::string_view data = {};  // The JSON array; empty if there is none.
    std::size_t offset = 0;      // In the storage, once converted,
    std::size_t size = 0;
  };

  void ReadTensor(JsonReader& reader);
  void ReadField(std::string_view key, JsonReader& reader);
  [[nodiscard]] Result<void> Convert();

  std::vector<Tensor>& tensors_;
  std::vector<Source> sources_;  // One for each tensor.
  bool any_json_ = false;
  std::shared_ptr<const std::string> storage_;
};

// Begins an object of a tensor list, with what all tensors have. The caller ends it.
void BeginTensor(const Tensor& tensor, JsonWriter& writer);
// Its parameters, and that its bytes follow the head.
void WriteBinaryParameters(const Tensor& tensor, JsonWriter& writer);

}  // namespace divvy::kserve
