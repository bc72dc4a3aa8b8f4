#include "gate/patience.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace divvy::gate {
namespace {

constexpr std::uint64_t kRequestNs = 2'500'000;

// `requests` of kRequestNs and, while it is patient, of what `delay_ns` adds to each.
template <typename Delay>
void Serve(Patience& patience, int requests, Delay delay_ns) {
  for (int i = 0; i < requests; ++i)
    patience.Add(kRequestNs + (patience.IsPatient() ? delay_ns() : 0));
}

TEST(PatienceTest, IsPatientOnceItKnowsWhatIsUsual) {
  Patience patience;
  // A start kernel by kernel is no reason for impatience.
  for (int i = 0; i < 10; ++i) patience.Add(10 * kRequestNs);
  EXPECT_FALSE(patience.IsPatient());
  Serve(patience, 16, [] { return 0; });
  EXPECT_TRUE(patience.IsPatient());
  EXPECT_EQ(patience.Count(), 26U);
}

TEST(PatienceTest, BlocksOfSomeHundredMicrosecondsNowAndThenAreWaitedForAlways) {
  std::mt19937 random(1);
  Patience patience;
  Serve(patience, 5'000, [&] { return random() % 10 == 0 ? 600'000U : random() % 100'000; });
  EXPECT_GT(patience.PatientCount(), 4'950U);
}

TEST(PatienceTest, LongBlocksAreWaitedForWithinTheBudget) {
  std::mt19937 random(2);
  Patience patience;
  std::uint64_t waited = 0;
  Serve(patience, 10'000, [&] {
    const std::uint64_t delay = random() % 5 == 0 ? 2'000'000U : 0;
    waited += delay;
    return delay;
  });
  // An income of a thirty-second part of each request, and what there was at the start.
  EXPECT_LT(waited, kRequestNs * (10'000 / 32 + 9));
  EXPECT_GT(waited, kRequestNs * (10'000 / 40));
  EXPECT_LT(patience.PatientCount(), 3'000U);
  EXPECT_GT(patience.PatientCount(), 1'000U);
}

TEST(PatienceTest, BlocksThatNeverSeemToEndDelayVeryFewRequests) {
  Patience patience;
  Serve(patience, 10'000, [] { return 100 * kRequestNs; });
  EXPECT_LT(patience.PatientCount(), 50U);  // p99 is not theirs
  EXPECT_GT(patience.PatientCount(), 10U) << "the training job may have changed";
}

TEST(PatienceTest, AlwaysBeingLateDoesNotBecomeUsual) {
  Patience patience;
  Serve(patience, 10'000, [] { return kRequestNs / 2; });
  EXPECT_LT(patience.PatientCount(), 1'500U);
}

TEST(PatienceTest, RequestsThatHaveBecomeLongerByThemselvesAreUsualAfterAWhile) {
  Patience patience;
  Serve(patience, 100, [] { return 0; });
  ASSERT_TRUE(patience.IsPatient());
  for (int i = 0; i < 1'000; ++i) patience.Add(3 * kRequestNs);
  EXPECT_TRUE(patience.IsPatient());
}

TEST(PatienceTest, NoTimeIsTooShortOrTooLong) {
  Patience patience;
  for (int i = 0; i < 100; ++i) patience.Add(0);
  for (const std::uint64_t ns : {std::uint64_t{1}, UINT64_MAX / 16'000, std::uint64_t{0}}) {
    for (int i = 0; i < 100; ++i) patience.Add(ns);
  }
  EXPECT_EQ(patience.Count(), 400U);
}

}  // namespace
}  // namespace divvy::gate
