#include "serving/least.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/random.h"

namespace divvy::serving {
namespace {

TEST(LeastTest, AgreesWithAScan) {
  Random random(11);
  for (const std::size_t size : {1U, 5U, 63U, 64U, 65U, 200U}) {
    Least least(size);
    std::vector<TimePoint> plain;
    for (std::size_t i = 0; i < size; ++i) {
      least.Insert(i, TimePoint::max());
      plain.push_back(TimePoint::max());
    }
    for (int step = 0; step < 3000; ++step) {
      const std::size_t index = random.Below(size);
      // Few values, so that ties are common.
      const TimePoint value(Duration(static_cast<Duration::rep>(random.Below(20))));
      least.Set(index, value);
      plain[index] = value;
      const auto expected = std::ranges::min_element(plain) - plain.begin();
      ASSERT_EQ(least.Index(), static_cast<std::size_t>(expected)) << size << " step " << step;
    }
  }
}

TEST(LeastTest, AgreesWithAScanWhileTimesComeAndGo) {
  Random random(12);
  Least least(200);
  std::vector<TimePoint> plain;
  for (int step = 0; step < 20000; ++step) {
    // Now more come than go, now more go than come.
    const bool grow = random.Below(10) < (step / 500 % 2 == 0 ? 7U : 3U);
    const TimePoint value(Duration(static_cast<Duration::rep>(random.Below(20))));
    if (grow && plain.size() < 200) {
      const std::size_t index = random.Below(plain.size() + 1);
      least.Insert(index, value);
      plain.insert(plain.begin() + static_cast<std::ptrdiff_t>(index), value);
    } else if (!plain.empty()) {
      const std::size_t index = random.Below(plain.size());
      least.Erase(index);
      plain.erase(plain.begin() + static_cast<std::ptrdiff_t>(index));
    }
    if (plain.empty()) continue;
    const std::size_t index = random.Below(plain.size());
    least.Set(index, value);
    plain[index] = value;
    ASSERT_EQ(least.size(), plain.size());
    const auto expected = std::ranges::min_element(plain) - plain.begin();
    ASSERT_EQ(least.Index(), static_cast<std::size_t>(expected)) << "step " << step;
  }
}

}  // namespace
}  // namespace divvy::serving
