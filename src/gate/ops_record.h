#pragma once

// What kernel logs told, gathered over a run. A value: nothing here reads a clock or a file.

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "gate/ops_log.h"

namespace divvy::gate {

// Durations of one kind of launch. All count for the mean; of many, a few thousand drawn evenly
// are kept for the quantiles, so that memory does not grow with the run.
class OpDurations {
 public:
  void Add(std::uint32_t ns);

  std::uint64_t count() const { return count_; }
  // Microseconds; 0 when there are none.
  [[nodiscard]] double Mean() const;
  [[nodiscard]] double Quantile(double share) const;
  // Those that were kept, in any order.
  const std::vector<std::uint32_t>& kept() const { return kept_; }

 private:
  std::uint64_t count_ = 0;
  double sum_ns_ = 0;
  std::vector<std::uint32_t> kept_;
};

// Launches of which some were timed: one of several that count as one.
struct TimedPart {
  const OpDurations* durations = nullptr;
  std::uint64_t launches = 0;
};
// Each part counts by its launches, however many of them were timed or kept. Microseconds; 0 when
// nothing was timed.
[[nodiscard]] double QuantileOf(const std::vector<TimedPart>& parts, double share);

// What a process' log says of itself.
struct OpsLogState {
  std::uint64_t unnoted = 0;    // launches of kinds for which it had no room
  std::uint64_t dropped = 0;    // samples that came faster than they were read
  std::uint64_t timing_ns = 0;  // what timing has cost the process, by its own reckoning
  std::uint64_t let_go = 0;     // streams that had been held for too long
};

struct OpsProcess {
  std::int32_t pid = 0;
  std::int32_t parent = 0;
  std::string program;
  std::uint64_t start_ns = 0;
  OpsLogState log = {};
};

// One kind of launch of one process.
struct LoggedOp {
  std::size_t process = 0;
  std::string kernel;  // as the driver gives it; empty for a graph
  OpFacts facts;
  std::uint64_t launches = 0;
  OpDurations durations;
};

struct TimedOp {
  std::size_t op = 0;
  OpSample sample;
};

// Launches of a stretch of the run, by index of their kind.
struct OpsInterval {
  std::uint64_t begin_ns = 0;
  std::uint64_t end_ns = 0;
  std::map<std::size_t, std::uint64_t> launches;
};

// Not thread-safe.
class OpsRecord {
 public:
  // At most so many intervals and samples are kept: beyond, neighbouring intervals become one, and
  // every other sample goes.
  static constexpr std::size_t kMostIntervals = 240;
  static constexpr std::size_t kMostSamples = 300'000;

  // `keep_samples`: for a trace. Else they only count for the durations.
  explicit OpsRecord(bool keep_samples) : keep_samples_(keep_samples) {}

  std::size_t AddProcess(OpsProcess process);
  std::size_t AddOp(std::size_t process, const OpFacts& facts, std::string kernel);
  void SetLogState(std::size_t process, const OpsLogState& state);
  // So many launches of the kind there were in all; those that are new belong to the interval that
  // is under way. REQUIRES: `op` was added.
  void CountTo(std::size_t op, std::uint64_t launches);
  void AddSample(std::size_t op, const OpSample& sample);
  // Ends the interval that is under way, once there are processes and unless it is shorter than the
  // others have become. Times ascend.
  void EndInterval(std::uint64_t now_ns);

  const std::vector<OpsProcess>& processes() const { return processes_; }
  const std::vector<LoggedOp>& ops() const { return ops_; }
  const std::vector<OpsInterval>& intervals() const { return intervals_; }
  const std::vector<TimedOp>& samples() const { return samples_; }
  // Of so many samples one was kept.
  std::size_t samples_kept_of() const { return keep_every_; }

 private:
  bool keep_samples_;
  std::vector<OpsProcess> processes_;
  std::vector<LoggedOp> ops_;
  std::vector<OpsInterval> intervals_;
  OpsInterval current_;
  std::uint64_t least_interval_ns_ = 0;
  std::vector<TimedOp> samples_;
  std::size_t keep_every_ = 1;
  std::size_t offered_ = 0;
};

}  // namespace divvy::gate
