#include "serving/request_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/random.h"

namespace divvy::serving {
namespace {

TEST(RequestQueueTest, KeepsOrderOfKeyThenOfInsertionUnderRandomWork) {
  Random random(2);
  RequestPool pool;
  RequestQueue queue;
  std::vector<SlotIndex> plain;  // In the queue's order.
  std::uint64_t tag = 0;
  for (int step = 0; step < 5000; ++step) {
    if (plain.empty() || random.Below(2) == 0) {
      const TimePoint key(Duration(static_cast<Duration::rep>(random.Below(10))));
      const SlotIndex slot = pool.Take({.tag = tag++, .batch = 2}, key);
      queue.Insert(pool, slot, Duration(3));
      const auto place =
          std::ranges::find_if(plain, [&](SlotIndex s) { return pool[s].key > key; });
      plain.insert(place, slot);
    } else {
      const std::size_t i = random.Below(plain.size());
      queue.Remove(pool, plain[i], Duration(3));
      pool.Give(plain[i]);
      plain.erase(plain.begin() + static_cast<long>(i));
    }
    std::vector<SlotIndex> walked;
    for (SlotIndex s = queue.head(); s != kNoSlot; s = pool[s].next) walked.push_back(s);
    ASSERT_EQ(walked, plain) << "step " << step;
    ASSERT_EQ(queue.size(), static_cast<int>(plain.size()));
    ASSERT_EQ(queue.items(), 2 * queue.size());
    ASSERT_EQ(queue.work(), Duration(3) * queue.size());
  }
}

}  // namespace
}  // namespace divvy::serving
