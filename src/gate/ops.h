#pragma once

// Kernels timed before, by name and shape: what a job need not learn anew.
//
// One kernel a line, fields divided by tabs, under the heading
//   kernel  grid  block  shared_bytes  duration_us  fill
// with grid and block as 8x1x1 and the fill as a part of the GPU's block slots (0.25).

#include <cstdint>

#include "gate/costs.h"

namespace divvy::gate {

inline constexpr const char* kOpsHeading = "kernel\tgrid\tblock\tshared_bytes\tduration_us\tfill";

struct KnownOp {
  std::uint64_t key = 0;
  std::uint32_t ns = 0;
  std::uint16_t fill = 0;  // thousandths
};

// By name and shape; the handle, which differs from run to run, does not count.
[[nodiscard]] std::uint64_t OpKey(const char* name, const LaunchShape& shape);

// Reads one line (without its end). False, with what is wrong in `error`, if it is not of the form
// above.
[[nodiscard]] bool ParseOp(char* line, KnownOp& op, char* error, unsigned error_size);

// The kernels of a file. Lines that are wrong are left out and counted.
class KnownOps {
 public:
  // False, with the reason in `error`, if the file cannot be read or is not of this kind. `error`
  // names the first wrong line, and counts the others, also when it returns true.
  [[nodiscard]] bool Load(const char* path, char* error, unsigned error_size);
  [[nodiscard]] const KnownOp* Find(std::uint64_t key) const;
  [[nodiscard]] std::uint32_t Count() const { return count_; }

 private:
  void Add(const KnownOp& op);

  KnownOp* ops_ =
      nullptr;  // open addressing, never freed: the program may launch until its very end
  std::uint32_t capacity_ = 0;
  std::uint32_t count_ = 0;
};

}  // namespace divvy::gate
