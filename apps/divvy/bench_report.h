#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench_load.h"
#include "bench_server.h"

namespace divvy::app {

// What a report of `divvy bench` is about.
struct BenchContext {
  std::string url;
  int connections = 0;
  Duration warm_up{};
  const BenchLoad& load;
};

// For a person: counts, latencies with their 95 % confidence intervals, reasons, and what to be
// wary of.
[[nodiscard]] std::string BenchTable(const BenchContext& context, const BenchRun& run);

// The same for programs.
[[nodiscard]] std::string BenchJson(const BenchContext& context, const BenchRun& run);

// One line a request: scheduled_s,sent_s,done_s,status,model,items. Times count from where
// measuring began.
[[nodiscard]] std::string BenchCsv(const BenchContext& context, const BenchRun& run);

// A page with the latencies over time and how they are distributed; opens without a network.
[[nodiscard]] std::string BenchPage(const BenchContext& context, const BenchRun& run);

// One probe of a search.
struct BenchProbe {
  double factor = 0;
  double rate = 0;  // Requests a second that were to be sent.
  bool held = false;
  bool generator = false;    // It was not held because of us.
  bool connections = false;  // It was not held, and many waited for a connection of ours.
  bool ended_early = false;  // Too many were late for it to be held.
  client::Summary summary;
};

struct BenchSearch {
  double percentile = 0.99;
  double resolution = 0.02;
  std::vector<BenchProbe> probes;
  std::optional<double> held;    // Requests a second.
  std::optional<double> missed;  // The lowest rate that was not held.
  bool cut_short = false;
};

[[nodiscard]] std::string SearchTable(const BenchContext& context, const BenchSearch& search);
[[nodiscard]] std::string SearchJson(const BenchContext& context, const BenchSearch& search);

}  // namespace divvy::app
