#include "gate/ops_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <utility>

#include "gate/ops.h"

namespace divvy::gate {
namespace {

// Rows of the same kernel in the same shape are one, whatever handle a process had for it. A graph
// has nothing but its handle: others with as many kernels may be quite different.
using RowKey = std::tuple<std::string, std::array<std::uint32_t, 7>, std::size_t, std::uint64_t>;

RowKey KeyOfRow(const LoggedOp& op) {
  const LaunchShape& s = op.facts.shape;
  const bool is_graph = op.facts.is_graph != 0;
  return {NameOfOp(op),
          {s.grid[0], s.grid[1], s.grid[2], s.block[0], s.block[1], s.block[2], s.shared_bytes},
          is_graph ? op.process : 0,
          is_graph ? s.handle : 0};
}

int SmsOf(const OpFacts& facts) {
  if (facts.is_graph != 0 || facts.blocks_per_multiprocessor == 0) return 0;
  const auto& grid = facts.shape.grid;
  const std::uint64_t blocks = std::uint64_t{grid[0]} * grid[1] * grid[2];
  // The hardware spreads blocks before it stacks them; this is what they would need at least.
  const std::uint64_t needed =
      (blocks + facts.blocks_per_multiprocessor - 1) / facts.blocks_per_multiprocessor;
  return static_cast<int>(std::min<std::uint64_t>(needed, facts.multiprocessors));
}

bool IsLightKernel(double us, double fill) {
  return us > 0 && us * 1e3 <= kLightNs && fill * 1000 <= kLightFill;
}

// By the launches of each part, since parts are not timed equally often. One that was not timed at
// all is taken to be like the others.
OpRow Finished(OpRow row, const std::vector<TimedPart>& parts) {
  double timed_launches = 0;
  double timed_us = 0;
  for (const TimedPart& part : parts) {
    row.samples += part.durations->count();
    if (part.durations->count() == 0) continue;
    timed_launches += static_cast<double>(part.launches);
    timed_us += static_cast<double>(part.launches) * part.durations->Mean();
  }
  row.mean_us = timed_launches > 0 ? timed_us / timed_launches : 0;
  row.p50_us = QuantileOf(parts, 0.5);
  row.p95_us = QuantileOf(parts, 0.95);
  row.total_us = static_cast<double>(row.launches) * row.mean_us;
  row.light = !row.is_graph && IsLightKernel(row.p50_us, row.fill);
  return row;
}

using RowsByKey = std::map<RowKey, OpRow>;

// Of one process, or of all for -1. Without shares.
RowsByKey Gather(const OpsRecord& record, std::ptrdiff_t process) {
  RowsByKey rows;
  std::map<RowKey, std::vector<TimedPart>> parts;
  for (const LoggedOp& op : record.ops()) {
    if (process >= 0 && op.process != static_cast<std::size_t>(process)) continue;
    if (op.launches == 0) continue;
    const RowKey key = KeyOfRow(op);
    OpRow& row = rows[key];
    row.kernel = NameOfOp(op);
    row.is_graph = op.facts.is_graph != 0;
    row.shape = op.facts.shape;
    row.fill = op.facts.fill / 1000.0;
    row.sms = SmsOf(op.facts);
    row.collective = op.facts.exempt != 0;
    row.launches += op.launches;
    parts[key].push_back({.durations = &op.durations, .launches = op.launches});
  }
  for (auto& [key, row] : rows) row = Finished(std::move(row), parts[key]);
  return rows;
}

std::vector<OpRow> ByTotal(const RowsByKey& gathered) {
  std::vector<OpRow> rows;
  double total = 0;
  for (const auto& [key, row] : gathered) {
    rows.push_back(row);
    total += row.total_us;
  }
  for (OpRow& row : rows) row.share = total > 0 ? row.total_us / total : 0;
  std::ranges::stable_sort(rows, [](const OpRow& a, const OpRow& b) {
    return std::tie(b.total_us, b.launches) < std::tie(a.total_us, a.launches);
  });
  return rows;
}

OpsTotals TotalsOf(const std::vector<OpRow>& rows) {
  OpsTotals totals;
  double light_us = 0;
  for (const OpRow& row : rows) {
    totals.launches += row.launches;
    totals.samples += row.samples;
    if (row.samples == 0) totals.untimed += row.launches;
    totals.gpu_us += row.total_us;
    if (row.light) light_us += row.total_us;
  }
  totals.light_share = totals.gpu_us > 0 ? light_us / totals.gpu_us : 0;
  return totals;
}

// What one launch of each kind of the record takes: by its own timings or, where it has none, by
// those of the same kernel in other processes.
struct OpCost {
  double us = 0;
  bool light = false;
};

std::vector<OpCost> CostsOf(const OpsRecord& record, const RowsByKey& rows) {
  std::vector<OpCost> costs;
  for (const LoggedOp& op : record.ops()) {
    const auto row = rows.find(KeyOfRow(op));
    if (row == rows.end()) {
      costs.emplace_back();
      continue;
    }
    const bool timed = op.durations.count() > 0;
    costs.push_back(
        {.us = timed ? op.durations.Mean() : row->second.mean_us, .light = row->second.light});
  }
  return costs;
}

// Intervals without launches at the end are the program's way out.
std::size_t CountUsed(const std::vector<OpsInterval>& intervals) {
  std::size_t used = intervals.size();
  while (used > 0 && intervals[used - 1].launches.empty()) --used;
  return used;
}

std::vector<OpsPhase> PhasesOf(const OpsRecord& record, const std::vector<OpCost>& costs) {
  const auto& intervals = record.intervals();
  const std::size_t used = CountUsed(intervals);
  const std::size_t count = std::min(used, kOpsPhases);
  std::vector<OpsPhase> phases;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t first = i * used / count;
    const std::size_t last = (i + 1) * used / count;
    const std::uint64_t origin = intervals.front().begin_ns;
    const double seconds =
        static_cast<double>(intervals[last - 1].end_ns - intervals[first].begin_ns) / 1e9;
    double launches = 0;
    double us = 0;
    double light_us = 0;
    for (std::size_t j = first; j < last; ++j) {
      for (const auto& [op, n] : intervals[j].launches) {
        launches += static_cast<double>(n);
        us += static_cast<double>(n) * costs[op].us;
        if (costs[op].light) light_us += static_cast<double>(n) * costs[op].us;
      }
    }
    phases.push_back({.begin_s = static_cast<double>(intervals[first].begin_ns - origin) / 1e9,
                      .end_s = static_cast<double>(intervals[last - 1].end_ns - origin) / 1e9,
                      .launches_per_s = launches / seconds,
                      .busy = us / 1e6 / seconds,
                      .light_share = us > 0 ? light_us / us : 0});
  }
  return phases;
}

}  // namespace

std::string NameOfOp(const LoggedOp& op) {
  if (op.facts.is_graph == 0) return op.kernel.empty() ? "(a kernel without a name)" : op.kernel;
  if (op.facts.graph_kernels == 0) return "graph";
  return fmt::format("graph of {} kernel{}", op.facts.graph_kernels,
                     op.facts.graph_kernels == 1 ? "" : "s");
}

OpsSummary Summarise(const OpsRecord& record) {
  OpsSummary summary;
  for (std::size_t i = 0; i < record.processes().size(); ++i) {
    ProcessSummary process{.process = record.processes()[i],
                           .totals = {},
                           .rows = ByTotal(Gather(record, static_cast<std::ptrdiff_t>(i)))};
    process.totals = TotalsOf(process.rows);
    summary.processes.push_back(std::move(process));
  }
  const RowsByKey rows = Gather(record, -1);
  summary.rows = ByTotal(rows);
  summary.totals = TotalsOf(summary.rows);
  summary.phases = PhasesOf(record, CostsOf(record, rows));
  return summary;
}

std::string FormatOps(const std::vector<OpRow>& rows) {
  std::string text = fmt::format("{}\n", kOpsHeading);
  for (const OpRow& row : rows) {
    // A name with a tab or a line's end in it cannot be written, and no compiler makes one.
    if (row.is_graph || row.samples == 0 || row.kernel.find_first_of("\t\r\n") != std::string::npos)
      continue;
    const auto& [handle, grid, block, shared] = row.shape;
    const double us = std::clamp(row.p50_us, 0.001, 4e6);
    text += fmt::format("{}\t{}x{}x{}\t{}x{}x{}\t{}\t{:.3f}\t{:.3f}\n", row.kernel, grid[0],
                        grid[1], grid[2], block[0], block[1], block[2], shared, us, row.fill);
  }
  return text;
}

}  // namespace divvy::gate
