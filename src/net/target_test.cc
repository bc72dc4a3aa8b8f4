#include "net/target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace divvy::net {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

TEST(TargetTest, SplitsAndDecodes) {
  EXPECT_THAT(SplitPath("/v2"), Optional(ElementsAre("v2")));
  EXPECT_THAT(SplitPath("/v2/"), Optional(ElementsAre("v2")));
  EXPECT_THAT(SplitPath("/v2/models/a%20b%2fc/infer?x=/y"),
              Optional(ElementsAre("v2", "models", "a b/c", "infer")));
  EXPECT_THAT(SplitPath("/"), Optional(ElementsAre()));
  EXPECT_THAT(SplitPath("http://h:1/v2/x?y"), Optional(ElementsAre("v2", "x")));
  EXPECT_THAT(SplitPath("HTTPS://[::1]:1/v2"), Optional(ElementsAre("v2")));
  EXPECT_THAT(SplitPath("http://h"), Optional(ElementsAre()));
  EXPECT_THAT(SplitPath("http://h?a/b"), Optional(ElementsAre()));
  for (const char* bad : {"", "v2", "*", "/a%", "/a%2", "/a%zz", "/a%00b", "http://", "http:///v2",
                          "ftp://h/v2", "http:/v2"}) {
    EXPECT_FALSE(SplitPath(bad)) << bad;
  }
}

TEST(TargetTest, EscapedPartsComeBack) {
  std::string all;
  for (int c = 1; c < 256; ++c) all += static_cast<char>(c);
  EXPECT_THAT(SplitPath("/" + EscapedPart(all)), Optional(ElementsAre(all)));
}

}  // namespace
}  // namespace divvy::net
