#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/gpu_model.h"
#include "workload/partition_size.h"

namespace divvy::workload {

// One measurement: a batch of this size takes this long.
struct ProfilePoint {
  int batch = 0;
  double latency_ms = 0;
  std::optional<double> p95_ms = {};
  std::optional<double> utilization = {};  // 0 to 1.
  std::optional<double> memory_mib = {};   // Of all processes together.
  int row = 0;                             // Line of the file, for messages.
  std::optional<double> p50_ms = {};
  std::optional<double> p99_ms = {};
  // Half the 95 % confidence interval of latency_ms, as a share of it.
  std::optional<double> error = {};
  std::optional<double> power_w = {};  // Of the whole GPU meanwhile.
};

// What one model does on one partition size with this many processes running at
// once (through MPS). A point's latency is that of one batch in one process while
// all are busy, so the partition answers processes * batch / latency items a second.
struct ProfileCurve {
  PartitionSize size = {};
  int processes = 1;
  std::vector<ProfilePoint> points = {};  // Ascending batches, at least one.

  int smallest_batch() const { return points.front().batch; }
  int largest_batch() const { return points.back().batch; }

  // Milliseconds that a batch takes. Between measured batches linear; a point
  // below an earlier one counts as that earlier one (running maximum), so that
  // the answer never falls as the batch grows. Below the smallest measured batch
  // it is the smallest one's latency, which padding to it would cost; above the
  // largest there is no answer, since nobody knows. Nor is there for a batch of 0.
  [[nodiscard]] std::optional<double> LatencyMs(int batch) const;

  // The same from p95_ms; nothing as well when the points around lack it.
  [[nodiscard]] std::optional<double> P95Ms(int batch) const;

  // Items a second: processes * batch / LatencyMs(batch).
  [[nodiscard]] std::optional<double> Throughput(int batch) const;

  // MiB at this batch, linear between points and running maximum; nothing where
  // the points around lack it.
  [[nodiscard]] std::optional<double> MemoryMib(int batch) const;
};

// All that was measured of one model on one kind of GPU.
struct ModelProfile {
  std::string model;
  std::string gpu;     // As the file says; empty when it does not.
  std::string source;  // Where the figures come from, e.g. "published, SC'24"; may be empty.
  std::vector<ProfileCurve> curves;  // By size, then processes.

  // The curve that speaks best for instances of `profile` (see MatchQuality) with
  // this many processes, or null.
  [[nodiscard]] const ProfileCurve* Find(const gpu::MigProfile& profile, int processes) const;

  // Numbers of processes measured on sizes that speak for `profile`, ascending.
  [[nodiscard]] std::vector<int> Processes(const gpu::MigProfile& profile) const;
};

}  // namespace divvy::workload
