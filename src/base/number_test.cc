#include "base/number.h"

#include <gtest/gtest.h>

#include <limits>

namespace divvy {
namespace {

TEST(NumberTest, IntegersAreWholeDecimalNumbersThatFit) {
  EXPECT_EQ(ParseInteger("0"), 0);
  EXPECT_EQ(ParseInteger("-12"), -12);
  EXPECT_EQ(ParseInteger("2147483647"), 2147483647);
  for (const char* text :
       {"", "-", "+1", "01", "-0", "1.0", "1e3", " 1", "1 ", "0x1", "2147483648"}) {
    EXPECT_EQ(ParseInteger(text), std::nullopt) << text;
  }
  EXPECT_EQ(ParseUnsigned("18446744073709551615"), std::numeric_limits<std::uint64_t>::max());
  for (const char* text : {"-1", "18446744073709551616", "00", ""}) {
    EXPECT_EQ(ParseUnsigned(text), std::nullopt) << text;
  }
}

TEST(NumberTest, RealsAreFiniteDecimalNumbers) {
  EXPECT_EQ(ParseReal("12"), 12.0);
  EXPECT_EQ(ParseReal("0.1"), 0.1);
  EXPECT_EQ(ParseReal("-1.5e-3"), -0.0015);
  for (const char* text : {"", "nan", "inf", "-inf", "NAN", "infinity", "1e999", "+1", "1,5", "1 ",
                           " 1", "0x10", "1..2", "--1", "e5"}) {
    EXPECT_EQ(ParseReal(text), std::nullopt) << text;
  }
}

TEST(NumberTest, RangesSayWhatWouldBeRight) {
  EXPECT_EQ(Describe(IntRange{1, 7}), "a whole number from 1 to 7");
  EXPECT_EQ(Describe(RealRange{1e-6, 1e9}), "a number from 1e-06 to 1000000000");
}

}  // namespace
}  // namespace divvy
