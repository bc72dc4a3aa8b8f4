#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "kserve/describe.h"
#include "serving/dispatcher.h"
#include "serving/request.h"

namespace divvy::server {

// What is counted about models and partitions, for Prometheus and for Triton's statistics. Lives as
// long as the server; models and partitions are known by name, so counts go on over a reload. Not
// thread-safe.
class Metrics {
 public:
  static constexpr int kPriorities = 8;

  struct Partition {
    std::string model;
    std::string name;  // "0/1g.18gb@3.0"
  };

  // A request that never came to be routed: bad, unknown, too large. "" for an unknown model.
  void Rejected(std::string_view model);
  // A result that was there, after `took`, when its client had gone, or for which there was no
  // room: a failure, and not answered as it was counted. REQUIRES: Tally::Answered has counted it
  // just now, so that nobody saw that.
  void Canceled(std::string_view model, Duration took, bool in_time);
  void NoRoom(std::string_view model, Duration took, bool in_time);
  static constexpr std::string_view kNoRoom = "no room";  // The reason, as it is written.

  struct Gauges {
    std::size_t pending = 0;
    std::size_t waiting = 0;
    std::size_t http_connections = 0;
    std::size_t grpc_connections = 0;
    std::size_t held_bytes = 0;
    std::vector<std::pair<Partition, bool>> up;
  };
  // Prometheus' text format.
  [[nodiscard]] std::string Render(const Gauges& gauges) const;

  [[nodiscard]] kserve::ModelStatistics Statistics(std::string_view model) const;

 private:
  friend class Tally;

  // Bounds in milliseconds; the last bucket has none.
  static constexpr std::array<double, 13> kBounds = {0.25, 0.5, 1,   2,   5,    10,  20,
                                                     50,   100, 200, 500, 1000, 5000};
  struct Histogram {
    std::array<std::uint64_t, kBounds.size() + 1> counts{};
    double sum_ms = 0;
    std::uint64_t count = 0;
    void Add(Duration duration);
  };
  struct Model {
    std::string name;
    std::uint64_t in_time = 0, late = 0, failed = 0, rejected = 0, canceled = 0, no_room = 0;
    std::array<std::uint64_t, 4> refused{};  // By Refusal.
    std::array<Histogram, kPriorities> latency;
    kserve::ModelStatistics statistics;
  };
  struct Lane {
    Partition partition;
    std::uint64_t batches = 0, items = 0, lost = 0, restarts = 0;
    Histogram queue, compute;
    double error_sum = 0;  // Of |expected - took| / took.
    std::uint64_t errors = 0;
  };

  // What Tally::Answered counted was none. Null for an unknown model.
  Model* NotAnswered(std::string_view model, Duration took, bool in_time);
  void RenderModels(std::string& text) const;
  void RenderLanes(std::string& text, const Gauges& gauges) const;
  static void RenderHistogram(std::string& text, std::string_view family, std::string_view labels,
                              const Histogram& histogram);

  std::vector<Model> models_;
  std::vector<Lane> lanes_;
  std::uint64_t unknown_ = 0;
};

// Counts for one generation, whose ids stand for these models and partitions.
class Tally {
 public:
  // `metrics` outlives it.
  Tally(Metrics& metrics, const std::vector<std::string>& models,
        const std::vector<Metrics::Partition>& partitions);

  void Started(serving::ReplicaId replica, int items);
  void Lost(serving::ReplicaId replica);
  void Restarted(serving::ReplicaId replica);
  void Answered(const serving::Request& request, const serving::Service& service, int status);
  void Refused(const serving::Request& request, serving::Refusal why, TimePoint now);
  // How well the router knew what a batch would take.
  void Took(serving::ReplicaId replica, Duration expected, Duration took);
  // What the worker says its batch took: input, infer, output.
  void Computed(serving::ReplicaId replica, int items, std::array<std::uint64_t, 3> ns);

 private:
  Metrics::Model& ModelOf(serving::ModelId model) {
    return metrics_.models_[model_at_[static_cast<std::size_t>(model)]];
  }
  Metrics::Lane& LaneOf(serving::ReplicaId replica) {
    return metrics_.lanes_[lane_at_[static_cast<std::size_t>(replica)]];
  }

  Metrics& metrics_;
  std::vector<std::size_t> model_at_;  // By ModelId.
  std::vector<std::size_t> lane_at_;   // By ReplicaId.
};

}  // namespace divvy::server
