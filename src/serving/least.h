#pragma once

#include <cstddef>
#include <limits>
#include <vector>

#include "base/time.h"

namespace divvy::serving {

// Times by index, and which is the earliest. A scan of all is fastest for a few
// dozen, so blocks of 64 keep their minimum and a scan goes over those first: ten
// thousand GPUs cost a microsecond, not a tree's pointer chase for everybody.
// Within the room given at first, nothing allocates. Not thread-safe.
class Least {
 public:
  explicit Least(std::size_t room) {
    values_.reserve(room);
    minima_.reserve((room + kBlock - 1) / kBlock);
  }

  std::size_t size() const { return values_.size(); }
  TimePoint operator[](std::size_t index) const { return values_[index]; }

  void Set(std::size_t index, TimePoint value) {
    const TimePoint old = values_[index];
    values_[index] = value;
    TimePoint& minimum = minima_[index / kBlock];
    if (value <= minimum) {
      minimum = value;
    } else if (old == minimum) {
      minimum = values_[FirstLeast(values_, index / kBlock * kBlock, End(index / kBlock))];
    }
  }

  // Those at `index` and after it move up, or down again. A whole scan: times come and go
  // far less often than they are set.
  void Insert(std::size_t index, TimePoint value) {
    values_.insert(values_.begin() + static_cast<std::ptrdiff_t>(index), value);
    FindMinima(index / kBlock);
  }
  void Erase(std::size_t index) {
    values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(index));
    FindMinima(index / kBlock);
  }

  // The first index with the earliest time. REQUIRES: size() > 0.
  [[nodiscard]] std::size_t Index() const {
    const std::size_t block = FirstLeast(minima_, 0, minima_.size());
    return FirstLeast(values_, block * kBlock, End(block));
  }

 private:
  static constexpr std::size_t kBlock = 64;

  std::size_t End(std::size_t block) const {
    const std::size_t end = (block + 1) * kBlock;
    return end < values_.size() ? end : values_.size();
  }

  // From a block on.
  void FindMinima(std::size_t block) {
    minima_.resize((values_.size() + kBlock - 1) / kBlock);
    for (; block < minima_.size(); ++block) {
      minima_[block] = values_[FirstLeast(values_, block * kBlock, End(block))];
    }
  }

  static std::size_t FirstLeast(const std::vector<TimePoint>& times, std::size_t from,
                                std::size_t to) {
    std::size_t least = from;
    TimePoint earliest = times[from];
    for (std::size_t i = from + 1; i < to; ++i) {
      if (times[i] < earliest) {
        earliest = times[i];
        least = i;
      }
    }
    return least;
  }

  std::vector<TimePoint> values_;
  std::vector<TimePoint> minima_;
};

}  // namespace divvy::serving
