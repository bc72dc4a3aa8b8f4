#pragma once

// How long kernels take and how much of the GPU they fill, learned while they run.

#include <atomic>
#include <cstdint>

namespace divvy::gate {

// What one launch is known by: a handle and its shape. A graph has a handle and no shape.
struct LaunchShape {
  std::uint64_t handle = 0;
  std::uint32_t grid[3] = {0, 0, 0};
  std::uint32_t block[3] = {0, 0, 0};
  std::uint32_t shared_bytes = 0;
};

[[nodiscard]] std::uint64_t KeyOf(const LaunchShape& shape);

struct Cost {
  std::atomic<std::uint64_t> key;
  std::atomic<std::uint32_t> ns;          // 0 while unknown
  std::atomic<std::uint32_t> charged_ns;  // what it was before others came; 0 while unknown
  std::atomic<std::uint32_t> samples;
  std::atomic<std::uint32_t> launches;  // wraps
  std::atomic<std::uint16_t>
      fill;  // thousandths of the block slots of the GPU; 1000 and more: all of it
  std::atomic<std::uint8_t>
      exempt;  // 1: never held back (collective operations: a waiting rank stops all others)
  std::atomic<std::uint32_t> kind;  // in the kernel log: its index there and one; 0 while unknown
};

// A kernel that nobody has timed is taken for this.
inline constexpr std::uint32_t kUnknownNs = 50'000;
// A kernel is light, and may run beside an active latency job, if it is short and leaves most of
// the GPU free.
inline constexpr std::uint32_t kLightNs = 20'000;
inline constexpr std::uint16_t kLightFill = 100;

[[nodiscard]] bool IsLight(const Cost& cost);
[[nodiscard]] std::uint32_t PredictedNs(const Cost& cost);
// What a job is charged for it when batch jobs take turns: that has a scale, which is measured now
// and then (gate/alone.h), and would be wrong in between if predictions moved.
[[nodiscard]] std::uint32_t ChargedNs(const Cost& cost);

// Takes a measured duration in. Other jobs on the GPU make measurements longer, never shorter: so a
// shorter one is believed at once and a longer one by a sixteenth. `shared`: with other batch jobs.
void Learn(Cost& cost, std::uint32_t measured_ns, bool shared);
// Whether this launch should be timed: the first few of a kind, then every so many-th.
[[nodiscard]] bool WantsSample(Cost& cost);

// A fixed table, looked up without a lock by any thread. When it is full, new kinds stay unknown.
class CostTable {
 public:
  static constexpr std::uint32_t kEntries = 1U << 14;

  // The entry of `key`; `*fresh` is set for the one caller that made it, who then fills in what it
  // knows. Null when the table is full.
  [[nodiscard]] Cost* Find(std::uint64_t key, bool* fresh);
  // Forgets what was learned under `key`: its handle was given back and may come again for
  // something else.
  void Forget(std::uint64_t key);
  // What each kind is charged becomes so many 1024ths of that.
  void Rescale(std::uint32_t scale);
  // The next few launches of each kind are timed like its first ones.
  void TimeAnew();
  // Forgets which kinds of the kernel log the entries are: it is another's from now on.
  void ForgetKinds();
  [[nodiscard]] const Cost& At(std::uint32_t index) const { return entries_[index]; }

 private:
  Cost entries_[kEntries];
};

}  // namespace divvy::gate
