#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kserve/tensor.h"

// Inference over HTTP: a JSON head, and tensors in it or in binary behind it.

namespace divvy::kserve {

// How much of a request to look at.
enum class Depth {
  kHead,  // Names, types, shapes, parameters; `data` arrays are passed over (checked to be JSON,
          // not to fit the shape), binary tensors are located and measured.
  kFull,  // Tensors in JSON are converted to bytes as well.
};

struct HttpInfer {
  InferRequest request;   // model and version are left empty: they are in the path.
  bool any_json = false;  // Some input has its data in the JSON head.
  std::shared_ptr<const std::string>
      storage;  // What converted tensors' bytes point into; may be null.
};

// `header_length`: Inference-Header-Content-Length, if there was one. `body` is uncompressed and
// outlives the result. kInvalidArgument for all that Triton refuses with 400: see the traps in the
// tests; kUnsupported for shared memory. Unknown members are ignored, repeated ones refused. An
// input's `binary_data_size` is the message's and not among its parameters; `binary_data` and
// `binary_data_output` stay, for EncodeHttpResponse(). A raw request (header_length 0) needs
// `model` to have one input, from which name, type and shape come; null where the model is unknown.
[[nodiscard]] Result<HttpInfer> DecodeHttpRequest(std::string_view body,
                                                  std::optional<std::size_t> header_length,
                                                  Depth depth, const ModelMetadata* model);

// A message ready to be sent: a JSON head, and tensors to follow it in this order.
struct HttpMessage {
  std::string head;
  std::vector<std::string_view> tensors;  // Bytes of the request's or answer's tensors.
  bool binary = false;  // Needs Inference-Header-Content-Length: head.size(), and octet-stream.
};

// All tensors in binary; requested outputs too (binary_data_output).
[[nodiscard]] HttpMessage EncodeHttpRequest(const InferRequest& request);

// The answer as the request wants it: each output in binary or JSON by `binary_data` and
// `binary_data_output`; `classification` of the request's outputs is the worker's to do before.
// FP16 and BF16 in JSON are kInvalidArgument, as in Triton, and so are infinities, NaN and BYTES
// that are not UTF-8, which JSON cannot say. `id` is left out when empty.
[[nodiscard]] Result<HttpMessage> EncodeHttpResponse(const InferResponse& response,
                                                     const InferRequest& request);

struct HttpInferResponse {
  InferResponse response;
  std::shared_ptr<const std::string> storage;
};
// An answer of a worker: binary tensors, or JSON ones that are converted.
[[nodiscard]] Result<HttpInferResponse> DecodeHttpResponse(
    std::string_view body, std::optional<std::size_t> header_length);

// {"error": "..."} with the text escaped.
[[nodiscard]] std::string ErrorJson(std::string_view message);
// The text of such a message; `json` itself where it is none.
[[nodiscard]] std::string ParseErrorJson(std::string_view json);

}  // namespace divvy::kserve
