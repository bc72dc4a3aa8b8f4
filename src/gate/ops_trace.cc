#include "gate/ops_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "gate/ops_summary.h"

namespace divvy::gate {
namespace {

// A name is written once an event; templates have names of kilobytes.
constexpr std::size_t kNameBytes = 200;

std::string InQuotes(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kNameBytes)) {
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else {
      quoted += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return quoted + '"';
}

class TraceWriter {
 public:
  TraceWriter(const OpsRecord& record,
              const std::function<std::string(const std::string& kernel)>& name,
              const std::function<void(std::string_view)>& out)
      : record_(record), name_(name), out_(out) {
    origin_ns_ = std::numeric_limits<std::uint64_t>::max();
    for (const OpsProcess& process : record.processes())
      origin_ns_ = std::min(origin_ns_, process.start_ns);
  }

  void Write() {
    out_("{\"displayTimeUnit\": \"ms\",\n\"otherData\": {");
    out_(
        fmt::format("\"events\": \"launches that were timed, a sample; counters are of all "
                    "launches\", \"timed_launches_kept\": \"1 of {}\"}},\n\"traceEvents\": [",
                    record_.samples_kept_of()));
    Processes();
    Launches();
    Counters();
    out_("\n]}\n");
  }

 private:
  void Event(const std::string& text) {
    out_(first_ ? "\n" : ",\n");
    out_(text);
    first_ = false;
  }

  // Microseconds.
  double At(std::uint64_t ns) const {
    return ns <= origin_ns_ ? 0 : static_cast<double>(ns - origin_ns_) / 1e3;
  }

  int PidOf(const TimedOp& timed) const {
    return record_.processes()[record_.ops()[timed.op].process].pid;
  }

  void Processes() {
    for (const OpsProcess& process : record_.processes()) {
      Event(fmt::format(
          R"({{"ph": "M", "name": "process_name", "pid": {}, "tid": 0, "args": {{"name": {}}}}})",
          process.pid, InQuotes(process.program)));
    }
    for (const TimedOp& timed : record_.samples()) {
      const auto key = std::tuple(PidOf(timed), timed.sample.device, timed.sample.stream);
      const auto [at, is_new] = tracks_.try_emplace(key, 0);
      if (!is_new) continue;
      at->second = static_cast<int>(tracks_.size());
      Event(fmt::format(R"({{"ph": "M", "name": "thread_name", "pid": {}, "tid": {}, )"
                        R"("args": {{"name": "GPU {}, stream {:#x}"}}}})",
                        PidOf(timed), at->second, timed.sample.device, timed.sample.stream));
    }
  }

  struct Slice {
    int track = 0;
    std::uint64_t begin_ns = 0;  // From the log's beginning.
    std::uint64_t end_ns = 0;
    const TimedOp* timed = nullptr;
  };

  // By track and time. A stream runs one after the other, but its clock is a float's: where two
  // cross by some nanoseconds Perfetto would drop one, so the first ends where the next begins.
  std::vector<Slice> Slices() const {
    std::vector<Slice> slices;
    for (const TimedOp& timed : record_.samples()) {
      // What began before the log did, by the GPU's clock, began with it.
      const std::uint64_t begin_ns = std::max(timed.sample.start_ns, origin_ns_) - origin_ns_;
      slices.push_back({tracks_.at({PidOf(timed), timed.sample.device, timed.sample.stream}),
                        begin_ns, begin_ns + timed.sample.duration_ns, &timed});
    }
    std::ranges::stable_sort(
        slices, {}, [](const Slice& slice) { return std::pair(slice.track, slice.begin_ns); });
    for (std::size_t i = 1; i < slices.size(); ++i) {
      Slice& before = slices[i - 1];
      if (before.track == slices[i].track)
        before.end_ns = std::min(before.end_ns, slices[i].begin_ns);
    }
    return slices;
  }

  void Launches() {
    std::vector<std::string> names;
    for (const LoggedOp& op : record_.ops()) {
      names.push_back(InQuotes(op.facts.is_graph != 0 ? NameOfOp(op) : name_(NameOfOp(op))));
    }
    for (const Slice& slice : Slices()) {
      const TimedOp& timed = *slice.timed;
      const LoggedOp& op = record_.ops()[timed.op];
      const auto& [handle, grid, block, shared] = op.facts.shape;
      Event(fmt::format(
          R"({{"ph": "X", "cat": "{}", "name": {}, "pid": {}, "tid": {}, "ts": {:.3f}, )"
          R"("dur": {:.3f}, "args": {{"grid": "{}x{}x{}", "block": "{}x{}x{}", )"
          R"("shared_bytes": {}, "fill": {:.3f}}}}})",
          op.facts.is_graph != 0 ? "graph" : "kernel", names[timed.op], PidOf(timed), slice.track,
          static_cast<double>(slice.begin_ns) / 1e3,
          static_cast<double>(slice.end_ns - slice.begin_ns) / 1e3, grid[0], grid[1], grid[2],
          block[0], block[1], block[2], shared, op.facts.fill / 1000.0));
    }
  }

  // Launches a second of each process.
  void Counters() {
    for (const OpsInterval& interval : record_.intervals()) {
      std::map<int, std::uint64_t> launches;
      for (const OpsProcess& process : record_.processes()) launches[process.pid] = 0;
      for (const auto& [op, n] : interval.launches)
        launches[record_.processes()[record_.ops()[op].process].pid] += n;
      const double seconds = static_cast<double>(interval.end_ns - interval.begin_ns) / 1e9;
      for (const auto& [pid, n] : launches) {
        Event(fmt::format(R"({{"ph": "C", "name": "launches per second", "pid": {}, "tid": 0, )"
                          R"("ts": {:.3f}, "args": {{"launches": {:.1f}}}}})",
                          pid, At(interval.begin_ns), static_cast<double>(n) / seconds));
      }
    }
  }

  const OpsRecord& record_;
  const std::function<std::string(const std::string& kernel)>& name_;
  const std::function<void(std::string_view)>& out_;
  std::uint64_t origin_ns_;
  std::map<std::tuple<int, std::uint16_t, std::uint64_t>, int> tracks_;
  bool first_ = true;
};

}  // namespace

void WriteOpsTrace(const OpsRecord& record,
                   const std::function<std::string(const std::string& kernel)>& name,
                   const std::function<void(std::string_view)>& out) {
  TraceWriter(record, name, out).Write();
}

}  // namespace divvy::gate
