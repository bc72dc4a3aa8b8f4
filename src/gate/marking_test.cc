#include "gate/marking.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "gate/board.h"

namespace divvy::gate {
namespace {

// A kernel that takes `ns` and fills `fill` thousandths of the GPU.
struct Kernel {
  explicit Kernel(std::uint32_t ns, std::uint16_t fill = 1000, bool exempt = false) {
    if (ns != 0) Learn(cost, ns, false);
    cost.fill.store(fill);
    cost.exempt.store(exempt ? 1 : 0);
  }
  Cost cost{};
};

// A job of one stream.
struct OneStream {
  Marking Mark(const Cost& cost, std::uint32_t interval_ns) {
    return gate::Mark(gauge, spread, cost, interval_ns);
  }
  StreamGauge gauge{};
  StreamSpread spread{};
};

TEST(MarkingTest, TheFirstLaunchOfAStreamIsMarked) {
  OneStream stream;
  EXPECT_TRUE(stream.Mark(Kernel(1).cost, kMarkerIntervalNs).marker);
  EXPECT_FALSE(stream.Mark(Kernel(1).cost, kMarkerIntervalNs).marker);
}

TEST(MarkingTest, WorkBetweenMarkersIsBounded) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    OneStream stream;
    const std::uint32_t interval = MarkerIntervalNs(static_cast<std::uint32_t>(random() % 1000));
    const std::uint32_t longest = 1U << (4 + random() % 18);
    std::uint64_t since = 0;  // Work since the last marker, by a count of our own.
    int kernels = 0;
    int markers = 0;
    std::uint64_t total = 0;
    for (int i = 0; i < 200; ++i) {
      const Kernel kernel(random() % 50 == 0 ? 0
                                             : 1 + static_cast<std::uint32_t>(random() % longest));
      const std::uint64_t ns = PredictedNs(kernel.cost);
      const Marking marking = stream.Mark(kernel.cost, interval);
      if (marking.marker) {
        since = 0;
        kernels = 0;
        ++markers;
      }
      since += ns;
      total += ns;
      ++kernels;
      ASSERT_TRUE(since <= interval || kernels == 1) << "round " << round << ", launch " << i;
    }
    // Nor more than needed: two stretches that follow each other are longer than one interval.
    EXPECT_LE(markers, 2 * static_cast<std::int64_t>(total / interval) + 2) << "round " << round;
  }
}

TEST(MarkingTest, WorkOfAllStreamsBetweenTheirMarkersIsBounded) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 200; ++round) {
    const std::size_t streams = 1 + random() % kMostSpread;
    std::vector<StreamGauge> gauges(streams);
    StreamSpread spread{};
    std::vector<std::uint64_t> since(streams);
    const std::uint32_t longest = 1'000 + static_cast<std::uint32_t>(random() % 24'000);
    std::uint64_t total = 0;
    for (int i = 0; i < 4'000; ++i) {
      // In turns of a few kernels, as a program does that splits its work.
      const std::size_t at = i / 4 % streams;
      const Kernel kernel(1 + static_cast<std::uint32_t>(random() % longest));
      const std::uint64_t ns = PredictedNs(kernel.cost);
      if (Mark(gauges[at], spread, kernel.cost, kMarkerIntervalNs).marker) since[at] = 0;
      since[at] += ns;
      total += ns;
      if (total < std::uint64_t{4} * kSpreadRoundNs) continue;  // It has to be seen first.
      std::uint64_t in_flight = 0;
      for (const std::uint64_t one : since) in_flight += one;
      // Work is spread a little unevenly, and the spread rounded: three streams may count as two.
      ASSERT_LE(in_flight, kMarkerIntervalNs * 3 / 2 + streams * longest)
          << "round " << round << ": " << streams;
    }
  }
}

TEST(MarkingTest, AStreamWithLittleInItCostsTheOthersNoMarkers) {
  const Kernel kernel(10'000);
  StreamGauge side{};
  const auto markers = [&](bool with_side) {
    OneStream main;
    int count = 0;
    for (int i = 0; i < 10'000; ++i) {
      if (with_side && i % 16 == 0)
        static_cast<void>(Mark(side, main.spread, kernel.cost, kMarkerIntervalNs));
      count += main.Mark(kernel.cost, kMarkerIntervalNs).marker ? 1 : 0;
    }
    return count;
  };
  EXPECT_EQ(markers(true), markers(false));
}

TEST(MarkingTest, WhenOneStreamIsLeftItsStretchesAreWholeAgain) {
  const Kernel kernel(10'000);
  OneStream main;
  StreamGauge other{};
  for (int i = 0; i < 1'000; ++i) {
    static_cast<void>(Mark(other, main.spread, kernel.cost, kMarkerIntervalNs));
    static_cast<void>(main.Mark(kernel.cost, kMarkerIntervalNs));
  }
  EXPECT_EQ(main.spread.streams.load(), 2U);
  int markers = 0;
  for (int i = 0; i < 1'000; ++i)
    markers += main.Mark(kernel.cost, kMarkerIntervalNs).marker ? 1 : 0;
  EXPECT_EQ(main.spread.streams.load(), 1U);
  // 10 ms of work, a hundred stretches, but for the first millisecond.
  EXPECT_LE(markers, 125);
}

TEST(MarkingTest, AfterALongKernelComesAMarker) {
  OneStream stream;
  const Kernel long_kernel(10 * kMarkerIntervalNs);
  const Kernel short_kernel(10);
  EXPECT_TRUE(stream.Mark(long_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_TRUE(stream.Mark(short_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_FALSE(stream.Mark(short_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_TRUE(stream.Mark(long_kernel.cost, kMarkerIntervalNs).marker);
}

TEST(MarkingTest, AShorterIntervalThanWhatRanAlreadyMarksAtOnce) {
  OneStream stream;
  const Kernel kernel(80'000);
  EXPECT_TRUE(stream.Mark(kernel.cost, 300'000).marker);
  EXPECT_FALSE(stream.Mark(kernel.cost, 300'000).marker);
  EXPECT_TRUE(stream.Mark(Kernel(1).cost, 100'000).marker);
}

TEST(MarkingTest, CollectiveOperationsAreNeverMarked) {
  std::mt19937_64 random(5);
  OneStream stream;
  for (int i = 0; i < 1000; ++i) {
    const auto ns = static_cast<std::uint32_t>(random() % 10'000'000);
    EXPECT_FALSE(stream.Mark(Kernel(ns, 1000, true).cost, kMarkerIntervalNs).marker);
    static_cast<void>(stream.Mark(Kernel(ns).cost, kMarkerIntervalNs));
  }
}

TEST(MarkingTest, ALevelLetsInWhatIsNoLongerThanItsOwn) {
  std::mt19937_64 random(13);
  for (int i = 0; i < 10'000; ++i) {
    const auto shorter = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    const auto longer = static_cast<std::uint32_t>(random() >> (32 + random() % 32));
    if (shorter > longer) continue;
    ASSERT_LE(ClassOf(shorter), ClassOf(longer)) << shorter << " and " << longer;
  }
  EXPECT_EQ(ClassOf(0), kLightClass + 1);
  EXPECT_EQ(ClassOf(16'000), kLightClass + 1);
  EXPECT_EQ(ClassOf(16'001), kLightClass + 2);
  EXPECT_EQ(ClassOf(32'000), kLightClass + 2);
  EXPECT_EQ(ClassOf(32'001), kLightClass + 3);
  EXPECT_LT(ClassOf(UINT32_MAX), kOpen) << "an open gate lets everything in";
  EXPECT_GT(kLightClass, kClosed) << "a closed one nothing, light or not";
}

TEST(MarkingTest, AMarkerHasTheClassOfItsKernel) {
  const auto class_of = [](const Kernel& kernel) {
    OneStream stream;
    return stream.Mark(kernel.cost, kMarkerIntervalNs).job_class;
  };
  EXPECT_EQ(class_of(Kernel(kLightNs, kLightFill)), kLightClass);
  EXPECT_EQ(class_of(Kernel(kLightNs, kLightFill + 1)), ClassOf(kLightNs));
  EXPECT_EQ(class_of(Kernel(1'000'000, 1)), ClassOf(1'000'000));
  EXPECT_EQ(class_of(Kernel(0, 1)), ClassOf(kUnknownNs));
}

TEST(MarkingTest, MarkersAreFurtherApartWhereLatencyJobsLeaveRoom) {
  EXPECT_EQ(MarkerIntervalNs(0), kMarkerIntervalNs);
  for (std::uint32_t openness = 1; openness <= kNoProtection; ++openness) {
    EXPECT_GE(MarkerIntervalNs(openness), MarkerIntervalNs(openness - 1));
  }
  EXPECT_GT(MarkerIntervalNs(kNoProtection), kMarkerIntervalNs);
}

}  // namespace
}  // namespace divvy::gate
