// libFuzzer target: any bytes give an error or a value, and what was read survives writing. See
// CMakeLists.txt for how to run it.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "kserve/describe.h"
#include "kserve/grpc_infer.h"

namespace {

std::string Joined(const std::vector<divvy::kserve::Piece>& pieces) {
  std::string text;
  for (const auto& piece : pieces) text.append(piece.own).append(piece.borrowed);
  return text;
}

}  // namespace

// The name and linkage are libFuzzer's.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace divvy;
  using namespace divvy::kserve;
  const std::string_view message(reinterpret_cast<const char*>(data), size);
  if (const auto infer = DecodeGrpcRequest(message)) {
    const std::string written = Joined(EncodeGrpcRequest(infer->request));
    const auto again = DecodeGrpcRequest(written);
    Check(again && again->request == infer->request, "a request survives writing");
    for (const Tensor& input : infer->request.inputs) {
      Check(CheckBytes(input.type, input.shape, input.bytes, input.name).has_value(), "bytes fit");
    }
  }
  if (const auto infer = DecodeGrpcResponse(message)) {
    const std::string written = Joined(EncodeGrpcResponse(infer->response));
    const auto again = DecodeGrpcResponse(written);
    Check(again && again->response == infer->response, "an answer survives writing");
  }
  (void)ParseModelName(message);
  (void)ParseIndexQuery(message);
  return 0;
}
