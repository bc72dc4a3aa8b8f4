#include "gate/marking.h"

#include <gtest/gtest.h>

#include <random>

#include "gate/board.h"

namespace divvy::gate {
namespace {

// A kernel that takes `ns` and fills `fill` thousandths of the GPU.
struct Kernel {
  explicit Kernel(std::uint32_t ns, std::uint16_t fill = 1000, bool exempt = false) {
    if (ns != 0) Learn(cost, ns);
    cost.fill.store(fill);
    cost.exempt.store(exempt ? 1 : 0);
  }
  Cost cost{};
};

TEST(MarkingTest, TheFirstLaunchOfAStreamIsMarked) {
  StreamGauge gauge{};
  EXPECT_TRUE(Mark(gauge, Kernel(1).cost, kMarkerIntervalNs).marker);
  EXPECT_FALSE(Mark(gauge, Kernel(1).cost, kMarkerIntervalNs).marker);
}

TEST(MarkingTest, WorkBetweenMarkersIsBounded) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    StreamGauge gauge{};
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
      const Marking marking = Mark(gauge, kernel.cost, interval);
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

TEST(MarkingTest, AfterALongKernelComesAMarker) {
  StreamGauge gauge{};
  const Kernel long_kernel(10 * kMarkerIntervalNs);
  const Kernel short_kernel(10);
  EXPECT_TRUE(Mark(gauge, long_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_TRUE(Mark(gauge, short_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_FALSE(Mark(gauge, short_kernel.cost, kMarkerIntervalNs).marker);
  EXPECT_TRUE(Mark(gauge, long_kernel.cost, kMarkerIntervalNs).marker);
}

TEST(MarkingTest, AShorterIntervalThanWhatRanAlreadyMarksAtOnce) {
  StreamGauge gauge{};
  const Kernel kernel(80'000);
  EXPECT_TRUE(Mark(gauge, kernel.cost, 300'000).marker);
  EXPECT_FALSE(Mark(gauge, kernel.cost, 300'000).marker);
  EXPECT_TRUE(Mark(gauge, Kernel(1).cost, 100'000).marker);
}

TEST(MarkingTest, CollectiveOperationsAreNeverMarked) {
  std::mt19937_64 random(5);
  StreamGauge gauge{};
  for (int i = 0; i < 1000; ++i) {
    const auto ns = static_cast<std::uint32_t>(random() % 10'000'000);
    EXPECT_FALSE(Mark(gauge, Kernel(ns, 1000, true).cost, kMarkerIntervalNs).marker);
    static_cast<void>(Mark(gauge, Kernel(ns).cost, kMarkerIntervalNs));
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
    StreamGauge gauge{};
    return Mark(gauge, kernel.cost, kMarkerIntervalNs).job_class;
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
