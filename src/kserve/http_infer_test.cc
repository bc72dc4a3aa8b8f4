#include "kserve/http_infer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace divvy::kserve {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

template <typename T>
std::string BytesOf(std::initializer_list<T> values) {
  std::string bytes;
  for (const T value : values) bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  return bytes;
}

// A request with one input in JSON.
std::string WithData(std::string_view type, std::string_view shape, std::string_view data) {
  return R"({"inputs":[{"name":"x","datatype":")" + std::string(type) + R"(","shape":)" +
         std::string(shape) + R"(,"data":)" + std::string(data) + "}]}";
}

Result<HttpInfer> Full(std::string_view body) {
  return DecodeHttpRequest(body, std::nullopt, Depth::kFull, nullptr);
}

// A head, its length as the header gives it, and what follows.
Result<HttpInfer> WithBinary(const std::string& head, const std::string& binary,
                             Depth depth = Depth::kFull) {
  static std::string body;  // Outlives the result.
  body = head + binary;
  return DecodeHttpRequest(body, head.size(), depth, nullptr);
}

std::string Why(const Result<HttpInfer>& infer) { return infer ? "" : infer.error().message; }

TEST(HttpInferTest, DataInJsonBecomesBytes) {
  const struct {
    std::string_view type, shape, data;
    std::string bytes;
  } cases[] = {
      {"BOOL", "[4]", "[true,false,1,0]", "\1\0\1\0"s},
      {"UINT8", "[2]", "[0,255]", "\0\xFF"s},
      {"INT8", "[2,1]", "[[-128],[127]]", "\x80\x7F"},
      {"UINT16", "[1]", "[65535]", "\xFF\xFF"},
      {"INT16", "[1]", "[-2]", "\xFE\xFF"},
      {"UINT32", "[1]", "[4294967295]", "\xFF\xFF\xFF\xFF"},
      {"INT32", "[1]", "[-2147483648]", BytesOf<std::int32_t>({INT32_MIN})},
      {"UINT64", "[1]", "[18446744073709551615]", std::string(8, '\xFF')},
      {"INT64", "[1]", "[-9223372036854775808]", BytesOf<std::int64_t>({INT64_MIN})},
      {"FP32", "[2,2]", "[[1,2.5],[-3e1,0.1]]", BytesOf<float>({1, 2.5f, -30, 0.1f})},
      {"FP32", "[2,2]", "[1,2.5,-30,0.1]", BytesOf<float>({1, 2.5f, -30, 0.1f})},
      {"FP64", "[]", "[0.1]", BytesOf<double>({0.1})},
      {"BYTES", "[3]", R"(["ab","","\u0000\""])", "\2\0\0\0ab\0\0\0\0\2\0\0\0\0\""s},
      {"FP32", "[0]", "[]", ""},
      {"FP32", "[2,0]", "[[],[]]", ""},
      {"FP32", "[0,9223372036854775807,9223372036854775807]", "[]", ""},
  };
  for (const auto& each : cases) {
    const std::string body = WithData(each.type, each.shape, each.data);
    const auto infer = Full(body);
    ASSERT_TRUE(infer) << body << infer.error().message;
    EXPECT_TRUE(infer->any_json);
    EXPECT_EQ(infer->request.inputs[0].bytes, each.bytes) << body;
    // At the head's depth the same request is accepted, and nothing converted.
    const auto head = DecodeHttpRequest(body, std::nullopt, Depth::kHead, nullptr);
    ASSERT_TRUE(head) << body;
    EXPECT_TRUE(head->any_json);
    EXPECT_EQ(head->storage, nullptr);
    EXPECT_EQ(head->request.inputs[0].shape, infer->request.inputs[0].shape);
  }
}

TEST(HttpInferTest, DataThatDoesNotFitIsRefused) {
  const struct {
    std::string_view type, shape, data;
    std::string_view says;
  } cases[] = {
      {"BOOL", "[1]", "[2]", "element 0 is 2"},
      {"BOOL", "[1]", "[\"true\"]", "byte 1"},
      {"UINT8", "[2]", "[1,256]", "element 1 is 256, which UINT8"},
      {"UINT8", "[1]", "[-1]", "-1"},
      {"INT8", "[1]", "[128]", "128"},
      {"INT16", "[1]", "[-32769]", "-32769"},
      {"UINT32", "[1]", "[4294967296]", "UINT32"},
      {"INT64", "[1]", "[9223372036854775808]", "INT64"},
      {"UINT64", "[1]", "[18446744073709551616]", "UINT64"},
      {"INT32", "[1]", "[1.0]", "1.0"},
      {"FP32", "[1]", "[1e39]", "FP32"},
      {"FP64", "[1]", "[1e309]", "FP64"},
      {"FP32", "[1]", "[\"1\"]", "number"},
      {"FP32", "[1]", "[null]", "number"},
      {"BYTES", "[1]", "[1]", "string"},
      {"FP32", "[3]", "[1,2]", "2 elements, but the shape takes 3"},
      {"FP32", "[1]", "[1,2]", "more elements"},
      {"FP32", "[0]", "[1]", "more elements"},
  };
  for (const auto& each : cases) {
    const auto infer = Full(WithData(each.type, each.shape, each.data));
    ASSERT_FALSE(infer) << each.data;
    EXPECT_EQ(infer.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(infer.error().message.find(each.says), std::string::npos) << infer.error().message;
    EXPECT_NE(infer.error().message.find("'x'"), std::string::npos) << infer.error().message;
  }
}

// What no depth of looking accepts.
TEST(HttpInferTest, RequestsThatAreRefused) {
  const std::string x = R"("name":"x","datatype":"UINT8","shape":[1])";
  const struct {
    std::string body;
    std::string_view says;
    ErrorCode code = ErrorCode::kInvalidArgument;
  } cases[] = {
      {"", "ends"},
      {"[]", "an object"},
      {"{}", "no inputs"},
      {R"({"inputs":{}})", "an array"},
      {R"({"inputs":[1]})", "an object"},
      {R"({"inputs":[{}]})", "needs a name"},
      {R"({"inputs":[{"name":"x","shape":[1],"data":[1]}]})", "a datatype"},
      {R"({"inputs":[{"name":"","datatype":"UINT8","shape":[1],"data":[1]}]})", "no name"},
      {R"({"inputs":[]} x)", "follows"},
      {R"({"id":7,"inputs":[]})", "a string"},
      {R"({"id":"a","id":"b","inputs":[]})", "twice"},
      {R"({"inputs":[{)" + x + R"(,"data":[1]},{)" + x + R"(,"data":[2]}]})", "'x' occurs twice"},
      {R"({"inputs":[],"outputs":[{"name":"y"},{"name":"y"}]})", "'y' occurs twice"},
      {R"({"inputs":[],"outputs":[{}]})", "no name"},
      {R"({"inputs":[{)" + x + "}]}", "neither data nor"},
      {R"({"inputs":[{)" + x + R"(,"data":1}]})", "must be an array"},
      {R"({"inputs":[{)" + x + R"(,"data":[1],"parameters":{"binary_data_size":1}}]})", "both"},
      {WithData("FP16", "[1]", "[1]"), "FP16 cannot travel in JSON"},
      {WithData("BF16", "[1]", "[1]"), "BF16 cannot travel in JSON"},
      {WithData("FLOAT", "[1]", "[1]"), "'FLOAT' is unknown"},
      {WithData("fp32", "[1]", "[1]"), "'fp32' is unknown"},
      {WithData("FP32", "[-1]", "[1]"), "dimension 0 of a shape is -1"},
      {WithData("FP32", "[1.5]", "[1]"), "1.5"},
      {WithData("FP32", "[4294967296,4294967296,2]", "[1]"), "too many elements"},
      {WithData("FP32", "[9223372036854775808]", "[1]"), "9223372036854775808"},
      {WithData("FP32", "1", "[1]"), "an array"},
      {WithData("FP32", "[1]", "[1}"), "]"},
      {R"({"parameters":{"triton_x":1},"inputs":[]})", "'triton_x'"},
      {R"({"parameters":{"triton_enable_empty_final_response":true},"inputs":[]})", "triton_"},
      {R"({"parameters":{"a":null},"inputs":[]})", "'a' must be"},
      {R"({"parameters":{"a":[1]},"inputs":[]})", "'a' must be"},
      {R"({"parameters":{"a":18446744073709551616},"inputs":[]})", "64 bits"},
      {R"({"parameters":{"a":1e999},"inputs":[]})", "64 bits"},
      {R"({"parameters":{"binary_data_output":1},"inputs":[]})", "binary_data_output"},
      {R"({"inputs":[],"outputs":[{"name":"y","parameters":{"binary_data":"yes"}}]})",
       "binary_data"},
      {R"({"inputs":[{)" + x + R"(,"parameters":{"shared_memory_region":"r"}}]})", "shared memory",
       ErrorCode::kUnsupported},
      {R"({"inputs":[],"outputs":[{"name":"y","parameters":{"shared_memory_region":"r"}}]})",
       "shared memory", ErrorCode::kUnsupported},
  };
  for (const Depth depth : {Depth::kHead, Depth::kFull}) {
    for (const auto& each : cases) {
      const auto infer = DecodeHttpRequest(each.body, std::nullopt, depth, nullptr);
      ASSERT_FALSE(infer) << each.body;
      EXPECT_EQ(infer.error().code, each.code) << each.body;
      EXPECT_NE(infer.error().message.find(each.says), std::string::npos) << each.body << "\n"
                                                                          << infer.error().message;
    }
  }
}

TEST(HttpInferTest, FieldsMayComeInAnyOrderAndUnknownOnesAreIgnored) {
  const auto infer = Full(
      R"({"outputs":[{"parameters":{"classification":3},"name":"y","z":{}}],"extra":[{"a":[]}],)"
      R"("inputs":[{"data":[[1],[2]],"hint":null,"parameters":{"k":"v"},"shape":[2],"datatype":"UINT8","name":"x"}],)"
      R"("parameters":{"a":true,"b":-1,"c":18446744073709551615,"d":1.0,"e":"\u00e9"},"id":"7"})");
  ASSERT_TRUE(infer) << infer.error().message;
  const InferRequest& request = infer->request;
  EXPECT_EQ(request.id, "7");
  EXPECT_EQ(request.inputs[0].bytes, "\1\2");
  EXPECT_EQ(*Find(request.inputs[0].parameters, "k"), Parameter("v"s));
  EXPECT_EQ(*Find(request.outputs[0].parameters, "classification"), Parameter(std::int64_t{3}));
  EXPECT_EQ(*Find(request.parameters, "a"), Parameter(true));
  EXPECT_EQ(*Find(request.parameters, "b"), Parameter(std::int64_t{-1}));
  EXPECT_EQ(*Find(request.parameters, "c"), Parameter(UINT64_MAX));
  EXPECT_EQ(*Find(request.parameters, "d"), Parameter(1.0));
  EXPECT_EQ(*Find(request.parameters, "e"), Parameter("\xC3\xA9"s));
  EXPECT_EQ(Find(request.parameters, "f"), nullptr);
}

std::string BinaryInput(std::string_view name, std::string_view type, std::string_view shape,
                        std::size_t size) {
  return R"({"name":")" + std::string(name) + R"(","datatype":")" + std::string(type) +
         R"(","shape":)" + std::string(shape) + R"(,"parameters":{"binary_data_size":)" +
         std::to_string(size) + "}}";
}

// Only binary inputs take bytes behind the head, in the order of the list.
TEST(HttpInferTest, BinaryTensorsAreFoundInListOrder) {
  const std::string head = R"({"inputs":[)" + BinaryInput("a", "FP16", "[1]", 2) +
                           R"(,{"name":"j","datatype":"UINT8","shape":[1],"data":[7]},)" +
                           BinaryInput("b", "BYTES", "[2]", 9) + "," +
                           BinaryInput("z", "FP32", "[0]", 0) + "," +
                           BinaryInput("c", "UINT8", "[3]", 3) + "]}";
  const auto infer = WithBinary(head, "AB\1\0\0\0x\0\0\0\0CDE"s);
  ASSERT_TRUE(infer) << infer.error().message;
  const auto& inputs = infer->request.inputs;
  EXPECT_EQ(inputs[0].bytes, "AB");
  EXPECT_EQ(inputs[1].bytes, "\7");
  EXPECT_EQ(inputs[2].bytes, "\1\0\0\0x\0\0\0\0"s);
  EXPECT_EQ(inputs[3].bytes, "");
  EXPECT_EQ(inputs[4].bytes, "CDE");
  EXPECT_TRUE(inputs[0].parameters.empty()) << "the size is the message's, not the tensor's";
  EXPECT_TRUE(WithBinary(head, "AB\1\0\0\0x\0\0\0\0CDE"s, Depth::kHead));
}

TEST(HttpInferTest, BytesLeftOverOrMissingAreRefused) {
  const std::string head = R"({"inputs":[)" + BinaryInput("a", "UINT8", "[2]", 2) + "]}";
  const std::string strings = R"({"inputs":[)" + BinaryInput("a", "BYTES", "[1]", 6) + "]}";
  for (const Depth depth : {Depth::kHead, Depth::kFull}) {
    EXPECT_TRUE(WithBinary(head, "AB", depth));
    EXPECT_THAT(Why(WithBinary(head, "ABC", depth)), HasSubstr("unexpected additional"));
    EXPECT_THAT(Why(WithBinary(head, "A", depth)), HasSubstr("binary_data_size is 2, but 1"));
    const std::string small = R"({"inputs":[)" + BinaryInput("a", "UINT8", "[3]", 2) + "]}";
    EXPECT_THAT(Why(WithBinary(small, "AB", depth)), HasSubstr("takes 3 bytes, got 2"));
    const std::string huge =
        R"({"inputs":[)" + BinaryInput("a", "UINT8", "[1]", SIZE_MAX / 2) + "]}";
    EXPECT_FALSE(WithBinary(huge, "A", depth));
    EXPECT_FALSE(DecodeHttpRequest(head, head.size() + 1, depth, nullptr));
    EXPECT_FALSE(DecodeHttpRequest(head, std::nullopt, depth, nullptr));
    // The length takes in a byte of the tensors, or leaves out one of the head.
    EXPECT_FALSE(DecodeHttpRequest(head + "AB", head.size() + 1, depth, nullptr));
    EXPECT_FALSE(DecodeHttpRequest(head + "AB", head.size() - 1, depth, nullptr));
    EXPECT_FALSE(
        WithBinary(R"({"inputs":[)" + BinaryInput("a", "UINT8", "[0]", 0) + "]}", "A", depth));
    // Elements whose lengths do not add up are only seen by who looks at them.
    for (const std::string& wrong : {"\1\0\0\0xx"s, "\3\0\0\0xx"s, "\xFF\xFF\xFF\xFFxx"s}) {
      EXPECT_EQ(WithBinary(strings, wrong, depth).has_value(), depth == Depth::kHead);
    }
    EXPECT_TRUE(WithBinary(strings, "\2\0\0\0xx"s, depth));
  }
}

ModelMetadata ModelOf(DataType type, Shape shape, int max_batch) {
  return {.name = "m",
          .platform = "p",
          .max_batch = max_batch,
          .inputs = {{"in", type, std::move(shape)}},
          .outputs = {}};
}

TEST(HttpInferTest, ARawRequestTakesItsShapeFromTheModel) {
  const struct {
    ModelMetadata model;
    std::string body;
    Shape shape;  // Empty: refused.
    std::string bytes;
  } cases[] = {
      {ModelOf(DataType::kUint8, {3}, 0), "abc", {3}, "abc"},
      {ModelOf(DataType::kUint8, {-1, 3}, 8), "abc", {1, 3}, "abc"},
      {ModelOf(DataType::kUint16, {-1, -1, 2}, 8), "abcdefgh", {1, 2, 2}, "abcdefgh"},
      {ModelOf(DataType::kUint16, {-1, -1, 2}, 8), "", {1, 0, 2}, ""},
      {ModelOf(DataType::kBytes, {-1, 1}, 8), "abc", {1, 1}, "\3\0\0\0abc"s},
      {ModelOf(DataType::kBytes, {-1}, 0), "", {1}, "\0\0\0\0"s},
      {ModelOf(DataType::kBytes, {2}, 0), "abc", {}, ""},
      {ModelOf(DataType::kUint8, {4}, 0), "abc", {}, ""},
      {ModelOf(DataType::kUint16, {-1}, 0), "abc", {}, ""},
      {ModelOf(DataType::kUint8, {-1, -1}, 0), "abc", {}, ""},
      {ModelOf(DataType::kUint8, {-1, 0}, 0), "abc", {}, ""},
      {ModelOf(DataType::kUint8, {INT64_MAX, INT64_MAX, INT64_MAX}, 0), "abc", {}, ""},
  };
  for (const auto& each : cases) {
    const auto infer = DecodeHttpRequest(each.body, 0, Depth::kFull, &each.model);
    ASSERT_EQ(infer.has_value(), !each.shape.empty()) << ::testing::PrintToString(each.shape);
    if (!infer) continue;
    EXPECT_EQ(infer->request.inputs[0].name, "in");
    EXPECT_EQ(infer->request.inputs[0].shape, each.shape);
    EXPECT_EQ(infer->request.inputs[0].bytes, each.bytes);
    EXPECT_FALSE(infer->any_json);
    const InferResponse response{
        .outputs = {{.name = "y", .type = DataType::kFp16, .shape = {1}, .bytes = "AB"}}};
    const auto answer = EncodeHttpResponse(response, infer->request);
    EXPECT_TRUE(answer && answer->binary) << "all outputs of a raw request come back in binary";
  }
  EXPECT_FALSE(DecodeHttpRequest("abc", 0, Depth::kFull, nullptr));
  ModelMetadata two = ModelOf(DataType::kUint8, {3}, 0);
  two.inputs.push_back(two.inputs[0]);
  EXPECT_FALSE(DecodeHttpRequest("abc", 0, Depth::kFull, &two));
}

InferResponse Answer() {
  static const std::string floats = BytesOf<float>({1, -2.5f});
  return {.model = "m",
          .version = "1",
          .id = "",
          .parameters = {},
          .outputs = {{.name = "f", .type = DataType::kFp32, .shape = {1, 2}, .bytes = floats},
                      {.name = "i", .type = DataType::kInt8, .shape = {2}, .bytes = "\x80\x7F"}}};
}

TEST(HttpInferTest, EachOutputIsSentAsItWasAskedFor) {
  const auto plain = EncodeHttpResponse(Answer(), {});
  ASSERT_TRUE(plain);
  EXPECT_FALSE(plain->binary);
  EXPECT_EQ(plain->head, R"({"model_name":"m","model_version":"1","outputs":[)"
                         R"({"name":"f","datatype":"FP32","shape":[1,2],"data":[1.0,-2.5]},)"
                         R"({"name":"i","datatype":"INT8","shape":[2],"data":[-128,127]}]})");

  InferRequest request;
  request.parameters.emplace_back("binary_data_output", true);
  request.outputs = {{"i", {{"binary_data", false}}}, {"f", {}}};
  InferResponse response = Answer();
  response.id = "q";
  const auto mixed = EncodeHttpResponse(response, request);
  ASSERT_TRUE(mixed);
  EXPECT_TRUE(mixed->binary);
  EXPECT_EQ(mixed->tensors, std::vector<std::string_view>{response.outputs[0].bytes});
  EXPECT_EQ(mixed->head,
            R"({"model_name":"m","model_version":"1","id":"q","outputs":[)"
            R"({"name":"f","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}},)"
            R"({"name":"i","datatype":"INT8","shape":[2],"data":[-128,127]}]})");
}

TEST(HttpInferTest, ParametersOfAnAnswerAreAllSent) {
  const Parameters parameters = {{"", true}, {"binary_data", false}, {"n", std::int64_t{-1}}};
  InferResponse response = Answer();
  response.parameters = parameters;
  response.outputs[0].parameters = parameters;
  for (const bool binary : {false, true}) {
    const auto message =
        EncodeHttpResponse(response, {.parameters = {{"binary_data_output", binary}}});
    ASSERT_TRUE(message);
    std::string body = message->head;
    for (const std::string_view tensor : message->tensors) body += tensor;
    const auto read =
        DecodeHttpResponse(body, binary ? std::optional(message->head.size()) : std::nullopt);
    ASSERT_TRUE(read) << message->head;
    EXPECT_TRUE(read->response == response) << message->head;
  }
}

TEST(HttpInferTest, WhatJsonCannotSayIsRefusedInAnAnswer) {
  const std::string bad_floats = BytesOf<float>({1, std::numeric_limits<float>::infinity()});
  const Tensor outputs[] = {
      {.name = "y", .type = DataType::kFp16, .shape = {1}, .bytes = "AB"},
      {.name = "y", .type = DataType::kBf16, .shape = {1}, .bytes = "AB"},
      {.name = "y", .type = DataType::kFp32, .shape = {2}, .bytes = bad_floats},
      {.name = "y",
       .type = DataType::kBytes,
       .shape = {1},
       .bytes = std::string_view("\1\0\0\0\xFF", 5)},
      {.name = "y", .type = DataType::kUint8, .shape = {3}, .bytes = "AB"},
      {.name = "y", .type = DataType::kBytes, .shape = {1}, .bytes = "ABCDEF"},
  };
  for (const Tensor& output : outputs) {
    EXPECT_FALSE(EncodeHttpResponse({.outputs = {output}}, {})) << Name(output.type);
    const InferRequest binary{.parameters = {{"binary_data_output", true}}};
    EXPECT_TRUE(EncodeHttpResponse({.outputs = {output}}, binary)) << Name(output.type);
  }
}

TEST(HttpInferTest, EmptyBinaryOutputsNeedNoHeader) {
  const InferRequest binary{.parameters = {{"binary_data_output", true}}};
  const InferResponse empty{.outputs = {{.name = "y", .type = DataType::kFp16, .shape = {0}}}};
  const auto message = EncodeHttpResponse(empty, binary);
  ASSERT_TRUE(message);
  EXPECT_FALSE(message->binary);
  EXPECT_TRUE(DecodeHttpResponse(message->head, std::nullopt));
}

TEST(HttpInferTest, ErrorsAreEscaped) {
  EXPECT_EQ(ErrorJson("no \"x\"\n"), R"({"error":"no \"x\"\u000a"})");
}

TEST(HttpInferTest, MoreThanAMessageMayHaveIsRefused) {
  std::string outputs;
  for (std::size_t i = 0; i <= kMostTensors; ++i) {
    outputs += (i > 0 ? ",{\"name\":\"" : "{\"name\":\"") + std::to_string(i) + "\"}";
  }
  EXPECT_FALSE(Full(R"({"inputs":[],"outputs":[)" + outputs + "]}"));
  std::string shape = "1";
  for (std::size_t i = 1; i < kMostDimensions; ++i) shape += ",1";
  EXPECT_TRUE(Full(WithData("UINT8", "[" + shape + "]", "[1]")));
  EXPECT_FALSE(Full(WithData("UINT8", "[" + shape + ",1]", "[1]")));
}

TEST(HttpInferTest, ErrorsComeBackAsTheyWereMeant) {
  const std::string text = "tensor \"x\" of caf\xc3\xa9:\n\ttoo small";
  EXPECT_EQ(ParseErrorJson(ErrorJson(text)), text);
  EXPECT_EQ(ParseErrorJson(R"({"code": 3, "error": "a\u0041"})"), "aA");
  for (const char* other : {"", "oops", "{}", "[1]", R"({"error": 3})", R"({"error": "x"} y)"}) {
    EXPECT_EQ(ParseErrorJson(other), other);
  }
}

}  // namespace
}  // namespace divvy::kserve
