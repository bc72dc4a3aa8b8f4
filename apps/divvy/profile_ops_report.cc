#include "profile_ops_report.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "table.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using gate::OpRow;
using gate::OpsSummary;
using gate::OpsTotals;
using Rows = std::vector<std::vector<std::string>>;

constexpr std::size_t kLeastNameColumns = 16;

std::string Demangled(const std::string& name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), &std::free);
  return status == 0 && text != nullptr ? text.get() : name;
}

// Without the parentheses at its end and what is in them.
std::string WithoutParameters(std::string text) {
  if (!text.ends_with(')')) return text;
  int depth = 0;
  for (std::size_t i = text.size(); i-- > 0;) {
    if (text[i] == ')') ++depth;
    if (text[i] == '(' && --depth == 0) {
      if (i > 0) text.resize(i);
      break;
    }
  }
  return text;
}

std::string CutTo(const std::string& text, std::size_t columns) {
  if (text.size() <= columns) return text;
  return text.substr(0, columns - 2) + "..";
}

std::string Dimensions(const std::uint32_t (&size)[3]) {
  if (size[2] != 1) return fmt::format("{}x{}x{}", size[0], size[1], size[2]);
  return size[1] != 1 ? fmt::format("{}x{}", size[0], size[1]) : std::to_string(size[0]);
}

std::string ClassOf(const OpRow& row) {
  if (row.collective) return "collective";
  if (row.samples == 0) return "?";
  return row.light ? "light" : "heavy";
}

std::vector<std::string> CellsOf(const OpRow& row) {
  const auto timed = [&](double value) { return row.samples == 0 ? "?" : FourDigits(value); };
  return {std::to_string(row.launches),
          Percent(row.share),
          timed(row.mean_us),
          timed(row.p95_us),
          row.is_graph ? "-" : Dimensions(row.shape.grid),
          row.is_graph ? "-" : Dimensions(row.shape.block),
          row.is_graph ? "-" : Percent(row.fill),
          row.sms == 0 ? "-" : std::to_string(row.sms),
          ClassOf(row)};
}

std::size_t LongestLine(const std::string& text) {
  std::size_t longest = 0;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    longest = std::max(longest, end - from);
    from = end + 1;
  }
  return longest;
}

std::string KernelTable(const std::vector<OpRow>& rows, const OpsView& view) {
  Rows cells = {
      {"LAUNCHES", "SHARE", "MEAN US", "P95 US", "GRID", "BLOCK", "FILL", "SMS", "CLASS"}};
  const std::size_t shown = view.top == 0 ? rows.size() : std::min(rows.size(), view.top);
  for (std::size_t i = 0; i < shown; ++i) cells.push_back(CellsOf(rows[i]));
  // What the other columns leave, and the two blanks before the name.
  const std::size_t others = LongestLine(Table(cells, 0)) + 2;
  const std::size_t room = view.columns == 0
                               ? std::string::npos
                               : std::max(view.columns, others + kLeastNameColumns) - others;
  cells[0].insert(cells[0].begin(), "KERNEL");
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string name = rows[i].is_graph ? rows[i].kernel : ReadableKernel(rows[i].kernel);
    cells[i + 1].insert(cells[i + 1].begin(), CutTo(name, room));
  }
  std::string text = Table(cells, 1);
  if (shown < rows.size()) {
    double rest = 0;
    for (std::size_t i = shown; i < rows.size(); ++i) rest += rows[i].share;
    text += fmt::format("  and {} with {} of the GPU time; --top 0 lists them\n",
                        Count(rows.size() - shown, "more kind"), Percent(rest));
  }
  return text;
}

std::string PhaseTable(const std::vector<gate::OpsPhase>& phases) {
  Rows cells = {{"FROM S", "TO S", "LAUNCH/S", "GPU", "LIGHT"}};
  for (const gate::OpsPhase& phase : phases) {
    cells.push_back({fmt::format("{:.2f}", phase.begin_s), fmt::format("{:.2f}", phase.end_s),
                     FourDigits(phase.launches_per_s), Percent(phase.busy),
                     Percent(phase.light_share)});
  }
  return Table(cells, 0);
}

std::string ProcessTable(const std::vector<gate::ProcessSummary>& processes) {
  Rows cells = {{"PROGRAM", "PID", "LAUNCHES", "KINDS", "TIMED", "GPU S", "LIGHT"}};
  for (const gate::ProcessSummary& each : processes) {
    cells.push_back({each.process.program, std::to_string(each.process.pid),
                     std::to_string(each.totals.launches), std::to_string(each.rows.size()),
                     std::to_string(each.totals.samples), FourDigits(each.totals.gpu_us / 1e6),
                     Percent(each.totals.light_share)});
  }
  return Table(cells, 1);
}

double TimingSeconds(const gate::OpsLogState& log) {
  return static_cast<double>(log.timing_ns) / 1e9;
}

gate::OpsLogState SumOfLogs(const OpsSummary& summary) {
  gate::OpsLogState sum;
  for (const gate::ProcessSummary& each : summary.processes) {
    sum.dropped += each.process.log.dropped;
    sum.unnoted += each.process.log.unnoted;
    sum.timing_ns += each.process.log.timing_ns;
    sum.let_go += each.process.log.let_go;
  }
  return sum;
}

Json TotalsJson(const OpsTotals& totals) {
  return {{"launches", totals.launches},
          {"timed", totals.samples},
          {"launches_of_untimed_kinds", totals.untimed},
          {"gpu_seconds", totals.gpu_us / 1e6},
          {"light_share", totals.light_share}};
}

Json RowJson(const OpRow& row) {
  const auto when = [](bool applies, Json value) { return applies ? std::move(value) : Json(); };
  const bool timed = row.samples > 0;
  return {{"kernel", row.is_graph ? row.kernel : ReadableKernel(row.kernel)},
          {"symbol", when(!row.is_graph, row.kernel)},
          {"graph", row.is_graph},
          {"grid", when(!row.is_graph, row.shape.grid)},
          {"block", when(!row.is_graph, row.shape.block)},
          {"shared_bytes", when(!row.is_graph, row.shape.shared_bytes)},
          {"fill", when(!row.is_graph, row.fill)},
          {"sms", when(row.sms != 0, row.sms)},
          {"launches", row.launches},
          {"timed", row.samples},
          {"mean_us", when(timed, row.mean_us)},
          {"p50_us", when(timed, row.p50_us)},
          {"p95_us", when(timed, row.p95_us)},
          {"total_us", when(timed, row.total_us)},
          {"share", when(timed, row.share)},
          {"class", when(timed || row.collective, ClassOf(row))}};
}

Json KernelsJson(const std::vector<OpRow>& rows) {
  Json array = Json::array();
  for (const OpRow& row : rows) array.push_back(RowJson(row));
  return array;
}

}  // namespace

std::string ReadableKernel(const std::string& kernel) {
  std::string name = WithoutParameters(Demangled(kernel));
  if (name.starts_with("void ")) name.erase(0, 5);
  for (char& c : name) {
    if (c < ' ' || c > '~') c = '?';  // It comes out of another's program, and goes to a terminal.
  }
  return name;
}

std::vector<std::string> NotesOnOps(const OpsSummary& summary) {
  std::vector<std::string> notes;
  if (summary.totals.launches == 0) {
    notes.emplace_back(
        "no launch was seen: either the program used no GPU, or it reached the driver past the "
        "gate (statically linked, or LD_PRELOAD cleared)");
  }
  const gate::OpsLogState logs = SumOfLogs(summary);
  if (logs.dropped > 0) {
    notes.push_back(fmt::format("{} came faster than they could be read, and were dropped",
                                Count(logs.dropped, "timing")));
  }
  if (logs.unnoted > 0) {
    notes.push_back(
        fmt::format("{} were of kinds for which the log had no room: they are in no figure",
                    Count(logs.unnoted, "more launch")));
  }
  if (logs.let_go > 0) {
    notes.push_back(
        fmt::format("{} by a timing for longer than a launch takes, and let go: the program was "
                    "slowed there",
                    logs.let_go == 1 ? "a stream was held"
                                     : fmt::format("streams were held {} times", logs.let_go)));
  }
  if (summary.totals.untimed > 0) {
    notes.push_back(fmt::format("kinds marked ? were never timed ({}): they count for no GPU time",
                                summary.totals.untimed));
  }
  return notes;
}

std::string DescribeOps(const OpsSummary& summary, const OpsView& view) {
  const OpsTotals& totals = summary.totals;
  std::string text =
      fmt::format("{}: {} s, {} launches of {}, {} timed\n", fmt::join(view.command, " "),
                  FourDigits(view.seconds), totals.launches, Count(summary.rows.size(), "kind"),
                  totals.samples);
  if (totals.launches > 0) {
    const double timing_s = TimingSeconds(SumOfLogs(summary));
    text += fmt::format(
        "GPU time {} s, {} of it in light kernels; "
        "timing took {} ms by its own reckoning, {} of the run\n",
        FourDigits(totals.gpu_us / 1e6), Percent(totals.light_share), FourDigits(timing_s * 1e3),
        Percent(view.seconds > 0 ? timing_s / view.seconds : 0));
    if (summary.processes.size() > 1) text += "\n" + ProcessTable(summary.processes);
    text += "\n" + KernelTable(summary.rows, view);
    text += "\n" + PhaseTable(summary.phases);
  }
  for (const std::string& note : view.notes) text += fmt::format("Note: {}\n", note);
  return text;
}

std::string OpsToJson(const OpsSummary& summary, const OpsView& view) {
  Json document = {{"command", view.command},
                   {"seconds", view.seconds},
                   {"totals", TotalsJson(summary.totals)},
                   {"kernels", KernelsJson(summary.rows)},
                   {"phases", Json::array()},
                   {"processes", Json::array()},
                   {"notes", view.notes}};
  for (const gate::OpsPhase& phase : summary.phases) {
    document["phases"].push_back({{"begin_s", phase.begin_s},
                                  {"end_s", phase.end_s},
                                  {"launches_per_s", phase.launches_per_s},
                                  {"gpu_busy", phase.busy},
                                  {"light_share", phase.light_share}});
  }
  for (const gate::ProcessSummary& each : summary.processes) {
    document["processes"].push_back({{"pid", each.process.pid},
                                     {"parent", each.process.parent},
                                     {"program", each.process.program},
                                     {"dropped_timings", each.process.log.dropped},
                                     {"unnoted_launches", each.process.log.unnoted},
                                     {"timing_seconds", TimingSeconds(each.process.log)},
                                     {"streams_let_go", each.process.log.let_go},
                                     {"totals", TotalsJson(each.totals)},
                                     {"kernels", KernelsJson(each.rows)}});
  }
  return document.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace divvy::app
