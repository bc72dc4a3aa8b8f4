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
    std::vector<TimePoint> plain(size, TimePoint::max());
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

}  // namespace
}  // namespace divvy::serving
