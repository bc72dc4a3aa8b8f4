// libFuzzer target: any bytes give an error or a value, both depths agree on what they both look
// at, and what was read survives writing. See CMakeLists.txt for how to run it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "kserve/describe.h"
#include "kserve/http_infer.h"

namespace {

using namespace divvy;
using namespace divvy::kserve;

std::string Joined(const HttpMessage& message) {
  std::string body = message.head;
  for (const std::string_view tensor : message.tensors) body += tensor;
  return body;
}

std::optional<std::size_t> HeaderOf(const HttpMessage& message) {
  return message.binary ? std::optional(message.head.size()) : std::nullopt;
}

void TryRequest(std::string_view body, std::optional<std::size_t> header) {
  static const ModelMetadata model{
      .name = "m", .inputs = {{"x", DataType::kFp32, {2, -1}}}, .outputs = {}};
  const auto head = DecodeHttpRequest(body, header, Depth::kHead, &model);
  const auto full = DecodeHttpRequest(body, header, Depth::kFull, &model);
  if (!full) return;
  Check(head.has_value(), "the head of what is accepted is accepted");
  Check(head->request.parameters == full->request.parameters, "both depths read the same");
  Check(head->request.outputs == full->request.outputs, "both depths read the same");
  for (const Tensor& input : full->request.inputs) {
    Check(CheckBytes(input.type, input.shape, input.bytes, input.name).has_value(), "bytes fit");
  }
  const HttpMessage message = EncodeHttpRequest(full->request);
  const std::string written = Joined(message);
  const auto again = DecodeHttpRequest(written, HeaderOf(message), Depth::kFull, nullptr);
  // Our own parameter may be one too many.
  if (full->request.parameters.size() == kMostParameters) return;
  Check(again && again->request.inputs == full->request.inputs, "a request survives writing");
}

void TryResponse(std::string_view body, std::optional<std::size_t> header) {
  const auto response = DecodeHttpResponse(body, header);
  if (!response) return;
  InferRequest request;
  request.parameters.emplace_back("binary_data_output", true);
  const auto message = EncodeHttpResponse(response->response, request);
  Check(message.has_value(), "all answers can be sent in binary");
  const std::string written = Joined(*message);
  const auto again = DecodeHttpResponse(written, HeaderOf(*message));
  Check(again && again->response == response->response, "an answer survives writing");
  (void)EncodeHttpResponse(response->response, {});
}

}  // namespace

// The name and linkage are libFuzzer's. The first byte says how long the head is.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto header = data[0] == 255 ? std::nullopt : std::optional<std::size_t>(data[0]);
  TryRequest(body, header);
  TryResponse(body, header);
  (void)ParseModelMetadata(body);
  (void)ParseMaxBatch(body);
  return 0;
}
