#include "measure/runs_file.h"

#include <fmt/format.h>

#include <array>
#include <map>

#include "base/csv.h"
#include "base/spelling.h"
#include "base/text_safety.h"

namespace divvy::measure {
namespace {

using workload::SharingMode;

constexpr std::string_view kRunsFile = "a file of runs";
constexpr std::string_view kAlone = "alone";
constexpr std::array<std::string_view, 4> kStates = {"", "done", "failed", "skipped"};
constexpr std::array<std::string_view, 6> kRunModes = {"alone",      "time-slicing", "mps",
                                                       "mps-shares", "mig",          "gate"};

constexpr RealRange kFigures{0, 1e12};

struct JobColumn {
  std::string_view name;
  std::optional<double> JobFigures::* field;
};
constexpr std::array<JobColumn, 5> kJobColumns = {{{"seconds", &JobFigures::seconds},
                                                   {"steps_per_s", &JobFigures::steps_per_s},
                                                   {"latency_ms", &JobFigures::latency_ms},
                                                   {"cpu_s", &JobFigures::cpu_s},
                                                   {"host_mib", &JobFigures::host_mib}}};
struct GpuColumn {
  std::string_view name;
  std::optional<double> GpuFigures::* field;
};
constexpr std::array<GpuColumn, 5> kGpuColumns = {{{"measured_s", &GpuFigures::measured_s},
                                                   {"gpu_busy", &GpuFigures::busy},
                                                   {"sm_active", &GpuFigures::sm_active},
                                                   {"gpu_mib", &GpuFigures::memory_mib},
                                                   {"power_w", &GpuFigures::power_w}}};

// In the order in which they are written.
std::vector<std::string_view> Columns() {
  std::vector<std::string_view> names = {"workload", "mode", "job", "share", "state"};
  for (const JobColumn& column : kJobColumns) names.push_back(column.name);
  for (const GpuColumn& column : kGpuColumns) names.push_back(column.name);
  names.push_back("why");
  names.push_back("made_with");
  names.push_back("on");
  return names;
}

std::optional<SharingMode> ReadRunMode(CsvReader& csv, std::size_t column) {
  const std::string_view word = csv.Field(column);
  if (word == kAlone) return {};
  for (const SharingMode mode : workload::kSharingModes) {
    if (mode != SharingMode::kOneByOne && NameOf(mode) == word) return mode;
  }
  csv.Complain(fmt::format("mode: {} is not {}{}", Quoted(word), OneOf(kRunModes),
                           DidYouMean(word, kRunModes)));
  return {};
}

RunState ReadState(CsvReader& csv, std::optional<std::size_t> column) {
  const std::string_view word = column ? csv.Field(*column) : "";
  for (std::size_t i = 0; i < kStates.size(); ++i) {
    if (word == kStates[i]) return static_cast<RunState>(i);
  }
  csv.Complain(
      fmt::format("state: {} is not done, failed or skipped, or empty for a run that is "
                  "to be made{}",
                  Quoted(word), DidYouMean(word, kStates)));
  return RunState::kOpen;
}

// What rows of one workload must agree in.
class Workloads {
 public:
  void Add(CsvReader& csv, const RunRow& row) {
    const auto [at, is_new] = seen_.emplace(row.workload, First{row.mode, csv.line()});
    if (!is_new && at->second.mode != row.mode) {
      csv.Complain(
          fmt::format("mode: workload {} is {} on line {}: rows of one workload run "
                      "together, in one way",
                      Quoted(row.workload), NameOfMode(at->second.mode), at->second.line));
    } else if (!is_new && !row.mode) {
      csv.Complain(
          fmt::format("mode: workload {} stands on line {} already: who runs alone has a "
                      "workload alone",
                      Quoted(row.workload), at->second.line));
    }
    const bool shares = row.mode == SharingMode::kMpsShares;
    if (shares != row.share.has_value()) {
      csv.Complain(shares
                       ? "share: is missing; under mps-shares each job has its percentage of the "
                         "SMs, 1 to 100"
                       : "share: stands under mps-shares only");
    }
  }

 private:
  struct First {
    std::optional<SharingMode> mode;
    int line;
  };
  std::map<std::string, First> seen_;
};

}  // namespace

std::optional<double> GpuFigures::energy_j() const {
  if (!measured_s || !power_w) return {};
  return *measured_s * *power_w;
}

std::string_view NameOfMode(const std::optional<SharingMode>& mode) {
  return mode ? NameOf(*mode) : kAlone;
}

Result<std::vector<RunRow>> ParseRuns(std::string_view text, std::string_view file_name) {
  CsvReader csv(text, file_name);
  csv.RefuseOthers(Columns(), kRunsFile);
  const std::size_t workload_at = csv.Require("workload", kRunsFile);
  const std::size_t mode = csv.Require("mode", kRunsFile);
  const std::size_t job = csv.Require("job", kRunsFile);
  const auto share = csv.Find("share");
  const auto state = csv.Find("state");
  const auto why = csv.Find("why");
  const auto made_with = csv.Find("made_with");
  const auto on = csv.Find("on");
  std::vector<RunRow> rows;
  Workloads workloads;
  while (csv.NextRow()) {
    RunRow row{.workload = csv.Name(workload_at), .job = csv.Name(job)};
    row.mode = ReadRunMode(csv, mode);
    if (share && !csv.Field(*share).empty()) row.share = csv.Integer(*share, {1, 100});
    row.state = ReadState(csv, state);
    for (const JobColumn& column : kJobColumns) {
      row.figures.*column.field = csv.OptionalReal(csv.Find(column.name), kFigures);
    }
    for (const GpuColumn& column : kGpuColumns) {
      row.gpu.*column.field = csv.OptionalReal(csv.Find(column.name), kFigures);
    }
    if (why) row.why = csv.Field(*why);
    if (made_with) row.made_with = csv.Field(*made_with);
    if (on) row.on = csv.Field(*on);
    if (csv.ok()) workloads.Add(csv, row);
    rows.push_back(std::move(row));
  }
  if (!csv.ok()) return Fail(csv.error());
  return rows;
}

std::string FormatRuns(const std::vector<RunRow>& rows) {
  const auto number = [](const std::optional<double>& value) {
    return value ? fmt::format(",{:.6g}", *value) : std::string(",");
  };
  std::string text = fmt::format("{}\n", fmt::join(Columns(), ","));
  for (const RunRow& row : rows) {
    text += fmt::format("{},{},{},{},{}", CsvField(row.workload), NameOfMode(row.mode),
                        CsvField(row.job), row.share ? std::to_string(*row.share) : "",
                        kStates[static_cast<std::size_t>(row.state)]);
    for (const JobColumn& column : kJobColumns) text += number(row.figures.*column.field);
    for (const GpuColumn& column : kGpuColumns) text += number(row.gpu.*column.field);
    text +=
        fmt::format(",{},{},{}\n", CsvField(row.why), CsvField(row.made_with), CsvField(row.on));
  }
  return text;
}

}  // namespace divvy::measure
