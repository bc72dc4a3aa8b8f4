#include "kserve/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "kserve/json_writer.h"
#include "kserve/utf8.h"

namespace divvy::kserve {
namespace {

// What is wrong with a text; "" if nothing is.
std::string Problem(std::string_view text) {
  JsonReader reader(text);
  reader.Skip();
  reader.End();
  return reader.ok() ? "" : reader.error().message;
}

std::string Nested(int depth) {
  return std::string(static_cast<std::size_t>(depth), '[') +
         std::string(static_cast<std::size_t>(depth), ']');
}

TEST(JsonTest, AcceptsWhatTheStandardDoes) {
  const std::string_view texts[] = {"{}",
                                    "[]",
                                    "\"\"",
                                    "0",
                                    "-0",
                                    "-0.0e-1",
                                    "12E+3",
                                    "1.25",
                                    "true",
                                    "false",
                                    "null",
                                    " \t\r\n[ 1 , 2 ] ",
                                    R"({"a":{"b":[{}]},"c":[]})",
                                    R"("\"\\\/\b\f\n\r\t\u00e9\uD83D\uDE00")",
                                    "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\x7F\"",
                                    "123456789012345678901234567890"};
  for (const std::string_view text : texts) EXPECT_EQ(Problem(text), "") << text;
  EXPECT_EQ(Problem(Nested(JsonReader::kDeepest)), "");
}

TEST(JsonTest, RefusesEverythingElse) {
  using namespace std::string_view_literals;
  const std::string_view texts[] = {"",
                                    " ",
                                    "{",
                                    "[",
                                    "]",
                                    "[1",
                                    "[1,",
                                    "[1,]",
                                    "[,1]",
                                    "[1 2]",
                                    "[1}",
                                    "{]",
                                    "{\"a\"}",
                                    "{\"a\":}",
                                    "{\"a\":1,}",
                                    "{,}",
                                    "{a:1}",
                                    "{'a':1}",
                                    "{\"a\" 1}",
                                    "{\"a\":1 \"b\":2}",
                                    "1 2",
                                    "{} {}",
                                    "+1",
                                    "01",
                                    "-01",
                                    "-",
                                    "1.",
                                    ".5",
                                    "1e",
                                    "1e+",
                                    "0x10",
                                    "1.e3",
                                    "NaN",
                                    "Infinity",
                                    "-Infinity",
                                    "tru",
                                    "True",
                                    "falsey",
                                    "nul",
                                    "nullx",
                                    "\"",
                                    "\"a",
                                    "\"\\",
                                    "\"\\x\"",
                                    "\"\\u12\"",
                                    "\"\\u12g4\"",
                                    "\"\\u-123\"",
                                    "\"\\uD83D\"",
                                    "\"\\uD83Dx\"",
                                    "\"\\uD83D\\n\"",
                                    "\"\\uD83D\\u0041\"",
                                    "\"\\uDE00\"",
                                    "\"\n\"",
                                    "\"\t\"",
                                    "\"\x01\"",
                                    "\"\0\""sv,
                                    "\0"sv,
                                    "1\0"sv,
                                    "[1]\0"sv,
                                    "//x\n1",
                                    "[1]//",
                                    "\xEF\xBB\xBF[]"};
  for (const std::string_view text : texts) EXPECT_NE(Problem(text), "") << text;
  EXPECT_NE(Problem(Nested(JsonReader::kDeepest + 1)), "");
  EXPECT_NE(Problem(std::string(1'000'000, '[')), "");
}

TEST(JsonTest, RefusesTextThatIsNotUtf8) {
  const std::string_view texts[] = {"\x80",
                                    "\xC3",
                                    "\xC3(",
                                    "\xC0\x80",
                                    "\xC1\xBF",
                                    "\xE0\x80\x80",
                                    "\xE2\x82",
                                    "\xED\xA0\x80",
                                    "\xF0\x80\x80\x80",
                                    "\xF4\x90\x80\x80",
                                    "\xF5\x80\x80\x80",
                                    "\xFF"};
  for (const std::string_view text : texts) {
    EXPECT_FALSE(IsUtf8(text));
    EXPECT_NE(Problem('"' + std::string(text) + '"'), "") << Problem(text);
    EXPECT_NE(Problem("{\"" + std::string(text) + "\":1}"), "");
  }
}

// A key that two readers take from different places is how one of them is deceived.
TEST(JsonTest, RefusesKeysThatOccurTwice) {
  EXPECT_EQ(Problem(R"({"a":{"a":1,"b":2},"b":[{"a":1},{"a":1}]})"), "");
  EXPECT_NE(Problem(R"({"a":1,"b":2,"a":3})"), "");
  EXPECT_NE(Problem(R"({"a":1,"\u0061":3})"), "");
  EXPECT_NE(Problem(R"({"x":[{"b":{},"b":{}}]})"), "");
  // Also where there are so many that they are sorted.
  JsonWriter writer;
  writer.BeginObject();
  for (int i = 0; i < 1000; ++i) writer.Key(std::to_string(i)), writer.Int(i);
  std::string many = writer.Take();
  EXPECT_EQ(Problem(many + "}"), "");
  EXPECT_NE(Problem(many + ",\"500\":0}"), "");
}

TEST(JsonTest, NamesThePlaceAndWhatWasExpected) {
  EXPECT_EQ(Problem("[1,x]"), "JSON, byte 3: found 'x' where a value should be");
  EXPECT_EQ(Problem("{\"a\":1"), "JSON, byte 6: the text ends where ',' or '}' should be");
}

TEST(JsonTest, WholeNumbersKeepAllTheirBits) {
  const auto number = [](std::string_view text) { return JsonReader(text).Number(); };
  EXPECT_EQ(number("9223372036854775807").Int(), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(number("-9223372036854775808").Int(), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(number("9223372036854775808").Int(), std::nullopt);
  EXPECT_EQ(number("18446744073709551615").Uint(), std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(number("18446744073709551616").Uint(), std::nullopt);
  EXPECT_EQ(number("-1").Uint(), std::nullopt);
  EXPECT_EQ(number("-0").Uint(), 0u);
  EXPECT_EQ(number("1.0").Int(), std::nullopt);
  EXPECT_EQ(number("1e2").Int(), std::nullopt);
}

TEST(JsonTest, RealNumbersAreTheNearestAndTinyOnesZero) {
  const auto number = [](std::string_view text) { return JsonReader(text).Number(); };
  EXPECT_EQ(number("0.1").Double(), 0.1);
  EXPECT_EQ(number("16777217").Float(), 16777216.0f);
  EXPECT_EQ(number("3.4028235e38").Float(), std::numeric_limits<float>::max());
  EXPECT_EQ(number("3.5e38").Float(), std::nullopt);
  EXPECT_EQ(number("1e-60").Float(), 0.0f);
  EXPECT_TRUE(std::signbit(*number("-1e-60").Float()));
  EXPECT_EQ(number("1e400").Double(), std::nullopt);
  EXPECT_EQ(number("1e99999999999999999999").Double(), std::nullopt);
  EXPECT_EQ(number("1e-99999999999999999999").Double(), 0.0);
  EXPECT_EQ(number("-12345.678e-400").Double(), 0.0);
  EXPECT_EQ(number("0." + std::string(400, '0') + "1").Double(), 0.0);
  EXPECT_EQ(number("1" + std::string(400, '0')).Double(), std::nullopt);
  EXPECT_EQ(number("0." + std::string(400, '0') + "1e401").Double(), 1.0);
}

TEST(JsonTest, EscapesMeanWhatTheySay) {
  JsonReader reader(R"("a\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\uD83D\uDE00z")");
  const JsonString string = reader.String();
  EXPECT_TRUE(string.escaped);
  EXPECT_EQ(string.Text(), "a\"\\/\b\f\n\r\tA\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z");
}

TEST(JsonTest, AMistakeStays) {
  JsonReader reader(R"([1,"x"])");
  reader.BeginArray();
  ASSERT_TRUE(reader.Item());
  EXPECT_EQ(reader.String().raw, "");
  const std::string first = reader.error().message;
  EXPECT_FALSE(reader.Item());
  EXPECT_EQ(reader.Key(), std::nullopt);
  EXPECT_EQ(reader.Peek(), JsonKind::kNothing);
  EXPECT_EQ(reader.Skip(), "");
  reader.Complain("another");
  EXPECT_EQ(reader.error().message, first);
}

TEST(JsonTest, WrittenTextReadsBack) {
  std::string all;
  for (int c = 0; c < 0x80; ++c) all += static_cast<char>(c);
  all += "\xC3\xA9\xF0\x9F\x98\x80";
  JsonWriter writer;
  writer.BeginArray();
  writer.String(all);
  writer.String("bad \xFF\xC3");
  writer.Double(2);
  writer.Double(std::numeric_limits<double>::infinity());
  writer.BeginObject();
  writer.EndObject();
  writer.EndArray();
  const std::string text = writer.Take();
  JsonReader reader(text);
  reader.BeginArray();
  ASSERT_TRUE(reader.Item());
  EXPECT_EQ(reader.String().Text(), all);
  ASSERT_TRUE(reader.Item());
  EXPECT_EQ(reader.String().Text(), "bad \xEF\xBF\xBD\xEF\xBF\xBD");
  EXPECT_TRUE(text.ends_with(",2.0,null,{}]")) << text;
}

TEST(JsonTest, WrittenNumbersReadBackBitForBit) {
  Random random(7);
  for (int i = 0; i < 2000; ++i) {
    double number;
    const std::uint64_t bits = random.Bits();
    std::memcpy(&number, &bits, sizeof number);
    const auto narrow = static_cast<float>(random.Normal());
    if (!std::isfinite(number)) continue;
    JsonWriter writer;
    writer.BeginArray();
    writer.Double(number);
    writer.Float(narrow);
    writer.Uint(bits);
    writer.EndArray();
    const std::string text = writer.Take();
    JsonReader reader(text);
    reader.BeginArray();
    ASSERT_TRUE(reader.Item());
    ASSERT_EQ(reader.Number().Double(), number) << text;
    ASSERT_TRUE(reader.Item());
    ASSERT_EQ(reader.Number().Float(), narrow) << text;
    ASSERT_TRUE(reader.Item());
    ASSERT_EQ(reader.Number().Uint(), bits) << text;
  }
}

}  // namespace
}  // namespace divvy::kserve
