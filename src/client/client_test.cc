#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "client/requests.h"
#include "client/schedule.h"
#include "client/search.h"
#include "client/statistics.h"
#include "client/summary.h"
#include "client/url.h"
#include "kserve/http_infer.h"

namespace divvy::client {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using workload::Arrival;
using workload::ArrivalStream;

TEST(UrlTest, NamesHostPortAndProtocol) {
  const struct {
    std::string text;
    bool grpc, tls;
    std::string host, address;
  } kRight[] = {
      {"http://127.0.0.1:8000", false, false, "127.0.0.1", "127.0.0.1:8000"},
      {"https://gpu-1/", false, true, "gpu-1", "gpu-1:8000"},
      {"grpc://gpu-1", true, false, "gpu-1", "gpu-1:8001"},
      {"grpcs://[::1]:443", true, true, "[::1]", "[::1]:443"},
      {"http://[::1]", false, false, "[::1]", "[::1]:8000"},
      {"http://unix:/run/w.sock", false, false, "localhost", "unix:/run/w.sock"},
  };
  for (const auto& right : kRight) {
    const auto url = ParseUrl(right.text);
    ASSERT_TRUE(url) << url.error().message;
    EXPECT_EQ(url->grpc, right.grpc) << right.text;
    EXPECT_EQ(url->tls, right.tls) << right.text;
    EXPECT_EQ(url->host, right.host);
    EXPECT_EQ(url->address, right.address);
  }
  for (const char* wrong :
       {"", "127.0.0.1:8000", "http://", "http://:80", "http://a:0", "http://a:x", "http://a:65536",
        "http://a/v2", "http://u@a", "ftp://a"}) {
    const auto url = ParseUrl(wrong);
    ASSERT_FALSE(url) << wrong;
    EXPECT_THAT(url.error().message, HasSubstr("http://127.0.0.1:8000"));
  }
  EXPECT_THAT(ParseUrl("http://").error().message, ::testing::HasSubstr("names no host"));
}

TEST(ScheduleTest, MergesModelsAndKeepsWhatIsMeasuredApartFromTheWarmUp) {
  const std::vector<Arrival> a = {
      {milliseconds(0), 1}, {milliseconds(5), 2}, {milliseconds(10), 3}};
  const std::vector<Arrival> b = {{milliseconds(5), 7}, {milliseconds(6), 8}};
  const auto streams = [&] { return std::vector{ArrivalStream(a), ArrivalStream(b)}; };
  Schedule schedule(streams(), milliseconds(10), streams(), milliseconds(6));
  std::vector<Due> all;
  while (const auto due = schedule.Next()) all.push_back(*due);
  EXPECT_THAT(all, ElementsAre(Due{milliseconds(-6), 0, 1}, Due{milliseconds(-1), 0, 2},
                               Due{milliseconds(-1), 1, 7}, Due{milliseconds(0), 0, 1},
                               Due{milliseconds(5), 0, 2}, Due{milliseconds(5), 1, 7},
                               Due{milliseconds(6), 1, 8}));
}

// P(B = k), by multiplication.
double Binomial(int n, int k, double q) {
  double p = 1;
  for (int i = 0; i < k; ++i) p *= q * (n - i) / (i + 1);
  for (int i = k; i < n; ++i) p *= 1 - q;
  return p;
}

double Between(int n, double q, int from, int to) {  // Both ends included.
  double sum = 0;
  for (int k = from; k <= to; ++k) sum += Binomial(n, k, q);
  return sum;
}

TEST(StatisticsTest, ConfidenceMatchesTheBinomialDistributionInFull) {
  for (const int n : {1, 2, 5, 10, 59, 100, 300, 500}) {
    for (const double q : {0.5, 0.9, 0.95, 0.99}) {
      const Ranks ranks = QuantileRanks(static_cast<std::uint64_t>(n), q);
      // The least share at or above q.
      EXPECT_GE(static_cast<double>(ranks.estimate), q * n - 1e-9);
      EXPECT_LT(static_cast<double>(ranks.estimate) - 1, q * n - 1e-9);
      const int low = static_cast<int>(ranks.low.value_or(0));
      const int high = static_cast<int>(ranks.high.value_or(static_cast<std::uint64_t>(n) + 1));
      // Each tail holds at most 2.5 %, and one rank nearer it would hold more.
      EXPECT_LE(Between(n, q, 0, low - 1), 0.025) << n << " " << q;
      EXPECT_GT(Between(n, q, 0, low), 0.025) << n << " " << q;
      EXPECT_LE(Between(n, q, high, n), 0.025) << n << " " << q;
      EXPECT_GT(Between(n, q, high - 1, n), 0.025) << n << " " << q;
    }
  }
}

TEST(StatisticsTest, LargeSamplesFollowTheNormalDistribution) {
  const std::uint64_t n = 10'000'000;
  const Ranks ranks = QuantileRanks(n, 0.99);
  const double deviation = std::sqrt(static_cast<double>(n) * 0.99 * 0.01);
  EXPECT_EQ(ranks.estimate, 9'900'000U);
  ASSERT_TRUE(ranks.low && ranks.high);
  EXPECT_NEAR(static_cast<double>(*ranks.low), 9'900'000 - 1.96 * deviation, 3);
  EXPECT_NEAR(static_cast<double>(*ranks.high), 9'900'000 + 1.96 * deviation, 3);
}

TEST(SearchTest, FindsTheHighestLoadOfAServerThatIsAFunction) {
  for (const double limit : {0.9, 1.0, 37.0, 999.0, 1e6}) {
    for (const double resolution : {0.02, 0.2}) {
      RateSearch search(16, resolution, 1e5);
      int probes = 0;
      while (const auto load = search.Next()) {
        ASSERT_LE(++probes, 40);
        search.Tell(*load <= limit);
      }
      ASSERT_TRUE(search.held()) << limit;
      EXPECT_LE(*search.held(), limit);
      EXPECT_GE(*search.held() * (1 + resolution), std::min(limit, 1e5));
    }
  }
}

TEST(SearchTest, GivesUpOnAServerThatHoldsNothing) {
  RateSearch search(16, 0.02, 1e5);
  int probes = 0;
  while (search.Next()) {
    search.Tell(false);
    ASSERT_LE(++probes, 20);
  }
  EXPECT_FALSE(search.held());
  EXPECT_EQ(probes, 11);  // 16 to 1/64.
}

Record Done(int ms, Outcome outcome, int model = 0, int items = 1) {
  Record record;
  record.scheduled = milliseconds(100);
  record.issued = record.sent = record.scheduled;
  record.done = record.scheduled + milliseconds(ms);
  record.outcome = outcome;
  record.model = model;
  record.items = items;
  return record;
}

TEST(SummaryTest, EveryRequestCountsOnce) {
  RunLog log;
  log.elapsed = std::chrono::seconds(2);
  log.reasons = {"HTTP 429: too late", "HTTP 500"};
  log.records = {Done(10, Outcome::kAnswered),       Done(30, Outcome::kAnswered),
                 Done(20, Outcome::kAnswered, 0, 4), Done(1, Outcome::kRefused),
                 Done(1, Outcome::kFailed, 1),       Done(99, Outcome::kUnanswered, 1)};
  log.records[4].reason = 1;
  const std::vector<std::optional<Duration>> slos = {milliseconds(20), std::nullopt};
  const Summary summary = Summarise(log, slos);

  const Figures& all = summary.all;
  EXPECT_EQ(all.sent, 6U);
  EXPECT_EQ(all.answered, 3U);
  EXPECT_EQ(all.in_time, 2U);  // The one at the SLO is in time.
  EXPECT_EQ(all.late, 1U);
  EXPECT_EQ(all.refused, 1U);
  EXPECT_EQ(all.failed, 1U);
  EXPECT_EQ(all.unanswered, 1U);
  EXPECT_EQ(all.items, 6U);
  EXPECT_DOUBLE_EQ(*all.attainment(), 0.5);  // Of the four that had an SLO.
  EXPECT_EQ(all.percentiles.front().value, milliseconds(20));
  EXPECT_EQ(all.max, milliseconds(30));
  EXPECT_EQ(all.mean, milliseconds(20));
  EXPECT_DOUBLE_EQ(summary.PerSecond(all.in_time), 1);

  ASSERT_EQ(summary.models.size(), 2U);
  EXPECT_EQ(summary.models[0].figures.sent, 4U);
  EXPECT_FALSE(summary.models[1].figures.attainment());
  EXPECT_TRUE(summary.models[1].figures.percentiles.empty());
  ASSERT_EQ(summary.sizes.size(), 2U);  // Of the first model: one item, and four.
  EXPECT_EQ(summary.sizes[1].most_items, 4);
  EXPECT_EQ(summary.sizes[1].figures.sent, 1U);
  ASSERT_EQ(summary.reasons.size(), 2U);
  EXPECT_EQ(summary.reasons[1].reason, "HTTP 500");
}

TEST(SummaryTest, RefusedAndFailedCountAsLateForASearch) {
  const std::vector<std::optional<Duration>> slos = {milliseconds(20)};
  RunLog log;
  log.reasons = {"HTTP 429"};
  for (int i = 0; i < 99; ++i) log.records.push_back(Done(10, Outcome::kAnswered));
  log.records.push_back(Done(1, Outcome::kRefused));
  EXPECT_TRUE(Holds(Summarise(log, slos), 0.99));
  log.records.push_back(Done(1, Outcome::kRefused));
  EXPECT_FALSE(Holds(Summarise(log, slos), 0.99));
}

TEST(SummaryTest, ManySizesAreCountedByDoublings) {
  RunLog log;
  for (int items = 1; items <= 16; ++items) {
    log.records.push_back(Done(items, Outcome::kAnswered, 0, items));
  }
  const std::vector<std::optional<Duration>> slos = {std::nullopt};
  std::vector<std::pair<int, int>> ranges;
  std::vector<std::uint64_t> counts;
  for (const Group& group : Summarise(log, slos).sizes) {
    ranges.emplace_back(group.least_items, group.most_items);
    counts.push_back(group.figures.sent);
  }
  EXPECT_THAT(ranges, ElementsAre(std::pair(1, 1), std::pair(2, 2), std::pair(3, 4),
                                  std::pair(5, 8), std::pair(9, 16)));
  EXPECT_THAT(counts, ElementsAre(1U, 1U, 2U, 4U, 8U));
}

TEST(SummaryTest, TheGeneratorsOwnLatenessIsToldApart) {
  RunLog log;
  log.records = {Done(10, Outcome::kAnswered), Done(10, Outcome::kAnswered)};
  log.records[1].issued += milliseconds(2);
  log.records[1].sent = log.records[1].issued + milliseconds(3);
  const std::vector<std::optional<Duration>> slos = {std::nullopt};
  const Summary summary = Summarise(log, slos);
  EXPECT_EQ(summary.lateness->value, milliseconds(2));
  EXPECT_EQ(summary.waited, 1U);
  EXPECT_EQ(summary.longest_wait, milliseconds(3));
  EXPECT_TRUE(summary.late_ourselves());
}

std::string Joined(const Call& call) {
  std::string body;
  for (const net::Slice& slice : call.body) body += slice.view();
  return body;
}

const ModelFacts kModel{.name = "a b",
                        .inputs = {{"x", kserve::DataType::kFp32, {-1, 3, -1}},
                                   {"ids", kserve::DataType::kInt64, {-1, 2}},
                                   {"text", kserve::DataType::kBytes, {-1, 1}},
                                   {"half", kserve::DataType::kFp16, {-1, 2}}},
                        .batched = true,
                        .max_batch = 8};

TEST(RequestsTest, FitTheModelAndShareTheirContents) {
  auto requests = Requests::Make({}, kModel, 8,
                                 {.shapes = {{"x", {3, 5}}}, .seed = 7, .slo = milliseconds(20)});
  ASSERT_TRUE(requests) << requests.error().message;
  const Call& small = requests->Of(1);
  const Call& large = requests->Of(8);
  EXPECT_EQ(&small, &requests->Of(1));
  EXPECT_EQ(small.target, "/v2/models/a%20b/infer");
  ASSERT_EQ(small.body.size(), 5U);  // A head and four tensors.
  for (std::size_t i = 1; i < 5; ++i) EXPECT_EQ(small.body[i].data(), large.body[i].data());

  const std::string body = Joined(large);
  const auto decoded =
      kserve::DecodeHttpRequest(body, large.body[0].size(), kserve::Depth::kFull, nullptr);
  ASSERT_TRUE(decoded) << decoded.error().message;
  const kserve::InferRequest& request = decoded->request;
  ASSERT_NE(kserve::Find(request.parameters, "slo_ms"), nullptr);
  ASSERT_EQ(request.inputs.size(), 4U);
  EXPECT_THAT(request.inputs[0].shape, ElementsAre(8, 3, 5));
  for (const kserve::Tensor& tensor : request.inputs) {
    EXPECT_TRUE(kserve::CheckBytes(tensor.type, tensor.shape, tensor.bytes, tensor.name));
  }
  auto again = Requests::Make({}, kModel, 8,
                              {.shapes = {{"x", {3, 5}}}, .seed = 7, .slo = milliseconds(20)});
  ASSERT_TRUE(again);
  EXPECT_EQ(Joined(again->Of(8)), body);
}

TEST(RequestsTest, WhatDoesNotFitTheModelIsSaid) {
  ModelFacts single = kModel;
  single.batched = false;
  const struct {
    ModelFacts model;
    int largest;
    std::map<std::string, kserve::Shape> shapes;
    const char* message;
  } kWrong[] = {
      {kModel, 9, {}, "takes up to 8 items"},
      {single, 2, {}, "takes no batches"},
      {kModel, 1, {{"y", {1}}}, "no input 'y'; it has x, ids, text or half"},
      {kModel, 1, {{"x", {4, 5}}}, "shape [3,-1] without the batch, which [4,5] does not fit"},
      {kModel, 1, {{"x", {3}}}, "does not fit"},
      {kModel, 8, {{"x", {3, 1 << 28}}}, "more than 1 GiB"},
  };
  for (const auto& wrong : kWrong) {
    const auto made = Requests::Make({}, wrong.model, wrong.largest, {.shapes = wrong.shapes});
    ASSERT_FALSE(made) << wrong.message;
    EXPECT_THAT(made.error().message, HasSubstr(wrong.message));
  }
}

}  // namespace
}  // namespace divvy::client
