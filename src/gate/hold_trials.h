#pragma once

// Whether holding the GPU between requests in a row is worth it. What a GPU does with a process
// that has little to run is written down nowhere and differs, so both ways are tried and the one is
// kept in which requests in a row are faster; the other is tried again every now and then.

#include <cstdint>

namespace divvy::gate {

class HoldTrials {
 public:
  // A request that came right behind another took `ns`; the GPU was held between the two, or not.
  void Add(bool held, std::uint64_t ns);
  // Any other request took `ns`; a hold was begun before its end, in which it may have been in the
  // way, or not.
  void AddBearer(bool bore, std::uint64_t ns);

  // Of requests that came right behind another, held or not: how many, and the median of the last.
  [[nodiscard]] std::uint32_t Count(bool held) const { return ways_[held ? 1 : 0].count; }
  [[nodiscard]] std::uint64_t MedianNs(bool held) const { return ways_[held ? 1 : 0].Median(); }

  // Whether to hold the GPU behind the request that is being submitted.
  [[nodiscard]] bool Next();

 private:
  static constexpr std::uint32_t kKept = 8;
  static constexpr std::uint32_t kEnough = 4;
  static constexpr std::uint32_t kTryOtherEvery = 64;
  // Requests of which none came right behind another: there is nothing to win.
  static constexpr std::uint32_t kNoneInARow = 64;

  struct Way {
    std::uint64_t ns[kKept] = {};
    std::uint32_t count = 0;

    [[nodiscard]] std::uint64_t Median() const;  // 0 if there are none
  };

  Way ways_[2];     // not held, held
  Way bearers_[2];  // bore none, bore one
  std::uint32_t asked_ = 0;
};

}  // namespace divvy::gate
