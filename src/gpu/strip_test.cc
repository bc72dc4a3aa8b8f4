#include "gpu/strip.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gpu/catalogue.h"

namespace divvy::gpu {
namespace {

const GpuModel& H200() { return **FindGpuModel("H200-141GB"); }

StripCell Cell(const char* profile, int start, std::string label = "") {
  return {{start, *H200().FindProfile(profile)}, std::move(label)};
}

// Without "ESC [ ... m".
std::string WithoutColour(const std::string& text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = text.find('m', i);
    } else {
      plain += text[i];
    }
  }
  return plain;
}

TEST(StripTest, DrawsTheExampleOfTheHeader) {
  const std::vector<StripCell> cells = {Cell("1g.18gb", 0), Cell("2g.35gb", 2), Cell("3g.71gb", 4)};
  EXPECT_EQ(DrawStrip(H200(), cells, StripScale(H200(), cells), Ink::kPlain),
            "|1g.18gb |........|2g.35gb          |3g.71gb                            |");
}

TEST(StripTest, FreeSlicesAreCountable) {
  EXPECT_EQ(DrawStrip(H200(), {}, 4, Ink::kPlain), "|...|...|...|...|...|...|...|...|");
  const std::vector<StripCell> cells = {Cell("1g.18gb", 6)};
  EXPECT_EQ(DrawStrip(H200(), cells, 3, Ink::kPlain), "|..|..|..|..|..|..|1g|..|");
}

TEST(StripTest, EveryStripOfAScaleIsEquallyWide) {
  const std::vector<std::vector<StripCell>> strips = {
      {},
      {Cell("7g.141gb", 0)},
      {Cell("1g.18gb+me", 6)},
      {Cell("4g.71gb", 0), Cell("1g.35gb", 6)},
  };
  for (int scale = 2; scale < 15; ++scale) {
    for (const auto& cells : strips) {
      EXPECT_EQ(DrawStrip(H200(), cells, scale, Ink::kPlain).size(), 8U * scale + 1);
    }
  }
}

TEST(StripTest, ScaleShowsEveryNameAndIsMostlyTheSame) {
  const std::vector<StripCell> wide = {Cell("7g.141gb", 0)};
  EXPECT_EQ(StripScale(H200(), {}), 9);
  EXPECT_EQ(StripScale(H200(), wide), 9);
  const std::vector<StripCell> narrow = {Cell("1g.18gb+me", 0), Cell("3g.71gb", 4)};
  EXPECT_EQ(StripScale(H200(), narrow), 12);
  // Three slices share the columns of "1g.24gb".
  EXPECT_EQ(StripScale(**FindGpuModel("RTX-PRO-6000"), {}), 3);
}

TEST(StripTest, LabelsStandUnderTheirInstances) {
  const std::vector<StripCell> cells = {Cell("1g.18gb", 1, "bert"), Cell("2g.35gb", 4, "llama")};
  EXPECT_EQ(DrawStrip(H200(), cells, 9, Ink::kPlain),
            "|........|1g.18gb |........|........|2g.35gb          |........|........|\n"
            "          bert                       llama");
}

TEST(StripTest, LabelsAreCutToTheirInstance) {
  const std::vector<StripCell> cells = {Cell("1g.18gb", 0, "sentence-encoder"),
                                        Cell("1g.18gb", 1, "ab")};
  const std::string drawn = DrawStrip(H200(), cells, 9, Ink::kPlain);
  EXPECT_EQ(drawn.substr(drawn.find('\n')), "\n sentence ab");
}

TEST(StripTest, LabelsAreCutBetweenCharactersNotBytes) {
  const std::vector<StripCell> cells = {Cell("1g.18gb", 0, "größen-übersetzer"),
                                        Cell("1g.18gb", 1, "ab")};
  const std::string drawn = DrawStrip(H200(), cells, 9, Ink::kPlain);
  EXPECT_EQ(drawn.substr(drawn.find('\n')), "\n größen-ü ab");
}

TEST(StripTest, LabelsCannotControlTheTerminal) {
  const std::vector<StripCell> cells = {Cell("2g.35gb", 0, "a\x1b[2Jb\nc")};
  const std::string drawn = DrawStrip(H200(), cells, 9, Ink::kPlain);
  EXPECT_EQ(drawn.substr(drawn.find('\n')), "\n a?[2Jb?c");
}

TEST(StripTest, ColourChangesNoColumnAndEndsWithEachCell) {
  const std::vector<StripCell> cells = {Cell("1g.18gb", 0, "bert"), Cell("3g.71gb", 4)};
  const std::string plain = DrawStrip(H200(), cells, 9, Ink::kPlain);
  const std::string coloured = DrawStrip(H200(), cells, 9, Ink::kColour);
  EXPECT_EQ(WithoutColour(coloured), plain);
  // Nothing that follows the strip inherits its colours, nor do the borders.
  EXPECT_TRUE(coloured.starts_with("|\x1b[30;46m1g.18gb \x1b[0m|\x1b[2m........\x1b[0m|"));
  EXPECT_EQ(plain.find('\x1b'), std::string::npos);
}

TEST(StripTest, SizesDifferInColour) {
  std::vector<std::string> openings;
  for (const char* name : {"1g.18gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"}) {
    const std::vector<StripCell> cells = {Cell(name, 0)};
    openings.push_back(DrawStrip(H200(), cells, 9, Ink::kColour).substr(1, 8));
  }
  for (std::size_t i = 0; i < openings.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(openings[i], openings[j]);
  }
}

}  // namespace
}  // namespace divvy::gpu
