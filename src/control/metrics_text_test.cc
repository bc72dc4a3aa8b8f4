#include "control/metrics_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "base/random.h"
#include "base/test_mutation.h"

namespace divvy::control {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::SizeIs;

constexpr const char* kScrape =
    "# HELP nv_inference_request_success Number of successful inference requests\n"
    "# TYPE nv_inference_request_success counter\n"
    "nv_inference_request_success{model=\"resnet50\",version=\"1\"} 1042\n"
    "nv_inference_request_success{model=\"resnet50\",version=\"2\"} 3e2 1700000000000\n"
    "\n"
    "# a comment of somebody\n"
    "up 1\r\n"
    "\tgo_gc:seconds { quantile = \"0.5\" , } +1.5e-3\n"
    "nothing NaN";

MetricsText Parsed(const std::string& text) {
  const auto metrics = ParseMetrics(text, "m.prom");
  EXPECT_TRUE(metrics) << metrics.error().message;
  return metrics ? *metrics : MetricsText{};
}

std::string ErrorOf(const std::string& text) {
  const auto metrics = ParseMetrics(text, "m.prom");
  if (metrics) return "it passed";
  EXPECT_EQ(metrics.error().code, ErrorCode::kInvalidArgument);
  return metrics.error().message;
}

TEST(MetricsText, ReadsAScrape) {
  const MetricsText metrics = Parsed(kScrape);
  ASSERT_THAT(metrics.samples, SizeIs(5));
  EXPECT_EQ(metrics.samples[0].name, "nv_inference_request_success");
  EXPECT_THAT(metrics.samples[0].labels,
              ElementsAre(Pair("model", "resnet50"), Pair("version", "1")));
  EXPECT_EQ(metrics.samples[0].value, 1042);
  EXPECT_EQ(metrics.samples[0].line, 3);
  EXPECT_EQ(metrics.samples[1].value, 300) << "an exponent, and a timestamp that is dropped";
  EXPECT_THAT(metrics.samples[2].labels, IsEmpty());
  EXPECT_EQ(metrics.samples[2].line, 7);
  EXPECT_EQ(metrics.samples[3].name, "go_gc:seconds");
  EXPECT_EQ(metrics.samples[3].value, 1.5e-3);
  EXPECT_TRUE(std::isnan(metrics.samples[4].value));
  EXPECT_THAT(metrics.types, ElementsAre(Pair("nv_inference_request_success", "counter")));
}

TEST(MetricsText, LabelsAreFoundByName) {
  const MetricsText metrics = Parsed(kScrape);
  EXPECT_EQ(metrics.samples[1].Label("version"), "2");
  EXPECT_EQ(metrics.samples[1].Label("gpu"), "");
}

TEST(MetricsText, ResolvesEscapesInLabelValues) {
  const MetricsText metrics = Parsed(R"(a{b="x\\y\"z\n} , {",c=""} 1)");
  ASSERT_THAT(metrics.samples, SizeIs(1));
  EXPECT_THAT(metrics.samples[0].labels, ElementsAre(Pair("b", "x\\y\"z\n} , {"), Pair("c", "")));
}

TEST(MetricsText, ReadsInfinities) {
  const MetricsText metrics = Parsed("a +Inf\nb -Inf\nc -3\n");
  EXPECT_TRUE(std::isinf(metrics.samples[0].value));
  EXPECT_LT(metrics.samples[1].value, 0);
  EXPECT_EQ(metrics.samples[2].value, -3);
}

TEST(MetricsText, AnEmptyTextHasNoSamples) {
  EXPECT_THAT(Parsed("").samples, IsEmpty());
  EXPECT_THAT(Parsed("\n\n#\n# TYP\n \n").samples, IsEmpty());
}

TEST(MetricsText, ErrorsNameTheLineAndWhatIsWrong) {
  EXPECT_EQ(ErrorOf("up 1\n9lives 3\n"), "m.prom:2: '9lives 3' is no name of a metric");
  EXPECT_EQ(ErrorOf("up one"), "m.prom:1: up: 'one' is not a number");
  EXPECT_EQ(ErrorOf("up"), "m.prom:1: up: '' is not a number");
  EXPECT_EQ(ErrorOf("up ++1"), "m.prom:1: up: '++1' is not a number");
  EXPECT_EQ(ErrorOf("up +-1"), "m.prom:1: up: '+-1' is not a number");
  EXPECT_EQ(ErrorOf("up 1 soon"), "m.prom:1: timestamp: 'soon' is not a number");
  EXPECT_EQ(ErrorOf("up 1 2 3"), "m.prom:1: something follows the timestamp");
  EXPECT_EQ(ErrorOf("up{a:b=\"1\"} 1"), "m.prom:1: label 'a' has no '='");
  EXPECT_EQ(ErrorOf("up{a=1} 1"), "m.prom:1: a label's value stands in double quotes");
  EXPECT_EQ(ErrorOf("up{a=\"1} 1\nb 2"), "m.prom:1: a label's value has no closing quote");
  EXPECT_EQ(ErrorOf("up{a=\"1\" b=\"2\"} 1"), "m.prom:1: after a label comes ',' or '}'");
  EXPECT_EQ(ErrorOf("up{a=\"1\""), "m.prom:1: after a label comes ',' or '}'");
  EXPECT_EQ(ErrorOf("up{,} 1"), "m.prom:1: ',} 1' is no name of a label");
  EXPECT_EQ(ErrorOf("up{a=\"1\",a=\"2\"} 1"), "m.prom:1: label 'a' stands there twice");
  EXPECT_THAT(ErrorOf("up{a=\"\\t\"} 1"), HasSubstr("only \\\\, \\\" and \\n are escapes"));
  EXPECT_EQ(ErrorOf("# TYPE"), "m.prom:1: '' is no type of a metric");
  EXPECT_EQ(ErrorOf("# TYPE up clock\n"), "m.prom:1: 'clock' is no type of a metric");
}

// A server may be interrupted while it writes, and a path may be that of a film.
TEST(MetricsText, AnyBytesGiveAValueOrAnError) {
  Random random(7);
  int passed = 0;
  int refused = 0;
  for (int round = 0; round < 5'000; ++round) {
    const std::string text = divvy::testing::Mutated(kScrape, random);
    const auto metrics = ParseMetrics(text, "m.prom");
    ++(metrics ? passed : refused);
    if (!metrics) {
      EXPECT_EQ(metrics.error().code, ErrorCode::kInvalidArgument);
    }
  }
  EXPECT_GT(passed, 100);
  EXPECT_GT(refused, 100);
}

}  // namespace
}  // namespace divvy::control
