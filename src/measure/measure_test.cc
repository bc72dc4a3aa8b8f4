// The parts of a measurement that need no clock and no process.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/random.h"
#include "gpu/catalogue.h"
#include "measure/journal.h"
#include "measure/partitions.h"
#include "measure/samples.h"
#include "measure/sampling.h"

namespace divvy::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Samples Of(int count, const std::function<double(int)>& ms) {
  Samples samples;
  for (int i = 0; i < count; ++i) samples.Add(ms(i));
  return samples;
}

TEST(SamplesTest, ErrorIsTheConfidenceIntervalOfTheMean) {
  EXPECT_EQ(Of(100, [](int) { return 5.0; }).Error(), 0);
  EXPECT_EQ(Of(2, [](int) { return 5.0; }).Error(), 1);  // Two tell nothing.
  // 9 and 11 in turn: deviation 1.005, so 1.98 * 0.1005 of 10, whichever way it is computed.
  EXPECT_NEAR(Of(100, [](int i) { return i % 2 == 0 ? 9.0 : 11.0; }).Error(), 0.0199, 0.0002);
  // Large against its spread, where sums of squares would lose all digits.
  EXPECT_NEAR(Of(100, [](int i) { return 1e9 + (i % 2); }).Error() * 1e9, 0.1, 0.01);
}

TEST(SamplesTest, WhatChangesSlowlyIsNotAveragedAway) {
  const auto quick = Of(1000, [](int i) { return i % 2 == 0 ? 9.0 : 11.0; });
  const auto slow = Of(1000, [](int i) { return i < 500 ? 9.0 : 11.0; });
  EXPECT_LT(quick.Error(), 0.01);
  EXPECT_GT(slow.Error(), 0.05);
}

TEST(SamplesTest, QuantilesAreValuesOfTheSample) {
  const auto samples = Of(100, [](int i) { return 100.0 - i; });
  EXPECT_EQ(samples.Quantile(0.5), 50);
  EXPECT_EQ(samples.Quantile(0.95), 95);
  EXPECT_EQ(samples.Quantile(0.99), 99);
  EXPECT_EQ(samples.Quantile(1), 100);
  EXPECT_EQ(Of(1, [](int) { return 7.0; }).Quantile(0.5), 7);
}

TEST(SamplesTest, EnoughIsTightOrOutOfTime) {
  using std::chrono::milliseconds;
  const Pace pace;
  const auto tight = [](int) { return 10.0; };
  const auto wide = [](int i) { return i % 2 == 0 ? 5.0 : 15.0; };
  EXPECT_TRUE(Of(50, tight).Enough(pace, milliseconds(500)));
  EXPECT_FALSE(Of(49, tight).Enough(pace, milliseconds(500)));
  EXPECT_FALSE(Of(50, tight).Enough(pace, milliseconds(200)));
  EXPECT_FALSE(Of(50, wide).Enough(pace, milliseconds(500)));
  EXPECT_TRUE(Of(4, wide).Enough(pace, milliseconds(2000)));
  EXPECT_FALSE(Of(2, tight).Enough(pace, milliseconds(60'000)));  // A batch may take half a minute.
}

TEST(SamplesTest, SettledWhenTheLastAreAsThoseBefore) {
  EXPECT_FALSE(HasSettled(std::vector<double>{5, 5, 5, 5, 5, 5, 5}));
  EXPECT_TRUE(HasSettled(std::vector<double>{90, 5, 5, 5, 5, 5, 5, 5, 5}));
  EXPECT_FALSE(HasSettled(std::vector<double>{9, 8, 7, 6, 5, 5, 5, 5}));
}

// Batches that are measured of a curve, in order, and what a profile of them answers.
struct Walk {
  std::vector<int> order;
  Curve measured;
};
Walk WalkAlong(const std::vector<int>& wanted, const std::function<double(int)>& truth,
               bool all = false) {
  Walk walk;
  while (const auto batch = NextBatch(wanted, walk.measured, all)) {
    EXPECT_FALSE(walk.measured.contains(*batch)) << "twice: " << *batch;
    walk.order.push_back(*batch);
    walk.measured[*batch] = truth(*batch);
    if (walk.order.size() > wanted.size()) break;
  }
  return walk;
}

TEST(SamplingTest, StraightAndFlatCurvesTakeFewPoints) {
  const std::vector<int> wanted = BatchesUpTo(64);
  EXPECT_THAT(wanted, ElementsAre(1, 2, 4, 8, 16, 32, 64));
  EXPECT_THAT(BatchesUpTo(48), ElementsAre(1, 2, 4, 8, 16, 32, 48));
  EXPECT_THAT(BatchesUpTo(1), ElementsAre(1));
  EXPECT_THAT(WalkAlong(wanted, [](int b) { return 2.0 + b; }).order, ElementsAre(1, 64, 8, 32));
  EXPECT_THAT(WalkAlong(wanted, [](int) { return 2.0; }).order, ElementsAre(1, 64, 8));
  EXPECT_THAT(WalkAlong({1}, [](int) { return 2.0; }).order, ElementsAre(1));
  EXPECT_THAT(WalkAlong({1, 2}, [](int b) { return 1.0 * b; }).order, ElementsAre(1, 2));
  EXPECT_EQ(WalkAlong(wanted, [](int) { return 2.0; }, true).order.size(), wanted.size());
}

TEST(SamplingTest, BendsAreMeasured) {
  // Flat up to a knee at 16: the gaps beside it are not known.
  const auto walk = WalkAlong(BatchesUpTo(64), [](int b) { return std::max(2.0, 2.0 * b / 16); });
  EXPECT_THAT(walk.order, ::testing::IsSupersetOf({16, 32}));
  // A step between 32 and 64 that the outer points do not show.
  EXPECT_TRUE(
      WalkAlong(BatchesUpTo(64), [](int b) { return b <= 32 ? 2.0 : 40.0; }).measured.contains(32));
}

// Curves as GPUs have them: a fixed part that goes over, softly or sharply, into one that grows
// with the batch; errors of measuring within 1 %.
TEST(SamplingTest, SkippedPointsAreWithinFivePercent) {
  Random random(7);
  int skipped = 0;
  for (int round = 0; round < 500; ++round) {
    const double knee = 0.1 + 80 * random.Uniform() * random.Uniform();
    const double sharpness = 1 + 7 * random.Uniform();
    const auto truth = [&](int b) {
      return 3 * std::pow(1 + std::pow(b / knee, sharpness), 1 / sharpness);
    };
    const std::vector<int> wanted = BatchesUpTo(64);
    const Walk walk =
        WalkAlong(wanted, [&](int b) { return truth(b) * (0.995 + 0.01 * random.Uniform()); });
    for (const int batch : wanted) {
      if (walk.measured.contains(batch)) continue;
      ++skipped;
      const double chord = BoundsOf(walk.measured, batch)->chord;
      EXPECT_NEAR(chord / truth(batch), 1, 0.05) << "round " << round << " batch " << batch;
    }
  }
  EXPECT_GT(skipped, 500);  // It would also be right to skip none.
}

TEST(PartitionsTest, MpsSharesAreMigSizes) {
  const gpu::GpuModel& h200 = **gpu::FindGpuModel("H200");
  std::vector<std::string> sizes;
  std::vector<int> percents;
  for (const Partition& partition : SizesOf(h200)) {
    sizes.push_back(Describe(partition.size));
    percents.push_back(ThreadPercentage(partition.share, 1));
  }
  EXPECT_THAT(sizes, ElementsAre("16sm", "32sm", "60sm", "64sm", "132sm"));
  EXPECT_THAT(percents, ElementsAre(13, 25, 46, 49, 100));
  EXPECT_EQ(ThreadPercentage(0.25, 1), 25);
  EXPECT_EQ(ThreadPercentage(33.0 / 132, 1), 25);
  EXPECT_EQ(ThreadPercentage(0.5, 2), 25);
  EXPECT_EQ(ThreadPercentage(16.0 / 132, 2), 7);  // 9.2 SMs, of which the driver gives 8.
  EXPECT_EQ(ThreadPercentage(16.0 / 132, 4), 4);
  EXPECT_EQ(ThreadPercentage(0.1, 100), 1);
  EXPECT_EQ(CoresFor(0.1, 2), 1);
  EXPECT_EQ(CoresFor(0.5, 16), 8);
  EXPECT_EQ(CoresFor(1, 16), 16);
}

TEST(PartitionsTest, SizesWithTheSameCoresAreOne) {
  const auto merged = MergedByCores(SizesOf(**gpu::FindGpuModel("H200")), 4);
  ASSERT_EQ(merged.size(), 2U);
  EXPECT_EQ(Describe(merged[0].size), "16sm");
  EXPECT_EQ(merged[0].same.size(), 3U);
  EXPECT_EQ(Describe(merged[1].size), "132sm");
}

TEST(PartitionsTest, WordsAreSizesOfTheGpu) {
  const gpu::GpuModel& h200 = **gpu::FindGpuModel("H200");
  EXPECT_NEAR(FindSize(h200, "3g")->share, 60.0 / 132, 1e-9);
  EXPECT_NEAR(FindSize(h200, "4g.71gb")->share, 64.0 / 132, 1e-9);
  EXPECT_NEAR(FindSize(h200, "33sm")->share, 0.25, 1e-9);
  EXPECT_THAT(FindSize(h200, "5g").error().message, HasSubstr("it has 1g.18gb"));
  EXPECT_THAT(FindSize(h200, "133sm").error().message, HasSubstr("not a part of H200-141GB"));
  EXPECT_THAT(FindSize(h200, "all").error().message, HasSubstr("--partitions: 'all'"));
}

Point Example() {
  return {.size = *workload::ParsePartitionSize("60sm"),
          .processes = 2,
          .figures = {.batch = 8, .latency_ms = 1.25, .p95_ms = 1.5, .p50_ms = 1.2, .power_w = 300},
          .error = 0.0075,
          .batches = 120};
}

TEST(JournalTest, RowsComeBackAndATornLineDoesNotCount) {
  const std::string row = JournalRow(Example());
  const auto points =
      ParseJournal(JournalHead("m") + row + row.substr(0, row.size() / 2), "m", "f");
  ASSERT_TRUE(points) << points.error().message;
  ASSERT_EQ(points->size(), 1U);
  EXPECT_EQ(JournalRow(points->front()), row);
  EXPECT_EQ(points->front().figures.p99_ms, std::nullopt);
  EXPECT_EQ(points->front().figures.power_w, 300);
  // Cut anywhere it is a journal of fewer points, never an error.
  const std::string whole = JournalHead("m") + row + row;
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const auto cut = ParseJournal(whole.substr(0, size), "m", "f");
    ASSERT_TRUE(cut) << size << ": " << cut.error().message;
    EXPECT_LE(cut->size(), 1U);
  }
}

TEST(JournalTest, AnotherMeasurementsIsRefused) {
  EXPECT_TRUE(ParseJournal(JournalHead("batch 64"), "batch 32", "f.partial")) << "nothing is lost";
  const auto other =
      ParseJournal(JournalHead("batch 64") + JournalRow(Example()), "batch 32", "f.partial");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message,
              ::testing::AllOf(HasSubstr("batch 64; now: batch 32"), HasSubstr("--restart")));
  EXPECT_THAT(ParseJournal("model,batch\n1,2\n", "m", "f").error().message, HasSubstr("f:1: "));
  const std::string bad = JournalHead("m") + "60sm,0,8,1,,,,,,,0,1\n";
  EXPECT_THAT(ParseJournal(bad, "m", "f").error().message, HasSubstr("processes"));
}

TEST(JournalTest, GoesOnAfterWhatACrashLeft) {
  char pattern[] = "/tmp/divvy-journal-XXXXXX";
  ASSERT_NE(mkdtemp(pattern), nullptr);
  const std::string path = std::string(pattern) + "/p.csv.partial";
  {
    auto journal = Journal::Open(path, "m", false);
    ASSERT_TRUE(journal);
    EXPECT_THAT(Journal::Open(path, "m", false).error().message, HasSubstr("another divvy"));
    ASSERT_TRUE(journal->Append(Example()));
  }
  std::ofstream(path, std::ios::app) << "60sm,2,1";
  {
    auto journal = Journal::Open(path, "m", false);
    ASSERT_TRUE(journal) << journal.error().message;
    EXPECT_EQ(journal->points().size(), 1U);
    ASSERT_TRUE(journal->Append(Example()));
  }
  std::ifstream file(path);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}),
            JournalHead("m") + JournalRow(Example()) + JournalRow(Example()));
  EXPECT_FALSE(Journal::Open(path, "n", false));
  auto anew = Journal::Open(path, "n", true);
  ASSERT_TRUE(anew);
  EXPECT_TRUE(anew->points().empty());
  anew->Remove();
  EXPECT_TRUE(std::filesystem::is_empty(pattern));
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace divvy::measure
