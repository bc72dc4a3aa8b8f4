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
    patience.Add(kRequestNs + (patience.IsPatient() ? delay_ns() : 0), /*in_a_row=*/false);
}

TEST(PatienceTest, IsPatientOnceItKnowsWhatIsUsual) {
  Patience patience;
  // A start kernel by kernel is no reason for impatience.
  for (int i = 0; i < 10; ++i) patience.Add(10 * kRequestNs, false);
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

TEST(PatienceTest, ManyOfThemAreWaitedForWithinTheBudget) {
  std::mt19937 random(2);
  Patience patience;
  std::uint64_t waited = 0;
  Serve(patience, 10'000, [&] {
    const std::uint64_t delay = random() % 4 == 0 ? 0U : 500'000U;
    waited += delay;
    return delay;
  });
  // An income of a sixteenth part of each request, and what there was at the start.
  EXPECT_LT(waited, kRequestNs * (10'000 / 16 + 5));
  EXPECT_GT(waited, kRequestNs * (10'000 / 20));
  EXPECT_GT(patience.PatientCount(), 3'000U);
  EXPECT_LT(patience.PatientCount(), 5'000U);
}

TEST(PatienceTest, LongBlocksDelayVeryFewRequestsHoweverLongTheyAre) {
  for (const std::uint64_t delay : {kRequestNs / 3, kRequestNs, 100 * kRequestNs}) {
    for (const unsigned one_in : {1U, 5U}) {
      std::mt19937 random(3);
      Patience patience;
      int delayed = 0;
      Serve(patience, 10'000, [&]() -> std::uint64_t {
        if (random() % one_in != 0) return 0;
        ++delayed;
        return delay;
      });
      EXPECT_LT(delayed, 50) << "p99 is not theirs";
      EXPECT_GT(delayed, 30) << "the training job may have changed";
    }
  }
}

TEST(PatienceTest, AlwaysBeingLateDoesNotBecomeUsual) {
  Patience patience;
  Serve(patience, 10'000, [] { return kRequestNs / 2; });
  EXPECT_LT(patience.PatientCount(), 50U);
}

TEST(PatienceTest, RequestsThatAreLateByThemselvesAreNotHeldAgainstItForLong) {
  std::mt19937 random(4);
  Patience patience;
  for (int i = 0; i < 10'000; ++i) patience.Add(kRequestNs * (random() % 500 == 0 ? 2 : 1), false);
  EXPECT_GT(patience.PatientCount(), 5'500U);
}

TEST(PatienceTest, RequestsThatHaveBecomeLongerByThemselvesAreUsualAfterAWhile) {
  Patience patience;
  Serve(patience, 100, [] { return 0; });
  ASSERT_TRUE(patience.IsPatient());
  for (int i = 0; i < 1'000; ++i) patience.Add(3 * kRequestNs, false);
  EXPECT_TRUE(patience.IsPatient());
}

TEST(PatienceTest, RequestsInARowArePaidForAndTeachNothing) {
  // The GPU still theirs: they are faster than what the first ones take.
  Patience patience;
  for (int i = 0; i < 1'000; ++i) patience.Add(kRequestNs / 2, true);
  EXPECT_FALSE(patience.IsPatient()) << "what is usual is not known";
  Serve(patience, 100, [] { return 0; });
  for (int i = 0; i < 1'000; ++i) patience.Add(kRequestNs / 2, true);
  Serve(patience, 10, [] { return kRequestNs / 20; });
  EXPECT_TRUE(patience.IsPatient()) << "half a request has become usual";
  // Blocks that last longer than requests are apart: none but the first comes after a rest.
  for (int i = 0; i < 4; ++i) patience.Add(100 * kRequestNs, true);
  EXPECT_FALSE(patience.IsPatient());
}

TEST(PatienceTest, NoTimeIsTooShortOrTooLong) {
  Patience patience;
  for (int i = 0; i < 100; ++i) patience.Add(0, false);
  for (const std::uint64_t ns : {std::uint64_t{1}, UINT64_MAX / 16'000, std::uint64_t{0}}) {
    for (int i = 0; i < 100; ++i) patience.Add(ns, false);
  }
  EXPECT_EQ(patience.Count(), 400U);
}

}  // namespace
}  // namespace divvy::gate
