#include "workload/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace divvy::workload {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string ErrorOf(const std::string& text, TokenScale scale = {}) {
  const auto trace = ParseTrace(text, "t.csv", scale);
  return trace ? "no error" : trace.error().message;
}

const std::string kOwn = "arrival_s,model,batch\n";
const std::string kAzure = "TIMESTAMP,ContextTokens,GeneratedTokens\n";

TEST(TraceFileTest, ReadsArrivalsByModel) {
  const auto trace =
      ParseTrace("batch,arrival_s,model\n4,0,vit\n1,0.25,bert\n2,0.25,vit\n", "t.csv");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->models.size(), 2U);
  EXPECT_EQ(trace->models[0].model, "bert");
  EXPECT_EQ(trace->models[1].model, "vit");
  ASSERT_EQ(trace->models[1].arrivals.size(), 2U);
  EXPECT_EQ(trace->models[1].arrivals[0].batch, 4);
  EXPECT_EQ(trace->models[1].arrivals[1].at, 250ms);
  EXPECT_EQ(trace->length, 250ms);
}

TEST(TraceFileTest, ReadsAzureTraces) {
  const auto trace = ParseTrace(kAzure +
                                    "2023-11-16 23:59:59.9799600,4808,10\n"
                                    "2023-11-17 00:00:00.0319600+00:00,128,8\n"
                                    "2023-11-17 00:00:01Z,0,8\n",
                                "t.csv");
  ASSERT_TRUE(trace) << trace.error().message;
  ASSERT_EQ(trace->models.size(), 1U);
  EXPECT_EQ(trace->models[0].model, "");
  const auto& arrivals = trace->models[0].arrivals;
  ASSERT_EQ(arrivals.size(), 3U);
  EXPECT_EQ(arrivals[0].at, 0ns);
  EXPECT_EQ(arrivals[0].batch, 38);  // 37.56 items of 128 tokens.
  EXPECT_EQ(arrivals[1].at, 52ms);
  EXPECT_EQ(arrivals[1].batch, 1);
  EXPECT_EQ(arrivals[2].at, 1020040us);
  EXPECT_EQ(arrivals[2].batch, 1);
  const auto finer =
      ParseTrace(kAzure + "2023-11-16 23:59:59,129,1\n", "t.csv", {.tokens_per_item = 64});
  EXPECT_EQ(finer->models[0].arrivals[0].batch, 3);
}

TEST(TraceFileTest, ErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf(""), "t.csv: the file is empty; its first line names the columns");
  EXPECT_EQ(ErrorOf(kOwn), "t.csv:1: the header is followed by no arrivals");
  EXPECT_EQ(ErrorOf("arrival_s,model\n"), "t.csv:1: a trace needs the column 'batch'");
  EXPECT_EQ(ErrorOf("arrival_s,modell,batch\n"),
            "t.csv:1: a trace has no column 'modell'; did you mean 'model'?");
  EXPECT_EQ(ErrorOf(kOwn + "1,m,1\n0.5,m,1\n"),
            "t.csv:3: '0.5' is earlier than the row before; sort the rows by time");
  EXPECT_EQ(ErrorOf(kOwn + "-1,m,1\n"),
            "t.csv:2: arrival_s: '-1' is not a number from 0 to 100000000");
  EXPECT_THAT(ErrorOf(kOwn + "nan,m,1\n"), HasSubstr("arrival_s: 'nan' is not a number"));
  EXPECT_THAT(ErrorOf(kOwn + "1,m,0\n"), HasSubstr("batch: '0' is not a whole number from 1"));
  EXPECT_EQ(ErrorOf(kOwn + "1,,1\n"), "t.csv:2: model: '' is not a name");
}

TEST(TraceFileTest, AzureErrorsNameTheLine) {
  EXPECT_EQ(ErrorOf("TIMESTAMP,GeneratedTokens\n"),
            "t.csv:1: a trace needs the column 'ContextTokens'");
  for (const char* time :
       {"", "2023-11-16", "2023-11-16 18:17", "2023-13-16 18:17:03", "2023-02-29 18:17:03",
        "2023-11-16 24:00:00", "2023-11-16 18:60:03", "2023-11-16 18:17:60", "2023-11-16 18:17:03.",
        "2023-11-16 18:17:03+01:00", "1969-11-16 18:17:03", "9999-11-16 18:17:03",
        "2023-1-16 18:17:03", "2023-11-16 18:17:03.1x"}) {
    EXPECT_THAT(ErrorOf(kAzure + time + ",1,1\n"), StartsWith("t.csv:2: TIMESTAMP: '")) << time;
  }
  EXPECT_THAT(ErrorOf(kAzure + "2023-11-16 18:17:03,1,1\n2023-11-16 18:17:02,1,1\n"),
              StartsWith("t.csv:3: '2023-11-16 18:17:02' is earlier than the row before"));
  EXPECT_THAT(ErrorOf(kAzure + "2023-11-16 18:17:03,-1,1\n"),
              StartsWith("t.csv:2: ContextTokens: '-1' is not a whole number"));
  EXPECT_EQ(ErrorOf(kAzure + "2023-11-16 18:17:03,70000,1\n", {.tokens_per_item = 1}),
            "t.csv:2: ContextTokens: 70000 tokens are 70000 items of 1; a request has at most "
            "65536");
  EXPECT_EQ(ErrorOf(kAzure, {.tokens_per_item = 0}), "0 tokens an item; it must be at least 1");
}

TEST(TraceFileTest, BatchesAreCounted) {
  const ModelTrace trace{"m", {{1ms, 4}, {2ms, 1}, {3ms, 4}, {4ms, 4}}};
  const auto batches = BatchesOf(trace);
  ASSERT_TRUE(batches);
  EXPECT_EQ(batches->probability(4), 0.75);
  EXPECT_EQ(batches->probability(1), 0.25);
  EXPECT_EQ(batches->largest(), 4);
  EXPECT_EQ(BatchesOf({}).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace divvy::workload
