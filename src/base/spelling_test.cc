#include "base/spelling.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace divvy {
namespace {

constexpr std::array<std::string_view, 4> kKeys = {"profile", "start", "processes", "mps_share"};

TEST(SpellingTest, FindsTheNameASlipMeant) {
  EXPECT_EQ(NearestSpelling("profil", kKeys), "profile");
  EXPECT_EQ(NearestSpelling("strat", kKeys), "start");
  EXPECT_EQ(NearestSpelling("Proccesses", kKeys), "processes");
  EXPECT_EQ(NearestSpelling("mps-share", kKeys), "mps_share");
}

TEST(SpellingTest, ASwapOfNeighboursIsOneEdit) {
  constexpr std::array<std::string_view, 2> names = {"sxxrt", "start"};
  EXPECT_EQ(NearestSpelling("satrt", names), "start");
}

TEST(SpellingTest, StaysSilentWhenNothingIsClose) {
  EXPECT_EQ(NearestSpelling("gpu", kKeys), "");
  EXPECT_EQ(NearestSpelling("", kKeys), "");
  EXPECT_EQ(NearestSpelling(std::string(100000, 'a'), kKeys), "");
  EXPECT_EQ(DidYouMean("zzzz", kKeys), "");
}

TEST(SpellingTest, PhrasesItForAnError) {
  EXPECT_EQ(DidYouMean("strat", kKeys), "; did you mean 'start'?");
  EXPECT_EQ(OneOf(kKeys), "profile, start, processes or mps_share");
  EXPECT_EQ(OneOf(std::span(kKeys).first(1)), "profile");
}

}  // namespace
}  // namespace divvy
