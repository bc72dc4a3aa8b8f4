#pragma once

// Whether a latency job that is apart lets the thread blocks of batch jobs end before it takes the
// GPU from them.
//
// Kernels that are stopped in their middle cost training more than such that are stopped between
// their blocks: on an H200 a switch there and back 0.36 ms, and 0.29. The request waits for the
// blocks instead. How long these last is the training job's affair, some microseconds or for ever,
// and nobody could tell before. So the job has a budget: each request adds a small part of what it
// usually takes, and what it takes beyond that is paid from it. While nothing is left kernels are
// stopped at once. A job whose blocks last ten times a request thereby delays one request in some
// hundred.

#include <cstdint>

namespace divvy::gate {

class Patience {
 public:
  // A request that did not come right behind another took `ns`.
  void Add(std::uint64_t ns);
  [[nodiscard]] bool IsPatient() const { return patient_; }

  // Requests so far, and those among them that began while it was patient.
  [[nodiscard]] std::uint32_t Count() const { return count_; }
  [[nodiscard]] std::uint32_t PatientCount() const { return patient_count_; }

 private:
  // In thousandths of a usual request.
  static constexpr std::int32_t kIncome = 31;
  static constexpr std::int32_t kBudget = 8'000;
  // Requests differ by themselves: up to this much more is usual too.
  static constexpr std::int32_t kUnnoticed = 62;
  // What is usual must be known first, and without waiting for blocks.
  static constexpr std::uint32_t kLearning = 16;

  std::uint64_t usual_ns_ = 0;
  std::int32_t spent_ = 0;  // of the budget; less than half of it: patient again
  std::uint32_t count_ = 0;
  std::uint32_t patient_count_ = 0;
  bool patient_ = false;
};

}  // namespace divvy::gate
