#include "base/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "base/random.h"

namespace divvy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// The fields of every row, or the error as the only one.
std::vector<std::vector<std::string>> RowsOf(std::string_view text, std::size_t columns) {
  CsvReader csv(text, "f.csv");
  std::vector<std::vector<std::string>> rows;
  while (csv.NextRow()) {
    std::vector<std::string>& row = rows.emplace_back();
    for (std::size_t i = 0; i < columns; ++i) row.emplace_back(csv.Field(i));
  }
  if (!csv.ok()) return {{csv.error().message}};
  return rows;
}

std::string ErrorOf(std::string_view text) {
  CsvReader csv(text, "f.csv");
  while (csv.NextRow()) {
  }
  return csv.ok() ? "no error" : csv.error().message;
}

TEST(CsvTest, ReadsQuotesSpacesAndEitherLineEnd) {
  EXPECT_THAT(RowsOf("a,b\r\n1,2\r\n\r\n\"x, \"\"y\"\"\" ,\t z \n,\n\"\",\"\"", 2),
              ElementsAre(ElementsAre("1", "2"), ElementsAre("x, \"y\"", "z"), ElementsAre("", ""),
                          ElementsAre("", "")));
  EXPECT_THAT(RowsOf("\xEF\xBB\xBF"
                     "a,b\n1,2",
                     2),
              ElementsAre(ElementsAre("1", "2")));
}

TEST(CsvTest, SeveralQuotedFieldsOfARowAllLast) {
  const std::string field(100, 'q');
  const std::string quoted = "\"" + field + "\"";
  EXPECT_THAT(RowsOf("a,b,c\n" + quoted + "," + quoted + "," + quoted + "\n", 3),
              ElementsAre(ElementsAre(field, field, field)));
}

TEST(CsvTest, RowsKnowTheirLines) {
  CsvReader csv("\n\na\n\n1\n2\n", "f.csv");
  EXPECT_EQ(csv.line(), 3);
  ASSERT_TRUE(csv.NextRow());
  EXPECT_EQ(csv.line(), 5);
  ASSERT_TRUE(csv.NextRow());
  EXPECT_EQ(csv.line(), 6);
  EXPECT_FALSE(csv.NextRow());
  EXPECT_TRUE(csv.ok());
}

TEST(CsvTest, RefusesWhatIsNoTable) {
  EXPECT_EQ(ErrorOf(""), "f.csv: the file is empty; its first line names the columns");
  EXPECT_EQ(ErrorOf("\n \n"), "f.csv: the file is empty; its first line names the columns");
  EXPECT_EQ(ErrorOf("a,b\n1,2\n1\n"), "f.csv:3: 1 fields, but the header has 2");
  EXPECT_EQ(ErrorOf("a,b\n1,2,3\n"), "f.csv:2: 3 fields, but the header has 2");
  EXPECT_EQ(ErrorOf("a,b,a\n"), "f.csv:1: the header has the column 'a' twice");
  EXPECT_EQ(ErrorOf("a,,b\n"), "f.csv:1: the header has a column without a name");
  EXPECT_EQ(ErrorOf("a\n\"x\n"), "f.csv:2: a quote is opened and not closed on this line");
  EXPECT_THAT(ErrorOf("a\n\"x\"y\n"), StartsWith("f.csv:2: text follows a field in quotes"));
  EXPECT_EQ(ErrorOf("a\n1\n\xff\n"), "f.csv:3: byte 0xFF is not UTF-8 text");
  EXPECT_THAT(ErrorOf(std::string_view("a\n\0", 3)), HasSubstr("f.csv:2: a control character"));
  EXPECT_THAT(ErrorOf("a\rb\n"), HasSubstr("carriage return"));
  EXPECT_THAT(ErrorOf("c" + std::string(300, ',')), HasSubstr("301 columns; a file may have 256"));
}

TEST(CsvTest, RefusesAFileOver64Mebibytes) {
  EXPECT_THAT(ErrorOf(std::string((64 << 20) + 1, 'x')), StartsWith("f.csv: 67108865 bytes"));
}

TEST(CsvTest, UnknownAndMissingColumnsAreNamed) {
  constexpr std::array<std::string_view, 2> kKnown = {"model", "batch"};
  CsvReader slip("model,bach\n", "f.csv");
  slip.RefuseOthers(kKnown, "a table");
  EXPECT_EQ(slip.error().message, "f.csv:1: a table has no column 'bach'; did you mean 'batch'?");
  CsvReader strange("model,zzzzzzzz\n", "f.csv");
  strange.RefuseOthers(kKnown, "a table");
  EXPECT_EQ(strange.error().message,
            "f.csv:1: a table has no column 'zzzzzzzz'; it may have model or batch");
  CsvReader lacking("model\n", "f.csv");
  EXPECT_EQ(lacking.Require("model", "a table"), 0U);
  EXPECT_TRUE(lacking.ok());
  EXPECT_EQ(lacking.Find("batch"), std::nullopt);
  EXPECT_EQ(lacking.Require("batch", "a table"), 0U);
  EXPECT_EQ(lacking.error().message, "f.csv:1: a table needs the column 'batch'");
}

TEST(CsvTest, TypedFieldsKeepTheFirstError) {
  CsvReader csv("n,x\n3,0.5\n4,\n9,nan\n", "f.csv");
  ASSERT_TRUE(csv.NextRow());
  EXPECT_EQ(csv.Integer(0, {1, 5}), 3);
  EXPECT_EQ(csv.Real(1, {0, 1}), 0.5);
  EXPECT_EQ(csv.OptionalReal(1, {0, 1}), 0.5);
  EXPECT_EQ(csv.OptionalReal(std::nullopt, {0, 1}), std::nullopt);
  ASSERT_TRUE(csv.NextRow());
  EXPECT_EQ(csv.OptionalReal(1, {0, 1}), std::nullopt);
  ASSERT_TRUE(csv.NextRow());
  EXPECT_TRUE(csv.ok());
  EXPECT_EQ(csv.Integer(0, {1, 5}), 1);
  EXPECT_EQ(csv.Real(1, {0, 1}), 0);
  EXPECT_EQ(csv.error().message, "f.csv:4: n: '9' is not a whole number from 1 to 5");
  EXPECT_FALSE(csv.NextRow());
}

TEST(CsvTest, FieldsThatAreWrittenReadBack) {
  Random random(1);
  constexpr std::string_view kLetters = "a\", \tz";
  for (int i = 0; i < 500; ++i) {
    std::string field;
    const auto length = random.Below(8);
    for (std::uint64_t k = 0; k < length; ++k) field += kLetters[random.Below(kLetters.size())];
    const std::string text = "a,b\nx," + CsvField(field) + "\n";
    EXPECT_THAT(RowsOf(text, 2), ElementsAre(ElementsAre("x", field))) << text;
  }
}

}  // namespace
}  // namespace divvy
