#include "server/service.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "server/compression.h"

namespace divvy::server {
namespace {

using testing::HasSubstr;

TEST(CompressionTest, RoundTripsAndRefusesTheRest) {
  std::mt19937_64 random(3);
  for (const Encoding encoding : {Encoding::kGzip, Encoding::kDeflate}) {
    for (const std::size_t size : {0, 1, 100, 100'000}) {
      std::string text(size, 'x');
      for (std::size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(random());
      const std::string packed = Compress(encoding, text);
      EXPECT_EQ(Decompress(encoding, packed, size).value(), text);
      if (size == 0) continue;
      const Error large = Decompress(encoding, packed, size - 1).error();
      EXPECT_EQ(large.code, ErrorCode::kResourceExhausted);
      EXPECT_THAT(large.message, HasSubstr(fmt::format("larger than {} bytes", size - 1)));
      EXPECT_FALSE(Decompress(encoding, packed.substr(0, packed.size() - 1), 1 << 20));
      EXPECT_FALSE(Decompress(encoding, packed + "x", 1 << 20));
    }
    EXPECT_FALSE(Decompress(encoding, "no such data", 1 << 20));
    EXPECT_FALSE(Decompress(encoding, "", 1 << 20));
    // A bomb: stops at the limit.
    EXPECT_FALSE(Decompress(encoding, Compress(encoding, std::string(1 << 24, '\0')), 1 << 20));
  }
}

TEST(CompressionTest, ReadsHeaders) {
  EXPECT_EQ(ParseEncoding("GZip ").value(), Encoding::kGzip);
  EXPECT_EQ(ParseEncoding("").value(), Encoding::kIdentity);
  EXPECT_EQ(ParseEncoding("br").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(PreferredEncoding("br, deflate, gzip"), Encoding::kGzip);
  EXPECT_EQ(PreferredEncoding("gzip;q=0, deflate;q=0.5"), Encoding::kDeflate);
  EXPECT_EQ(PreferredEncoding("gzip;q=0.0"), Encoding::kIdentity);
  EXPECT_EQ(PreferredEncoding("*"), Encoding::kIdentity);
}

TEST(ServiceTest, TokensMustMatchWhole) {
  EXPECT_TRUE(HasToken("Bearer abc", "abc"));
  EXPECT_TRUE(HasToken("bearer abc", "abc"));
  for (const char* bad : {"", "abc", "Bearer", "Bearer ", "Bearer ab", "Bearer abcabc",
                          "Bearer abd", "Basic abc", "Bearer\tabc"}) {
    EXPECT_FALSE(HasToken(bad, "abc")) << bad;
  }
}

TEST(ServiceTest, AnswersAreHeldUntilTheirBytesAreGone) {
  Service service;
  constexpr std::size_t kSlice = Service::kPerSlice;
  service.budget = std::make_shared<net::ByteBudget>(Service::kPerRequest + kSlice + 10);
  std::vector<net::Slice> body;
  body.emplace_back(std::string("1234"));
  body.push_back(net::Slice::Static("56"));
  ASSERT_TRUE(service.HoldAnswer(body));
  EXPECT_EQ(body[0].view(), "1234");
  EXPECT_EQ(service.budget->taken(), 6 + 2 * kSlice);
  std::vector<net::Slice> more;
  const std::string large(Service::kPerRequest, 'x');
  more.push_back(net::Slice::Static(large));
  EXPECT_EQ(service.HoldAnswer(more).error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(more[0].view(), large);
  const net::Slice part = body[1].Sub(1, 1);
  body.clear();
  EXPECT_EQ(service.budget->taken(), 2 + kSlice) << "a part of the second is there";
  EXPECT_TRUE(service.Hold(8));
  EXPECT_FALSE(service.Hold(9));
}

TEST(MetricsTest, CountsGoOnOverAReloadAndByName) {
  Metrics metrics;
  const serving::Request request{.tag = 0,
                                 .model = serving::ModelId{0},
                                 .batch = 2,
                                 .priority = 1,
                                 .arrival = TimePoint{},
                                 .deadline = TimePoint(std::chrono::milliseconds(10))};
  const serving::Service service{.replica = serving::ReplicaId{0},
                                 .started = TimePoint(std::chrono::milliseconds(1)),
                                 .finished = TimePoint(std::chrono::milliseconds(4)),
                                 .items = 2};
  {
    Tally tally(metrics, {"m\"x"}, {{"m\"x", "0"}});
    tally.Answered(request, service, 200);
    tally.Refused(request, serving::Refusal::kHopeless, TimePoint(std::chrono::milliseconds(1)));
  }
  Tally tally(metrics, {"other", "m\"x"}, {{"other", "0"}, {"m\"x", "0"}});
  serving::Request late = request;
  late.model = serving::ModelId{1};
  late.deadline = TimePoint(std::chrono::milliseconds(3));
  serving::Service elsewhere = service;
  elsewhere.replica = serving::ReplicaId{1};
  tally.Answered(late, elsewhere, 200);
  tally.Answered(late, elsewhere, 500);
  tally.Answered(late, elsewhere, 400);
  tally.Answered(late, elsewhere, 200);
  metrics.Canceled("m\"x", std::chrono::milliseconds(4), false);
  for (const bool in_time : {true, false}) {
    serving::Request dropped = late;
    if (in_time) dropped.deadline = request.deadline;
    tally.Answered(dropped, elsewhere, 200);
    metrics.NoRoom("m\"x", std::chrono::milliseconds(4), in_time);
  }
  const std::string text = metrics.Render({});
  EXPECT_THAT(text, HasSubstr("divvy_slo_in_time_total{model=\"m\\\"x\",version=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("divvy_slo_late_total{model=\"m\\\"x\",version=\"1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("divvy_shed_total{model=\"m\\\"x\",reason=\"hopeless\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("nv_inference_count{model=\"m\\\"x\",version=\"1\"} 10\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"BACKEND\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"CANCELED\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("reason=\"REJECTED\"} 4\n")) << "shed, and a worker's 400";
  EXPECT_THAT(text, HasSubstr("divvy_shed_total{model=\"m\\\"x\",reason=\"no room\"} 2\n"));
  EXPECT_EQ(metrics.Statistics("m\"x").success.count, 2U) << "neither canceled nor without room";
  EXPECT_THAT(text, HasSubstr("divvy_request_latency_ms_bucket{model=\"m\\\"x\",priority=\"1\","
                              "le=\"5\"} 5\n"));
  EXPECT_THAT(text,
              HasSubstr("divvy_partition_queue_ms_count{model=\"m\\\"x\",partition=\"0\"} 7\n"));
  EXPECT_EQ(metrics.Statistics("other").success.count, 0U);
}

}  // namespace
}  // namespace divvy::server
