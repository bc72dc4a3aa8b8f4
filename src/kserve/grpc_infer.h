#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kserve/tensor.h"

// Inference over gRPC: protobuf messages of package `inference` (protos/inference.proto), read and
// written here without a protobuf library, so that raw tensors are never copied.

namespace divvy::kserve {

struct GrpcInfer {
  InferRequest request;  // Raw contents point into the message, typed ones into `storage`.
  std::shared_ptr<const std::string> storage;
};

// Any bytes give a value, kInvalidArgument, or kUnsupported for shared memory. Stricter than
// protobuf in what no client means: groups, a known field of the wrong wire type, a parameter that
// occurs twice, has no value, or is not finite.
[[nodiscard]] Result<GrpcInfer> DecodeGrpcRequest(std::string_view message);
struct GrpcInferResponse {
  InferResponse response;
  std::shared_ptr<const std::string> storage;
};
[[nodiscard]] Result<GrpcInferResponse> DecodeGrpcResponse(std::string_view message);

// A protobuf message in pieces: everything but the tensors' bytes is in texts of its own.
struct Piece {
  std::string own;            // Sent first, if not empty,
  std::string_view borrowed;  // then this.
};
// Tensors in raw_input_contents / raw_output_contents.
[[nodiscard]] std::vector<Piece> EncodeGrpcRequest(const InferRequest& request);
[[nodiscard]] std::vector<Piece> EncodeGrpcResponse(const InferResponse& response);

// ModelStreamInferResponse around an answer's pieces, or with an error.
[[nodiscard]] std::vector<Piece> EncodeStreamResponse(std::vector<Piece> response);
[[nodiscard]] std::string EncodeStreamError(std::string_view message);

}  // namespace divvy::kserve
