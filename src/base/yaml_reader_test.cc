#include "base/yaml_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <string>

namespace divvy {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr TimeRange kTimes{1ms, 24h};

// The node that `text` is the value of.
YamlNode Value(const std::string& text) {
  const auto root = ParseYaml("key: " + text, "f.yaml");
  return root ? root->items.front() : YamlNode{};
}

// What `read`, a call on a reader, complains about.
template <typename Read>
std::string ErrorOf(const std::string& text, Read read) {
  YamlReader reader("f.yaml");
  read(reader, Value(text));
  return reader.ok() ? "no error" : reader.error().message;
}

TEST(YamlReaderTest, TimesHaveUnits) {
  YamlReader reader("f.yaml");
  EXPECT_EQ(reader.Time("key", Value("20ms"), kTimes), 20ms);
  EXPECT_EQ(reader.Time("key", Value("1.5s"), kTimes), 1500ms);
  EXPECT_EQ(reader.Time("key", Value("1500us"), kTimes), 1500us);
  EXPECT_EQ(reader.Time("key", Value("10min"), kTimes), 10min);
  EXPECT_EQ(reader.Time("key", Value("24h"), kTimes), 24h);
  EXPECT_EQ(reader.Time("key", Value("\"2s\""), kTimes), 2s);
  EXPECT_TRUE(reader.ok());
}

TEST(YamlReaderTest, TimesWithoutUnitOrOutOfRangeAreRefused) {
  const auto time = [](YamlReader& reader, const YamlNode& node) {
    static_cast<void>(reader.Time("slo", node, kTimes));
  };
  EXPECT_EQ(ErrorOf("20", time),
            "f.yaml:1: slo: '20' is not a time from 1ms to 24h with its unit (us, ms, s, min or "
            "h), such as 20ms");
  for (const char* text : {"ms", "20 ms", "20sec", "-1s", "1e999s", "1e300h", "nans", "25h",
                           "999us", "1ms2", "h", "\"\""}) {
    EXPECT_THAT(ErrorOf(text, time), HasSubstr("is not a time from 1ms to 24h")) << text;
  }
  EXPECT_THAT(ErrorOf("[1ms]", time), HasSubstr("but here is a list"));
}

TEST(YamlReaderTest, TimesAreDescribedInTheLargestWholeUnit) {
  EXPECT_EQ(Describe(Duration(1h)), "1h");
  EXPECT_EQ(Describe(Duration(90min)), "90min");
  EXPECT_EQ(Describe(Duration(1500ms)), "1500ms");
  EXPECT_EQ(Describe(Duration(1us)), "1us");
  EXPECT_EQ(Describe(Duration(1500ns)), "1.5us");
}

TEST(YamlReaderTest, NumbersStayInTheirRange) {
  YamlReader reader("f.yaml");
  EXPECT_EQ(reader.Real("key", Value("0.25"), {0, 1}), 0.25);
  EXPECT_EQ(reader.Unsigned("key", Value("18446744073709551615")), 18446744073709551615U);
  EXPECT_TRUE(reader.ok());
  const auto real = [](YamlReader& r, const YamlNode& node) {
    static_cast<void>(r.Real("x", node, {0, 1}));
  };
  EXPECT_EQ(ErrorOf("1.5", real), "f.yaml:1: x: '1.5' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf(".nan", real), "f.yaml:1: x: '.nan' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf("nan", real), "f.yaml:1: x: 'nan' is not a number from 0 to 1");
  EXPECT_EQ(ErrorOf("'1'", real), "f.yaml:1: x: '1' is not a number from 0 to 1, without quotes");
  const auto whole = [](YamlReader& r, const YamlNode& node) {
    static_cast<void>(r.Unsigned("seed", node));
  };
  EXPECT_THAT(ErrorOf("-1", whole), HasSubstr("seed: '-1' is not a whole number from 0"));
  EXPECT_THAT(ErrorOf("18446744073709551616", whole), HasSubstr("is not a whole number from 0"));
}

TEST(YamlReaderTest, ChoicesAndPaths) {
  constexpr std::array<std::string_view, 2> kChoices = {"poisson", "constant"};
  YamlReader reader("f.yaml");
  EXPECT_EQ(reader.Choice("key", Value("constant"), kChoices), "constant");
  EXPECT_EQ(reader.Path("key", Value("a/b c.csv")), "a/b c.csv");
  EXPECT_TRUE(reader.ok());
  const auto choice = [&](YamlReader& r, const YamlNode& node) {
    static_cast<void>(r.Choice("arrivals", node, kChoices));
  };
  EXPECT_EQ(ErrorOf("poison", choice),
            "f.yaml:1: arrivals: 'poison' is not poisson or constant; did you mean 'poisson'?");
  const auto path = [](YamlReader& r, const YamlNode& node) {
    static_cast<void>(r.Path("file", node));
  };
  EXPECT_THAT(ErrorOf("''", path), HasSubstr("file: '' is not the path of a file"));
  EXPECT_THAT(ErrorOf(std::string(4097, 'x'), path), HasSubstr("1 to 4096 bytes"));
}

}  // namespace
}  // namespace divvy
