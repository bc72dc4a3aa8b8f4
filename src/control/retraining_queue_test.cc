#include "control/retraining_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace divvy::control {
namespace {

// Gains that fall evenly to the end of the window.
struct RandomQueue {
  QueueProblem problem;
  std::vector<double> work;  // By tenant and option, of two.
  std::vector<double> worth;
  std::vector<double> speed;  // By place.

  RandomQueue(std::uint64_t seed, std::size_t tenants, std::size_t places) {
    Random random(seed);
    problem.slots = 50;
    problem.options = 2;
    for (std::size_t m = 0; m < tenants; ++m) {
      problem.tenants.push_back(m);
      work.push_back(5 + 20 * random.Uniform());
      work.push_back(work.back() * 2);
      worth.push_back(random.Uniform());
      worth.push_back(worth.back() * (1 + random.Uniform()));
    }
    for (std::size_t p = 0; p < places; ++p) {
      speed.push_back(0.5 + random.Uniform());
      problem.free_at.push_back(random.Uniform() < 0.5 ? 0 : 10 * random.Uniform());
    }
    problem.takes = [this](std::size_t m, std::size_t option, std::size_t place) {
      return work[2 * m + option] / speed[place];
    };
    problem.gain = [this](std::size_t m, std::size_t option, int end) {
      return worth[2 * m + option] * (problem.slots - end);
    };
  }
  RandomQueue(const RandomQueue&) = delete;
  RandomQueue& operator=(const RandomQueue&) = delete;
};

// Every tenant on every place in every order.
double BruteForce(const QueueProblem& problem, std::vector<double> free_at,
                  std::vector<std::size_t> tenants) {
  double best = 0;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    std::vector<std::size_t> others = tenants;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    for (std::size_t place = 0; place < free_at.size(); ++place) {
      for (std::size_t option = 0; option < problem.options; ++option) {
        const double takes = problem.takes(tenants[i], option, place);
        const int end = static_cast<int>(std::ceil(free_at[place] + takes));
        if (end > problem.slots) continue;
        std::vector<double> later = free_at;
        later[place] = end;
        best = std::max(best,
                        problem.gain(tenants[i], option, end) + BruteForce(problem, later, others));
      }
    }
  }
  return best;
}

TEST(RetrainingQueueTest, EqualsBruteForceOnSmallOnes) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const RandomQueue random(seed, 1 + seed % 3, 1 + seed % 2);
    const QueueProblem& problem = random.problem;
    EXPECT_NEAR(BestQueue(problem).gain, BruteForce(problem, problem.free_at, problem.tenants),
                1e-9)
        << seed;
  }
}

TEST(RetrainingQueueTest, EndsInTheWindowOneAfterAnother) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const RandomQueue random(seed, 7, 2);
    const RetrainingQueue queue = BestQueue(random.problem);
    std::vector<double> free_at = random.problem.free_at;
    std::vector<int> times(7);
    double gain = 0;
    for (const QueuedRetraining& next : queue.retrainings) {
      EXPECT_EQ(next.begin, free_at[next.place]);
      EXPECT_GE(next.end,
                next.begin + random.problem.takes(next.tenant, next.option, next.place) - 1e-6);
      EXPECT_LE(next.end, random.problem.slots);
      EXPECT_EQ(++times[next.tenant], 1);
      free_at[next.place] = next.end;
      gain += random.problem.gain(next.tenant, next.option, next.end);
    }
    EXPECT_NEAR(queue.gain, gain, 1e-9);
  }
}

TEST(RetrainingQueueTest, ALongOptionIsTakenWhenItGainsMoreInAll) {
  QueueProblem problem{100, {0}, {0}, 2, {}, {}};
  problem.takes = [](std::size_t, std::size_t option, std::size_t) { return option == 0 ? 5 : 40; };
  problem.gain = [](std::size_t, std::size_t option, int end) {
    return (option == 0 ? 1.0 : 3.0) * (100 - end);
  };
  ASSERT_EQ(BestQueue(problem).retrainings.size(), 1U);
  EXPECT_EQ(BestQueue(problem).retrainings.front().option, 1U);
}

TEST(RetrainingQueueTest, NoPlacesNoRetrainings) {
  RandomQueue random(1, 3, 1);
  random.problem.free_at.clear();
  EXPECT_TRUE(BestQueue(random.problem).retrainings.empty());
}

}  // namespace
}  // namespace divvy::control
