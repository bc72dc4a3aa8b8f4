#include "engine/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "base/random.h"

namespace divvy::engine {
namespace {

using kserve::DataType;
using kserve::Shape;
using kserve::Tensor;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Random bytes of a tensor; texts of 0 to 5 bytes.
std::string Fill(Random& random, DataType type, const Shape& shape) {
  const std::size_t count = kserve::CountOf(shape).value();
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t size = kserve::SizeOf(type);
    if (type == DataType::kBytes) {
      const auto length = static_cast<std::uint32_t>(random.Below(6));
      bytes.append(reinterpret_cast<const char*>(&length), sizeof length);
      size = length;
    }
    for (std::size_t b = 0; b < size; ++b) bytes += static_cast<char>(random.Below(2));
  }
  return bytes;
}

// A model that answers with its inputs.
std::vector<Output> Echo(const Joined& joined) {
  std::vector<Output> outputs;
  for (const Tensor& input : joined.inputs) {
    const std::shared_ptr<char[]> room = AllocateBytes(input.bytes.size());
    std::memcpy(room.get(), input.bytes.data(), input.bytes.size());
    outputs.push_back({.tensor = input, .storage = room});
    outputs.back().tensor.bytes = {room.get(), input.bytes.size()};
  }
  return outputs;
}

struct RandomBatch {
  kserve::ModelMetadata model;
  std::vector<std::string> storage;
  std::vector<Member> members;
};

RandomBatch MakeBatch(Random& random) {
  constexpr std::array kTypes = {DataType::kFp32, DataType::kUint8, DataType::kBytes,
                                 DataType::kInt64};
  RandomBatch batch;
  batch.model = {.name = "m", .platform = "p", .max_batch = static_cast<int>(1 + random.Below(12))};
  for (std::size_t i = 0; i < 1 + random.Below(3); ++i) {
    batch.model.inputs.push_back({.name = "in" + std::to_string(i),
                                  .type = kTypes.at(random.Below(4)),
                                  .shape = {-1, -1, 2}});
  }
  const std::size_t count = 1 + random.Below(10);
  batch.storage.reserve(count * batch.model.inputs.size());  // Members point into it.
  for (std::size_t m = 0; m < count; ++m) {
    kserve::InferRequest request;
    const auto items = static_cast<std::int64_t>(
        1 + random.Below(static_cast<std::uint64_t>(batch.model.max_batch)));
    for (const kserve::TensorMetadata& input : batch.model.inputs) {
      const Shape shape = {items, static_cast<std::int64_t>(random.Below(3)), 2};
      batch.storage.push_back(Fill(random, input.type, shape));
      request.inputs.insert(request.inputs.begin(),  // Clients may name them in any order.
                            Tensor{.name = input.name,
                                   .type = input.type,
                                   .shape = shape,
                                   .bytes = batch.storage.back()});
    }
    Result<Member> member = CheckMember(batch.model, request);
    EXPECT_TRUE(member) << member.error().message;
    batch.members.push_back(std::move(*member));
  }
  return batch;
}

TEST(BatchTest, EveryMemberGetsItsOwnBackFromARunOfItsGroup) {
  Random random(20);
  for (int round = 0; round < 300; ++round) {
    const RandomBatch batch = MakeBatch(random);
    std::vector<int> seen(batch.members.size());
    for (const std::vector<std::size_t>& group : Group(batch.members, batch.model.max_batch)) {
      std::vector<const Member*> members;
      std::vector<std::int64_t> items;
      for (const std::size_t m : group) {
        ++seen[m];
        members.push_back(&batch.members[m]);
        items.push_back(batch.members[m].items);
      }
      const Joined joined = Join(members);
      for (const Tensor& input : joined.inputs) {
        EXPECT_LE(input.shape.front(), batch.model.max_batch);
        EXPECT_TRUE(kserve::CheckBytes(input.type, input.shape, input.bytes, input.name));
      }
      const auto parts = Split(Echo(joined), items);
      ASSERT_TRUE(parts) << parts.error().message;
      for (std::size_t i = 0; i < group.size(); ++i) {
        for (std::size_t t = 0; t < members[i]->inputs.size(); ++t) {
          EXPECT_EQ((*parts)[i][t].tensor.bytes, members[i]->inputs[t].bytes);
          EXPECT_EQ((*parts)[i][t].tensor.shape, members[i]->inputs[t].shape);
        }
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

Member Of(std::int64_t items, std::int64_t width) {
  return {.inputs = {{.name = "x", .shape = {items, width}}}, .items = items};
}

TEST(BatchTest, GroupsAreOfOneShapeAndNoLargerThanABatch) {
  const std::vector<Member> members = {Of(2, 5), Of(1, 7), Of(2, 5), Of(1, 5), Of(3, 7)};
  EXPECT_THAT(Group(members, 4), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4), ElementsAre(3)));
  EXPECT_EQ(Group(members, 0).size(), members.size());
  EXPECT_TRUE(Group({}, 4).empty());
}

TEST(BatchTest, ASingleMemberIsNotCopied) {
  const std::string bytes(8, 'x');
  Member member = Of(1, 2);
  member.inputs.front().bytes = bytes;
  const Member* const alone = &member;
  EXPECT_EQ(Join({&alone, 1}).inputs.front().bytes.data(), bytes.data());
}

TEST(BatchTest, OutputsThatAreNotOfTheBatchsItemsAreTheEnginesFault) {
  const std::array<std::int64_t, 2> items = {1, 2};
  const std::string text("\x09\0\0\0a", 5);
  const std::vector<Tensor> wrong = {
      {.name = "o", .shape = {4, 1}, .bytes = "0123456789abcdef"},
      {.name = "o", .shape = {}, .bytes = "0123"},
      {.name = "o", .type = DataType::kBytes, .shape = {3}, .bytes = text},
  };
  for (const Tensor& tensor : wrong) {
    const std::vector<Output> outputs = {{.tensor = tensor, .storage = {}}};
    const auto parts = Split(outputs, items);
    ASSERT_FALSE(parts);
    EXPECT_THAT(parts.error().message, HasSubstr("is not of 3 items"));
    EXPECT_TRUE(Split(outputs, std::array<std::int64_t, 1>{3}));  // Nobody to split it for.
  }
}

TEST(BatchTest, WhatAModelCannotRunIsRefusedWithWhatItCan) {
  const kserve::ModelMetadata model = {
      .name = "m",
      .platform = "p",
      .max_batch = 4,
      .inputs = {{.name = "a", .shape = {-1, 2}}, {.name = "b", .shape = {-1, -1}}},
      .outputs = {{.name = "o", .shape = {-1, 2}}}};
  const std::string bytes(80, 0);
  const auto tensor = [&](const std::string& name, Shape shape) {
    const std::size_t size = kserve::CountOf(shape).value() * 4;
    return Tensor{.name = name, .shape = shape, .bytes = std::string_view(bytes).substr(0, size)};
  };
  Tensor whole_numbers = tensor("a", {1, 2});
  whole_numbers.type = DataType::kInt32;
  Tensor cut = tensor("a", {1, 2});
  cut.bytes.remove_suffix(1);
  const Tensor a = tensor("a", {1, 2});
  const Tensor b = tensor("b", {1, 3});
  const struct {
    std::vector<Tensor> inputs;
    std::string output;
    std::string error;
  } kCases[] = {
      {{a, b}, "o", ""},
      {{b, a}, "", ""},
      {{a}, "", "input 'b' is missing: model 'm' takes a, b"},
      {{a, b, tensor("c", {1})}, "", "'c' is no input of model 'm', which takes a, b"},
      {{a, a, b}, "", "input 'a' is given twice"},
      {{whole_numbers, b}, "", "of type INT32, but model 'm' takes FP32"},
      {{tensor("a", {1, 3}), b}, "", "has shape [1,3], but model 'm' takes [-1,2]"},
      {{tensor("a", {2}), b}, "", "has shape [2], but"},
      {{a, tensor("b", {2, 3})}, "", "input 'b' has 2 items, but 'a' has 1"},
      {{tensor("a", {5, 2}), tensor("b", {5, 1})}, "", "has 5 items; model 'm' takes 1 to 4"},
      {{tensor("a", {0, 2}), tensor("b", {0, 1})}, "", "has 0 items"},
      {{cut, b}, "", "a"},
      {{a, b}, "p", "'p' is no output of model 'm', which has o"},
  };
  for (const auto& test : kCases) {
    kserve::InferRequest request;
    request.inputs = test.inputs;
    if (!test.output.empty()) request.outputs = {{.name = test.output}};
    const Result<Member> member = CheckMember(model, request);
    ASSERT_EQ(member.has_value(), test.error.empty()) << test.error;
    if (member) continue;
    EXPECT_THAT(member.error().message, HasSubstr(test.error));
    EXPECT_EQ(member.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace divvy::engine
