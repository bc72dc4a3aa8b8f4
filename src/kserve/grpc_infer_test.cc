#include "kserve/grpc_infer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "kserve/describe.h"
#include "kserve/wire.h"

namespace divvy::kserve {
namespace {

using namespace std::string_literals;

std::string Unhex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::string Joined(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) text.append(piece.own).append(piece.borrowed);
  return text;
}

std::string Field(std::uint32_t number, std::string_view bytes) {
  WireWriter writer;
  writer.Bytes(number, bytes);
  return writer.Take();
}

std::string Number(std::uint32_t number, std::uint64_t value) {
  WireWriter writer;
  writer.VarintAlways(number, value);
  return writer.Take();
}

std::string Parameter(std::uint32_t number, std::string_view name, std::string_view value) {
  return Field(number, Field(1, name) + Field(2, value));
}

// InferInputTensor: a name, a type, a shape of one dimension, and what else is said.
std::string Input(std::string_view name, std::string_view type, std::uint64_t dimension,
                  std::string_view more = {}) {
  return Field(5, Field(1, name) + Field(2, type) + Number(3, dimension) + std::string(more));
}

std::string Problem(std::string_view message) {
  const auto infer = DecodeGrpcRequest(message);
  return infer ? "" : infer.error().message;
}

// What protobuf's own library writes for a request with a tensor of each kind of typed contents.
// One published list of these fields has their numbers wrong from int64_contents on.
TEST(GrpcInferTest, ReadsWhatProtobufWrites) {
  const std::string message = Unhex(
      "0a016d1201321a0171220e0a0164120921000000000000e03f2a1e0a01611205494e5431361a0201022a0e120cfd"
      "ffff"
      "ffffffffffff01ac022a260a01621204465033321a010122100a0175120b28ffffffffffffffffff012a06320400"
      "00c0"
      "3f2a150a0163120542595445531a01022a064202787942002a140a0164120655494e5436341a01012a042a02ac02"
      "2a1b"
      "0a01651205494e5436341a01012a0c1a0affffffffffffffffff012a130a0166120555494e54381a01012a042202"
      "c801"
      "2a180a01671204465036341a01012a0a3a0800000000000000c02a120a01681204424f4f4c1a01022a040a020100"
      "320d"
      "0a017912080a016b12031a0176");
  const auto infer = DecodeGrpcRequest(message);
  ASSERT_TRUE(infer) << infer.error().message;
  const InferRequest& request = infer->request;
  EXPECT_EQ(request.model, "m");
  EXPECT_EQ(request.version, "2");
  EXPECT_EQ(request.id, "q");
  EXPECT_EQ(std::get<double>(*Find(request.parameters, "d")), 0.5);
  ASSERT_EQ(request.inputs.size(), 8u);
  EXPECT_EQ(request.inputs[0].shape, (Shape{1, 2}));
  EXPECT_EQ(request.inputs[0].type, DataType::kInt16);
  EXPECT_EQ(request.inputs[0].bytes, "\xFD\xFF\x2C\x01");
  EXPECT_EQ(request.inputs[1].bytes, "\0\0\xC0\x3F"s);
  EXPECT_EQ(std::get<std::uint64_t>(*Find(request.inputs[1].parameters, "u")), UINT64_MAX);
  EXPECT_EQ(request.inputs[2].bytes, "\2\0\0\0xy\0\0\0\0"s);
  EXPECT_EQ(request.inputs[3].bytes, "\x2C\1\0\0\0\0\0\0"s);
  EXPECT_EQ(request.inputs[4].bytes, std::string(8, '\xFF'));
  EXPECT_EQ(request.inputs[5].bytes, "\xC8");
  EXPECT_EQ(request.inputs[6].bytes, "\0\0\0\0\0\0\0\xC0"s);
  EXPECT_EQ(request.inputs[7].bytes, "\1\0"s);
  ASSERT_EQ(request.outputs.size(), 1u);
  EXPECT_EQ(std::get<std::string>(*Find(request.outputs[0].parameters, "k")), "v");
}

TEST(GrpcInferTest, RequestsThatAreRefused) {
  const std::string contents = Field(5, Number(4, 1));  // uint_contents
  const struct {
    std::string message;
    std::string_view says;
    ErrorCode code = ErrorCode::kInvalidArgument;
  } cases[] = {
      {Input("a", "UINT8", 1, contents) + Field(7, "x"), "'a' has typed contents"},
      {Input("a", "UINT8", 1, Field(5, "")) + Field(7, "x"), "'a' has typed contents"},
      {Input("a", "UINT8", 1) + Input("b", "UINT8", 1) + Field(7, "x"),
       "2 tensors, but raw contents of 1"},
      {Input("a", "UINT8", 1) + Field(7, "x") + Field(7, "y"), "raw contents of 2"},
      {Field(7, "x"), "0 tensors"},
      {Input("a", "UINT8", 2) + Field(7, "x"), "takes 2 bytes, got 1"},
      {Input("a", "UINT8", 2, contents), "takes 2 bytes, got 1"},
      {Input("a", "UINT8", 1), "takes 1 bytes, got 0"},
      {Input("a", "BYTES", 1) + Field(7, "\5\0\0\0x"s), "says it has 5 bytes"},
      {Input("a", "FP16", 1, contents), "only travels in raw"},
      {Input("a", "BF16", 1, Field(5, Number(2, 1))), "only travels in raw"},
      {Input("a", "INT8", 1, contents), "field 4 is filled, but INT8 takes field 2"},
      {Input("a", "UINT8", 2, contents + Field(5, Number(2, 1))), "field 2 is filled"},
      {Input("a", "UINT8", 1, Field(5, Number(4, 256))), "256 does not fit"},
      {Input("a", "INT8", 1, Field(5, Number(2, static_cast<std::uint64_t>(-129)))), "-129"},
      {Input("a", "INT16", 1, Field(5, Number(2, 32768))), "32768"},
      {Input("a", "FP32", 1, Field(5, Field(6, "abc"))), "cut off"},
      {Input("a", "FP32", 1, Field(5, Number(6, 1))), "wire type"},
      {Input("a", "UINT8", 1, Field(5, Field(4, "\x80"))), "cut off"},
      {Input("a", "BYTES", 1, Field(5, Number(8, 1))), "wire type"},
      {Input("a", "FLOAT", 1, contents), "'FLOAT' is unknown"},
      {Input("a", "", 1, contents), "unknown"},
      {Input("", "UINT8", 1, contents), "no name"},
      {Input("a", "UINT8", static_cast<std::uint64_t>(-1), contents), "negative"},
      {Input("a", "FP64", 1ull << 62, Number(3, 8)), "too many"},
      {Input("a", "FP64", 1ull << 61) + Field(7, ""), "more than 2^64"},
      {Input("a", "UINT8", 1, contents) + Input("a", "UINT8", 1, contents), "'a' occurs twice"},
      {Field(6, Field(1, "y")) + Field(6, Field(1, "y")), "'y' occurs twice"},
      {Parameter(4, "k", Number(1, 1)) + Parameter(4, "k", Number(1, 0)), "'k' occurs twice"},
      {Parameter(4, "k", ""), "'k' has no value"},
      {Field(4, Field(1, "k")), "'k' has no value"},
      {Parameter(4, "k", Field(4, "x")), "wire type"},
      {Parameter(4, "triton_x", Number(1, 1)), "triton_"},
      {Input("a", "UINT8", 1, Parameter(4, "shared_memory_region", Field(3, "r"))), "shared memory",
       ErrorCode::kUnsupported},
      {Field(6, Field(1, "y") + Parameter(2, "shared_memory_region", Field(3, "r"))),
       "shared memory", ErrorCode::kUnsupported},
      {Field(1, "\xFF"), "UTF-8"},
      {Number(1, 1), "wire type"},
      {Number(4, 1), "wire type"},
      {"\x0B", "wire type 3"},  // The beginning of a group
      {"\x0C", "wire type 4"},  // and its end.
      {"\x0E", "wire type 6"},
      {"\x02", "no number"},  // Field 0.
      {"\x0A\x05xx", "cut off"},
      {"\x08", "cut off"},
      {"\x09xxxx", "cut off"},
      {"\x0D\1\1", "cut off"},
      {"\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", "cut off"},
      {"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01", "no number"},
      {Number(99, 0) + "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02", "no number"},
  };
  for (const auto& each : cases) {
    const auto infer = DecodeGrpcRequest(each.message);
    ASSERT_FALSE(infer) << each.says;
    EXPECT_EQ(infer.error().code, each.code) << infer.error().message;
    EXPECT_NE(infer.error().message.find(each.says), std::string::npos)
        << each.says << " / " << infer.error().message;
  }
}

TEST(GrpcInferTest, UnknownFieldsOfAllWireTypesArePassedOver) {
  const std::string unknown =
      Number(15, 7) + "\x79" + "12345678" + "\x7D" + "1234" + Field(15, "\x0B");
  std::string message =
      unknown + Input("a", "UINT8", 1, unknown + Field(5, unknown + Number(4, 9) + unknown));
  message +=
      Field(4, unknown + Field(1, "k") + Field(2, unknown + Number(1, 1) + unknown)) + unknown;
  const auto infer = DecodeGrpcRequest(message);
  ASSERT_TRUE(infer) << infer.error().message;
  EXPECT_EQ(infer->request.inputs[0].bytes, "\x09");
  EXPECT_TRUE(std::get<bool>(infer->request.parameters[0].second));
}

// Whole or in parts, packed or not, and before the type is known: all mean the same.
TEST(GrpcInferTest, RepeatedScalarsMayComePackedOrNot) {
  const std::string contents =
      Field(5, Number(2, 1) + Field(2, "\2\3") + Field(2, "")) + Field(5, Number(2, 4));
  const auto infer = DecodeGrpcRequest(
      Field(5, contents + Field(3, "\2\1") + Number(3, 2) + Field(2, "INT8") + Field(1, "a")));
  ASSERT_TRUE(infer) << infer.error().message;
  EXPECT_EQ(infer->request.inputs[0].bytes, "\1\2\3\4");
  EXPECT_EQ(infer->request.inputs[0].shape, (Shape{2, 1, 2}));
  // A float on its own.
  EXPECT_EQ(Problem(Input("a", "FP32", 1,
                          Field(5,
                                "\x35"
                                "1234"))),
            "");
}

TEST(GrpcInferTest, OneTritonParameterIsAllowed) {
  EXPECT_EQ(Problem(Parameter(4, "triton_enable_empty_final_response", Number(1, 1))), "");
}

TEST(GrpcInferTest, ParametersThatJsonCannotSayAreRefused) {
  WireWriter writer;
  writer.DoubleAlways(4, std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(Problem(Parameter(4, "k", writer.text())), "");
}

// Raw tensors are neither copied on the way in nor on the way out.
TEST(GrpcInferTest, RawTensorsAreNotCopied) {
  const std::string message = Input("a", "FP16", 1) + Field(7, "xy") + Field(1, "m");
  const auto infer = DecodeGrpcRequest(message);
  ASSERT_TRUE(infer);
  const std::string_view bytes = infer->request.inputs[0].bytes;
  EXPECT_TRUE(message.data() <= bytes.data() && bytes.data() < message.data() + message.size());
  EXPECT_EQ(infer->storage, nullptr);
  const auto pieces = EncodeGrpcRequest(infer->request);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].borrowed.data(), bytes.data());
}

TEST(GrpcInferTest, StreamAnswersWrapAnAnswerOrAnError) {
  const InferResponse response{
      .model = "m",
      .outputs = {{.name = "y", .type = DataType::kUint8, .shape = {2}, .bytes = "AB"}}};
  const std::string inner = Joined(EncodeGrpcResponse(response));
  EXPECT_EQ(Joined(EncodeStreamResponse(EncodeGrpcResponse(response))), Field(2, inner));
  EXPECT_EQ(Joined(EncodeStreamResponse({})), Field(2, ""));
  EXPECT_EQ(EncodeStreamError("no"), Field(1, "no"));
}

ModelMetadata Metadata() {
  return {.name = "m",
          .versions = {"1", "2"},
          .platform = "divvy_synthetic",
          .max_batch = 8,
          .inputs = {{"x", DataType::kBytes, {-1, 3}}},
          .outputs = {{"y", DataType::kFp32, {-1}}}};
}

TEST(DescribeTest, MetadataReadsBack) {
  const auto read = ParseModelMetadata(ToJson(Metadata()));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, "m");
  EXPECT_EQ(read->versions, Metadata().versions);
  EXPECT_EQ(read->platform, "divvy_synthetic");
  EXPECT_EQ(read->inputs, Metadata().inputs);
  EXPECT_EQ(read->outputs, Metadata().outputs);
  EXPECT_FALSE(ParseModelMetadata(R"({"inputs":[{"datatype":"X"}]})"));
  EXPECT_FALSE(ParseModelMetadata(R"({"inputs":[{"shape":[-2]}]})"));
}

// Shapes of metadata begin with the batch, those of a config do not; BYTES is TYPE_STRING there.
TEST(DescribeTest, ConfigLeavesOutTheBatchDimension) {
  const ModelConfig config{.metadata = Metadata(),
                           .backend = "synthetic",
                           .preferred_batches = {4},
                           .instances = 2,
                           .parameters = {{"k", "v"}}};
  EXPECT_EQ(ToJson(config),
            R"({"name":"m","platform":"divvy_synthetic","backend":"synthetic","max_batch_size":8,)"
            R"("input":[{"name":"x","data_type":"TYPE_STRING","dims":[3]}],)"
            R"("output":[{"name":"y","data_type":"TYPE_FP32","dims":[]}],)"
            R"("instance_group":[{"name":"m","kind":"KIND_GPU","count":2}],)"
            R"("dynamic_batching":{"preferred_batch_size":[4],"priority_levels":8},)"
            R"("parameters":{"k":{"string_value":"v"}},)"
            R"("model_transaction_policy":{"decoupled":false}})");
  EXPECT_EQ(ParseMaxBatch(ToJson(config)), 8);
  EXPECT_EQ(ParseMaxBatch("{}"), 0);
  EXPECT_FALSE(ParseMaxBatch(R"({"max_batch_size":-1})"));
  EXPECT_FALSE(ParseMaxBatch(R"({"max_batch_size":"8"})"));
  const std::string group = Field(1, "m") + Number(2, 2) + Number(4, 1);
  EXPECT_EQ(ToProto(config),
            Field(1, Field(1, "m") + Field(2, "divvy_synthetic") + Number(4, 8) +
                         Field(5, Field(1, "x") + Number(2, 13) + Field(4, "\3")) +
                         Field(6, Field(1, "y") + Number(2, 11)) + Field(7, group) +
                         Field(11, Field(1, "\4") + Number(4, 8)) +
                         Parameter(14, "k", Field(1, "v")) + Field(17, "synthetic")));
}

TEST(DescribeTest, StatisticsInBothForms) {
  ModelStatistics model{
      .name = "m", .last_inference_ms = 5, .inference_count = 6, .execution_count = 7};
  model.queue = {8, 9};
  model.batches[4].compute_infer = {1, 2};
  const std::string zero = R"({"count":0,"ns":0})";
  EXPECT_EQ(
      ToJson(std::vector{model}),
      R"({"model_stats":[{"name":"m","version":"1","last_inference":5,"inference_count":6,"execution_count":7,)"
      R"("inference_stats":{"success":)" +
          zero + R"(,"fail":)" + zero + R"(,"queue":{"count":8,"ns":9},"compute_input":)" + zero +
          R"(,"compute_infer":)" + zero + R"(,"compute_output":)" + zero + R"(,"cache_hit":)" +
          zero + R"(,"cache_miss":)" + zero +
          R"(},"response_stats":{},"batch_stats":[{"batch_size":4,"compute_input":)" + zero +
          R"(,"compute_infer":{"count":1,"ns":2},"compute_output":)" + zero +
          R"(}],"memory_usage":[]}]})");
  const std::string durations = Field(1, "") + Field(2, "") +
                                Field(3, Number(1, 8) + Number(2, 9)) + Field(4, "") +
                                Field(5, "") + Field(6, "");
  const std::string batch =
      Number(1, 4) + Field(2, "") + Field(3, Number(1, 1) + Number(2, 2)) + Field(4, "");
  EXPECT_EQ(ToProto(std::vector{model}),
            Field(1, Field(1, "m") + Field(2, "1") + Number(3, 5) + Number(4, 6) + Number(5, 7) +
                         Field(6, durations) + Field(7, batch)));
}

TEST(DescribeTest, TheRest) {
  const ServerMetadata server{"divvy", "0.1", {"statistics"}};
  EXPECT_EQ(ToJson(server), R"({"name":"divvy","version":"0.1","extensions":["statistics"]})");
  EXPECT_EQ(ToProto(server), Field(1, "divvy") + Field(2, "0.1") + Field(3, "statistics"));
  const std::string tensors =
      Field(4, Field(1, "x") + Field(2, "BYTES") + Field(3, std::string(9, '\xFF') + "\1\3")) +
      Field(5, Field(1, "y") + Field(2, "FP32") + Field(3, std::string(9, '\xFF') + "\1"));
  EXPECT_EQ(ToProto(Metadata()),
            Field(1, "m") + Field(2, "1") + Field(2, "2") + Field(3, "divvy_synthetic") + tensors);
  const std::vector<IndexEntry> index = {{"m", "1", "UNAVAILABLE", "why"}, {"n", "1", "READY", ""}};
  EXPECT_EQ(ToJson(index), R"([{"name":"m","version":"1","state":"UNAVAILABLE","reason":"why"},)"
                           R"({"name":"n","version":"1","state":"READY"}])");
  EXPECT_EQ(ToProto(index),
            Field(1, Field(1, "m") + Field(2, "1") + Field(3, "UNAVAILABLE") + Field(4, "why")) +
                Field(1, Field(1, "n") + Field(2, "1") + Field(3, "READY")));
  EXPECT_EQ(BoolProto(true), "\x08\x01");
  EXPECT_EQ(BoolProto(false), "");
  EXPECT_EQ(ToProto(Health::kNotServing), "\x08\x02");

  const auto name = ParseModelName(Field(1, "m") + Number(9, 1) + Field(2, "3"));
  ASSERT_TRUE(name);
  EXPECT_EQ(name->name + "/" + name->version, "m/3");
  EXPECT_FALSE(ParseModelName("\x0A"));
  EXPECT_TRUE(ParseIndexQuery(Number(2, 1))->ready);
  EXPECT_TRUE(ParseIndexBody(R"({"ready":true})")->ready);
  EXPECT_FALSE(ParseIndexBody("")->ready);
  EXPECT_FALSE(ParseIndexBody("[]"));
}

}  // namespace
}  // namespace divvy::kserve
