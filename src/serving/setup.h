#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/time.h"
#include "serving/request.h"

namespace divvy::serving {

// How long a batch takes on one kind of replica, for every number of items from 1
// to max_batch(). Never falls as items grow.
class LatencyTable {
 public:
  // by_items[0] is for one item. REQUIRES: not empty, positive, non-decreasing.
  explicit LatencyTable(std::vector<Duration> by_items);

  int max_batch() const { return static_cast<int>(by_items_.size()); }

  // REQUIRES: 1 <= items <= max_batch().
  Duration operator()(int items) const { return by_items_[static_cast<std::size_t>(items) - 1]; }

 private:
  std::vector<Duration> by_items_;
};

// A model on a partition: `lanes` processes that take batches from one queue.
struct ReplicaSpec {
  ModelId model{};
  int size = 1;           // Orders replicas from small to large: SMs, or compute slices.
  int lanes = 1;          // Processes; each runs one batch at a time.
  std::size_t table = 0;  // Into Setup::tables.
  bool up = true;         // Takes requests from the start.
};

// What a dispatcher dispatches over. Fixed for its life; replicas come and go by
// SetUp and SetDown.
struct Setup {
  std::vector<std::string> models;  // Names, by ModelId.
  std::vector<LatencyTable> tables;
  std::vector<ReplicaSpec> replicas;  // By ReplicaId.
};

}  // namespace divvy::serving
