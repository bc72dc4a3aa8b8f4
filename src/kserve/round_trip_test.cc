#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/test_mutation.h"
#include "kserve/grpc_infer.h"
#include "kserve/http_infer.h"

// What is written reads back as the same, and what is damaged gives an error or a value.

namespace divvy::kserve {
namespace {

// Random requests and answers. Keeps their tensors' bytes.
class Generator {
 public:
  explicit Generator(std::uint64_t seed) : random_(seed) {}

  Random& random() { return random_; }

  InferRequest Request() {
    InferRequest request{
        .model = Text(), .version = Text(), .id = Text(), .parameters = SomeParameters()};
    request.inputs = Tensors();
    for (std::uint64_t i = random_.Below(3); i > 0; --i) {
      request.outputs.push_back({"out" + std::to_string(i), SomeParameters()});
    }
    return request;
  }

  InferResponse Response() {
    return {.model = Text(),
            .version = Text(),
            .id = Text(),
            .parameters = SomeParameters(),
            .outputs = Tensors()};
  }

 private:
  std::string Text() {
    static constexpr std::string_view kLetters[] = {"a",        "Z",
                                                    "\"",       "\\",
                                                    "\n",       "\x01",
                                                    "\xC3\xA9", "\xF0\x9F\x98\x80",
                                                    "/",        std::string_view("\0", 1)};
    std::string text;
    for (std::uint64_t i = random_.Below(4); i > 0; --i)
      text += kLetters[random_.Below(std::size(kLetters))];
    return text;
  }

  Parameters SomeParameters() {
    Parameters parameters;
    for (std::uint64_t i = random_.Below(4); i > 0; --i) {
      // Whole numbers are signed wherever they fit, as JSON cannot tell.
      const Parameter values[] = {random_.Below(2) == 1, static_cast<std::int64_t>(random_.Bits()),
                                  random_.Bits() | 1ull << 63,
                                  random_.Below(2) == 0 ? random_.Normal() : 3.0, Text()};
      parameters.emplace_back(Text() + std::to_string(i), values[random_.Below(std::size(values))]);
    }
    return parameters;
  }

  std::vector<Tensor> Tensors() {
    std::vector<Tensor> tensors;
    for (std::uint64_t i = random_.Below(4); i > 0; --i) {
      Tensor& tensor = tensors.emplace_back();
      tensor.name = Text() + std::to_string(i);
      tensor.type = static_cast<DataType>(random_.Below(14));
      std::size_t count = 1;
      for (std::uint64_t d = random_.Below(4); d > 0; --d) {
        tensor.shape.push_back(static_cast<std::int64_t>(random_.Below(4)));
        count *= static_cast<std::size_t>(tensor.shape.back());
      }
      tensor.parameters = SomeParameters();
      tensor.bytes = bytes_.emplace_back(Bytes(tensor.type, count));
    }
    return tensors;
  }

  std::string Bytes(DataType type, std::size_t count) {
    std::string bytes;
    for (std::size_t i = 0; i < count; ++i) {
      std::uint64_t value = random_.Bits();
      if (type == DataType::kBool) value &= 1;
      // Finite, so that JSON can say it.
      if (type == DataType::kFp32)
        value = std::bit_cast<std::uint32_t>(static_cast<float>(random_.Normal()));
      if (type == DataType::kFp64) value = std::bit_cast<std::uint64_t>(random_.Normal() * 1e-300);
      const std::string text = type == DataType::kBytes ? Text() : "";
      if (type == DataType::kBytes) value = text.size();
      bytes.append(reinterpret_cast<const char*>(&value),
                   type == DataType::kBytes ? 4 : SizeOf(type));
      bytes += text;
    }
    return bytes;
  }

  Random random_;
  std::deque<std::string> bytes_;
};

std::string Joined(const HttpMessage& message) {
  std::string body = message.head;
  for (const std::string_view tensor : message.tensors) body += tensor;
  return body;
}

std::string Joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text.append(piece.own).append(piece.borrowed);
  return text;
}

std::optional<std::size_t> HeaderOf(const HttpMessage& message) {
  return message.binary ? std::optional(message.head.size()) : std::nullopt;
}

TEST(RoundTripTest, HttpRequestsReadBackAtBothDepths) {
  Generator generator(1);
  for (int i = 0; i < 800; ++i) {
    const InferRequest request = generator.Request();
    const HttpMessage message = EncodeHttpRequest(request);
    const std::string body = Joined(message);
    for (const Depth depth : {Depth::kHead, Depth::kFull}) {
      const auto read = DecodeHttpRequest(body, HeaderOf(message), depth, nullptr);
      ASSERT_TRUE(read) << message.head << read.error().message;
      // The model is in the path, and one parameter is ours: that all outputs come back in binary.
      InferRequest expected = request;
      expected.model.clear();
      expected.version.clear();
      expected.parameters.emplace_back("binary_data_output", true);
      EXPECT_TRUE(read->request == expected) << message.head;
      EXPECT_FALSE(read->any_json);
    }
  }
}

TEST(RoundTripTest, HttpAnswersReadBackFromJsonAndBinary) {
  Generator generator(2);
  for (int i = 0; i < 800; ++i) {
    const InferResponse response = generator.Response();
    InferRequest request;
    request.parameters.emplace_back("binary_data_output", generator.random().Below(2) == 0);
    for (const Tensor& output : response.outputs) {
      const bool half = output.type == DataType::kFp16 || output.type == DataType::kBf16;
      request.outputs.push_back(
          {output.name, {{"binary_data", half || generator.random().Below(2) == 0}}});
    }
    const auto message = EncodeHttpResponse(response, request);
    ASSERT_TRUE(message) << message.error().message;
    const std::string body = Joined(*message);
    const auto read = DecodeHttpResponse(body, HeaderOf(*message));
    ASSERT_TRUE(read) << message->head << read.error().message;
    EXPECT_TRUE(read->response == response) << message->head;
  }
}

TEST(RoundTripTest, GrpcRequestsAndAnswersReadBack) {
  Generator generator(3);
  for (int i = 0; i < 800; ++i) {
    const InferRequest request = generator.Request();
    const std::string message = Joined(EncodeGrpcRequest(request));
    const auto read = DecodeGrpcRequest(message);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(read->request == request) << i;
    EXPECT_EQ(Joined(EncodeGrpcRequest(read->request)), message);

    const InferResponse response = generator.Response();
    const std::string answer = Joined(EncodeGrpcResponse(response));
    const auto read_answer = DecodeGrpcResponse(answer);
    ASSERT_TRUE(read_answer) << read_answer.error().message;
    EXPECT_TRUE(read_answer->response == response) << i;
    EXPECT_EQ(Joined(EncodeGrpcResponse(read_answer->response)), answer);
  }
}

// Any bytes, as a request or an answer of either protocol. The bytes are copied to a text of just
// their size, so that the sanitizers see every step beyond it.
void ReadAsEverything(std::string_view text, std::size_t header_length) {
  const std::vector<char> exact(text.begin(), text.end());
  const std::string_view bytes(exact.data(), exact.size());
  for (const auto header : {std::optional<std::size_t>(), std::optional(header_length)}) {
    (void)DecodeHttpRequest(bytes, header, Depth::kHead, nullptr);
    (void)DecodeHttpRequest(bytes, header, Depth::kFull, nullptr);
    (void)DecodeHttpResponse(bytes, header);
  }
  (void)DecodeGrpcRequest(bytes);
  (void)DecodeGrpcResponse(bytes);
}

TEST(RoundTripTest, TruncatedAndDamagedMessagesNeverDoHarm) {
  Generator generator(4);
  for (int i = 0; i < 5; ++i) {
    const HttpMessage message = EncodeHttpRequest(generator.Request());
    const std::string texts[] = {
        Joined(message), Joined(EncodeGrpcRequest(generator.Request())),
        Joined(EncodeGrpcResponse(generator.Response())),
        R"({"id":"\u0041","inputs":[{"name":"x","shape":[2,1],"datatype":"BYTES","data":[["a"],["\n"]]}]})"};
    for (const std::string& text : texts) {
      for (std::size_t size = 0; size < text.size(); ++size) {
        ReadAsEverything(text.substr(0, size), message.head.size());
      }
      for (int j = 0; j < 50; ++j) {
        ReadAsEverything(testing::Mutated(text, generator.random()), message.head.size());
      }
    }
  }
}

// A cut JSON head is never taken for a whole one.
TEST(RoundTripTest, TruncatedHttpRequestsAreRefused) {
  Generator generator(5);
  for (int i = 0; i < 20; ++i) {
    const HttpMessage message = EncodeHttpRequest(generator.Request());
    const std::string body = Joined(message);
    for (std::size_t size = 0; size < body.size(); ++size) {
      EXPECT_FALSE(
          DecodeHttpRequest(body.substr(0, size), HeaderOf(message), Depth::kHead, nullptr));
    }
  }
}

}  // namespace
}  // namespace divvy::kserve
