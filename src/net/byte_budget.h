#pragma once

#include <cstddef>

namespace divvy::net {

// How many bytes of other people's may be held at a time. Shared by all who hold some: servers
// count what has come of messages that are not whole, and whoever they hand them to counts on. For
// the loop's thread.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t most) : most_(most) {}

  // False, and nothing is taken, when there would be too many.
  [[nodiscard]] bool Take(std::size_t bytes) {
    if (bytes > most_ - taken_) return false;
    taken_ += bytes;
    return true;
  }
  // REQUIRES: they were taken.
  void GiveBack(std::size_t bytes) { taken_ -= bytes; }

  std::size_t most() const { return most_; }
  std::size_t taken() const { return taken_; }

 private:
  std::size_t most_;
  std::size_t taken_ = 0;
};

// What one holder has of a budget, if there is one; given back when it goes.
class BudgetShare {
 public:
  explicit BudgetShare(ByteBudget* budget) : budget_(budget) {}
  ~BudgetShare() { (void)Set(0); }
  BudgetShare(const BudgetShare&) = delete;
  BudgetShare& operator=(const BudgetShare&) = delete;

  // It holds so many bytes now. False: those that are more than before are too many; they are not
  // counted.
  [[nodiscard]] bool Set(std::size_t bytes) {
    if (budget_ == nullptr || bytes == held_) return true;
    if (bytes > held_ && !budget_->Take(bytes - held_)) return false;
    if (bytes < held_) budget_->GiveBack(held_ - bytes);
    held_ = bytes;
    return true;
  }

 private:
  ByteBudget* budget_;
  std::size_t held_ = 0;
};

}  // namespace divvy::net
