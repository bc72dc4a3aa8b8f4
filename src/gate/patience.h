#pragma once

// Whether a latency job that is apart lets the thread blocks of batch jobs end before it takes the
// GPU from them.
//
// Kernels that are stopped in their middle cost training more than such that are stopped between
// their blocks: on an H200 a switch there and back 0.36 ms, and 0.29. The request waits for the
// blocks instead. How long these last is the training job's affair, some microseconds or for ever,
// and nobody could tell before. So the job has a budget: each request adds a sixteenth of what it
// usually takes, and what it takes beyond that is paid from it. While nothing is left kernels are
// stopped at once. What a mean bears a 99th percentile may not: a request that takes a quarter
// longer than usual, or however much, ends patience for some two hundred.

#include <cstdint>

namespace divvy::gate {

class Patience {
 public:
  // A request took `ns`. One that came right behind another may have found the GPU still its own:
  // what is usual is not learned from it, but what it waited is paid for. Where blocks last longer
  // than requests are apart, all come right behind another.
  void Add(std::uint64_t ns, bool in_a_row);
  [[nodiscard]] bool IsPatient() const { return patient_; }

  // Requests so far, and those among them that began while it was patient.
  [[nodiscard]] std::uint32_t Count() const { return count_; }
  [[nodiscard]] std::uint32_t PatientCount() const { return patient_count_; }

 private:
  // In thousandths of a usual request.
  static constexpr std::int32_t kIncome = 62;
  static constexpr std::int32_t kBudget = 4'000;
  // Requests differ by themselves: up to this much more is usual too.
  static constexpr std::int32_t kUnnoticed = 62;
  static constexpr std::int32_t kLong = 250;
  static constexpr std::int32_t kLongCosts = 16'000;
  // Requests until what is usual is known, without waiting for blocks.
  static constexpr std::uint32_t kLearning = 16;

  std::uint64_t usual_ns_ = 0;
  std::int32_t spent_ = 0;  // of the budget; less than half of it: patient again
  std::uint32_t learned_ = 0;
  std::uint32_t count_ = 0;
  std::uint32_t patient_count_ = 0;
  bool patient_ = false;
};

}  // namespace divvy::gate
