#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "client/load_run.h"
#include "client/statistics.h"

namespace divvy::client {

inline constexpr std::array<double, 5> kPercentiles = {0.5, 0.9, 0.95, 0.99, 0.999};

// What became of some requests. sent = answered + refused + failed + unanswered, and of those with
// an SLO, answered = in_time + late.
struct Figures {
  std::uint64_t sent = 0;
  std::uint64_t answered = 0;
  std::uint64_t in_time = 0;
  std::uint64_t late = 0;
  std::uint64_t refused = 0;
  std::uint64_t failed = 0;
  std::uint64_t unanswered = 0;
  std::uint64_t with_slo = 0;         // Of those sent.
  std::uint64_t items = 0;            // Of those answered.
  std::vector<Estimate> percentiles;  // As kPercentiles, of those answered; empty if none was.
  Duration mean{};
  Duration max{};

  // Share of those sent, with an SLO, that were answered in time.
  [[nodiscard]] std::optional<double> attainment() const;
};

// Requests of one model and of some sizes.
struct Group {
  int model = 0;
  int least_items = 1;
  int most_items = 1;
  Figures figures;
};

struct ReasonCount {
  std::string reason;
  Outcome outcome = Outcome::kFailed;
  std::uint64_t count = 0;
};

struct Summary {
  Duration elapsed{};
  Figures all;
  std::vector<Group> models;  // All models.
  std::vector<Group> sizes;   // By model and size, where there are several; of many, by doublings.
  std::vector<ReasonCount> reasons;  // The most frequent first.
  // How late we were ourselves (issued - scheduled), and how long requests waited for a connection
  // (sent - issued): both are in the latencies.
  std::optional<Estimate> lateness;  // p99; nothing without requests.
  Duration most_late{};
  std::uint64_t waited = 0;  // For a connection.
  Duration longest_wait{};

  [[nodiscard]] double PerSecond(std::uint64_t count) const;

  // Whether we were so late that the latencies are ours rather than the server's: by a tenth of
  // their median.
  [[nodiscard]] bool late_ourselves() const;
};

[[nodiscard]] Summary Summarise(const RunLog& log, std::span<const std::optional<Duration>> slos);

// Whether at least a share `q` of each model's requests, and of all that were sent, was answered
// within its SLO. A model without one holds if so many were answered at all.
[[nodiscard]] bool Holds(const Summary& summary, double q);

}  // namespace divvy::client
