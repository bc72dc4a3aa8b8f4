#include "gate/slo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "gate/board.h"

namespace divvy::gate {
namespace {

TEST(RequestTimesTest, QuantilesAreThoseOfTheSortedTimes) {
  std::mt19937_64 random(31);
  for (int round = 0; round < 300; ++round) {
    RequestTimes times;
    std::vector<std::uint64_t> all;
    const auto count = random() % 600;
    for (std::uint64_t i = 0; i < count; ++i) {
      all.push_back(random() % 1000);
      times.Add(all.back());
    }
    ASSERT_EQ(times.Count(), count);
    const auto among = 1 + static_cast<std::uint32_t>(random() % 400);
    const std::size_t kept = std::min<std::size_t>({all.size(), among, RequestTimes::kKept});
    std::vector<std::uint64_t> last(all.end() - static_cast<std::ptrdiff_t>(kept), all.end());
    std::ranges::sort(last);
    for (const std::uint32_t thousandths : {0U, 500U, 990U, 1000U}) {
      const std::uint64_t expected =
          last.empty() ? 0 : last[std::min(last.size() - 1, last.size() * thousandths / 1000)];
      ASSERT_EQ(times.Quantile(thousandths, among), expected)
          << thousandths << " of " << kept << " in round " << round;
    }
  }
}

TEST(RequestTimesTest, MayBeReadWhileTheyAreWritten) {
  constexpr std::uint64_t kCount = 20'000;
  RequestTimes times;
  std::thread writer([&] {
    for (std::uint64_t i = 1; i <= kCount; ++i) times.Add(i);
  });
  std::uint64_t last = 0;
  while (times.Count() < kCount) {
    const std::uint64_t most = times.Quantile(1000);
    EXPECT_GE(most, last);
    EXPECT_LE(most, kCount);
    last = most;
  }
  writer.join();
  EXPECT_EQ(times.Quantile(1000), kCount);
}

// A service whose requests take longer the more the gate is open, with noise, in nanoseconds.
class Service {
 public:
  Service(std::uint64_t seed, double noise) : random_(seed), noise_(noise) {}

  double Uniform() { return static_cast<double>(random_() >> 11) * 0x1.0p-53; }
  double Noise() {
    const double normal =
        std::sqrt(-2 * std::log(1 - Uniform())) * std::cos(6.283185307 * Uniform());
    return std::exp(noise_ * normal);
  }
  double Tail() const { return std::exp(2.326 * noise_); }  // 99th percentile of the noise.

 private:
  std::mt19937_64 random_;
  double noise_;
};

struct Outcome {
  double late = 0;      // share of the requests
  double openness = 0;  // mean
};

// Runs the control on requests of the given time at each openness. The first count for nothing.
class Loop {
 public:
  explicit Loop(double slo_ns) : slo_ns_(slo_ns), control_(static_cast<std::uint64_t>(slo_ns)) {}

  Outcome Run(int settle, int count, const std::function<double(std::uint32_t)>& request_ns) {
    Outcome outcome;
    for (int i = 0; i < settle + count; ++i) {
      const double ns = request_ns(control_.Openness());
      times_.Add(static_cast<std::uint64_t>(ns));
      control_.Step(times_);
      EXPECT_LE(control_.Openness(), kNoProtection);
      if (i < settle) continue;
      outcome.late += ns > slo_ns_ ? 1.0 / count : 0;
      outcome.openness += static_cast<double>(control_.Openness()) / count;
    }
    return outcome;
  }

 private:
  double slo_ns_;
  RequestTimes times_;
  SloControl control_;
};

TEST(SloControlTest, OpensInTwoStepsWhereThereIsMuchRoom) {
  SloControl control(16'000);
  RequestTimes times;
  int requests = 0;
  while (control.Openness() < kNoProtection && requests < 1000) {
    times.Add(requests % 16 == 0 ? 5'200 : 2'900);
    control.Step(times);
    ++requests;
  }
  EXPECT_EQ(requests, 32);
}

TEST(SloControlTest, BeginsWithFullProtectionAndWaitsForEvidence) {
  SloControl control(10'000);
  RequestTimes times;
  EXPECT_EQ(control.Openness(), 0U);
  for (int i = 0; i < 100; ++i) control.Step(times);
  EXPECT_EQ(control.Openness(), 0U) << "no request, no step";
  for (int i = 0; i < 15; ++i) times.Add(1);
  for (int i = 0; i < 100; ++i) control.Step(times);
  EXPECT_EQ(control.Openness(), 0U) << "one lucky request proves nothing";
  times.Add(1);
  control.Step(times);
  EXPECT_GT(control.Openness(), 0U);
}

TEST(SloControlTest, KeepsTheSloAndUsesMostOfTheRoom) {
  std::mt19937_64 random(41);
  double used = 0;
  int cases = 0;
  for (int round = 0; round < 150; ++round) {
    Service service(random(), 0.02 + 0.0001 * static_cast<double>(random() % 1500));
    const double base = 1e6 * (1 + 19 * service.Uniform());
    const double slope = base * (0.1 + 5 * service.Uniform());
    const double slo = base * service.Tail() * (1.2 + 4 * service.Uniform());
    const double best =
        std::clamp((slo / service.Tail() - base) / slope * kNoProtection, 1.0, 1000.0);
    Loop loop(slo);
    const Outcome outcome = loop.Run(500, 2000, [&](std::uint32_t openness) {
      return (base + slope * openness / kNoProtection) * service.Noise();
    });
    EXPECT_LT(outcome.late, 0.01) << "round " << round;
    used += outcome.openness / best;
    ++cases;
  }
  EXPECT_GT(used / cases, 0.6) << "of the openness that would just keep the SLO";
}

TEST(SloControlTest, KeepsTheSloBesideACliff) {
  // Nothing warns: up to some openness all is well, beyond it every request is late.
  std::mt19937_64 random(43);
  double used = 0;
  for (int round = 0; round < 60; ++round) {
    Service service(random(), 0.05);
    const double cliff = 1000 * service.Uniform();
    Loop loop(10e6);
    const Outcome outcome = loop.Run(1500, 4000, [&](std::uint32_t openness) {
      return (openness > cliff ? 20e6 : 5e6) * service.Noise();
    });
    EXPECT_LT(outcome.late, 0.01) << "cliff at " << cliff;
    used += outcome.openness / cliff;
  }
  EXPECT_GT(used / 60, 0.6);
}

TEST(SloControlTest, ALateRequestForReasonsOfItsOwnDoesNotCloseTheGate) {
  Service service(47, 0.05);
  Loop loop(10e6);
  const Outcome outcome = loop.Run(1000, 5000, [&](std::uint32_t) {
    return service.Uniform() < 0.003 ? 15e6 : 4e6 * service.Noise();
  });
  EXPECT_GT(outcome.openness, 500);
}

TEST(SloControlTest, OpensFullyWhereTheSloIsLoose) {
  Service service(51, 0.1);
  Loop loop(50e6);
  const Outcome outcome = loop.Run(1000, 500, [&](std::uint32_t openness) {
    return (5e6 + 5e6 * openness / kNoProtection) * service.Noise();
  });
  EXPECT_EQ(outcome.openness, kNoProtection);
  EXPECT_EQ(outcome.late, 0);
}

TEST(SloControlTest, SlowRequestsOfAColdStartDoNotKeepItClosed) {
  // A program's first requests compile and load; the gate was closed, so it is not to blame.
  Service service(59, 0.1);
  Loop loop(16e6);
  static_cast<void>(loop.Run(12, 0, [&](std::uint32_t) { return 200e6 * service.Noise(); }));
  const Outcome outcome = loop.Run(200, 300, [&](std::uint32_t openness) {
    return (2.5e6 + 4e6 * openness / kNoProtection) * service.Noise();
  });
  EXPECT_GT(outcome.openness, 999);
}

TEST(SloControlTest, GivesFullProtectionWhereTheSloIsImpossible) {
  Service service(53, 0.1);
  Loop loop(3e6);
  const Outcome outcome = loop.Run(0, 2000, [&](std::uint32_t) { return 5e6 * service.Noise(); });
  EXPECT_EQ(outcome.openness, 0);
}

TEST(SloControlTest, ClosesSoonWhenTheLoadGrowsAndOpensAgainWhenItFalls) {
  Service service(57, 0.05);
  Loop loop(20e6);
  const auto light = [&](std::uint32_t openness) {
    return (5e6 + 5e6 * openness / kNoProtection) * service.Noise();
  };
  const auto heavy = [&](std::uint32_t openness) {
    return (12e6 + 60e6 * openness / kNoProtection) * service.Noise();
  };
  EXPECT_GT(loop.Run(1000, 200, light).openness, 900);
  const Outcome grown = loop.Run(64, 2000, heavy);
  EXPECT_LT(grown.late, 0.01);
  EXPECT_LT(grown.openness, 200);
  EXPECT_GT(loop.Run(2000, 200, light).openness, 900);
}

}  // namespace
}  // namespace divvy::gate
