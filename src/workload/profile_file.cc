#include "workload/profile_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/csv.h"
#include "base/text_safety.h"
#include "workload/batch_distribution.h"

namespace divvy::workload {
namespace {

constexpr std::string_view kWhat = "a profile file";
constexpr std::array<std::string_view, 14> kColumns = {
    "model",  "partition", "processes",   "batch",      "latency_ms", "p50_ms", "p95_ms",
    "p99_ms", "error",     "utilization", "memory_mib", "power_w",    "gpu",    "source"};

// Beyond these a number is a slip, whatever the hardware.
constexpr IntRange kProcesses{1, 1'000};
constexpr IntRange kBatches{1, kLargestBatch};
constexpr RealRange kMilliseconds{1e-6, 1e9};
constexpr RealRange kShare{0, 1};
constexpr RealRange kError{0, 1e3};
constexpr RealRange kMebibytes{0, 1e9};
constexpr RealRange kWatts{0, 1e6};

struct Columns {
  explicit Columns(CsvReader& csv)
      : model(csv.Require("model", kWhat)),
        partition(csv.Require("partition", kWhat)),
        batch(csv.Require("batch", kWhat)),
        latency_ms(csv.Require("latency_ms", kWhat)),
        processes(csv.Find("processes")),
        p50_ms(csv.Find("p50_ms")),
        p95_ms(csv.Find("p95_ms")),
        p99_ms(csv.Find("p99_ms")),
        error(csv.Find("error")),
        utilization(csv.Find("utilization")),
        memory_mib(csv.Find("memory_mib")),
        power_w(csv.Find("power_w")),
        gpu(csv.Find("gpu")),
        source(csv.Find("source")) {}

  std::size_t model, partition, batch, latency_ms;
  std::optional<std::size_t> processes, p50_ms, p95_ms, p99_ms, error, utilization, memory_mib,
      power_w, gpu, source;
};

struct Source {
  std::string text;
  int row = 0;  // Where it was first said.
};

// One model on one GPU, while it is read.
struct Draft {
  Source source;
  std::map<std::pair<PartitionSize, int>, std::map<int, ProfilePoint>> curves;
};

using Drafts = std::map<std::pair<std::string, std::string>, Draft>;  // By model and GPU.

// A field that may be empty or missing, else a name.
std::string OptionalName(CsvReader& csv, std::optional<std::size_t> column,
                         std::size_t longest = kMostNameBytes) {
  return column && !csv.Field(*column).empty() ? csv.Name(*column, longest) : std::string();
}

void ReadRow(CsvReader& csv, const Columns& columns, Drafts& drafts) {
  const std::string model = csv.Name(columns.model);
  const auto size = ParsePartitionSize(csv.Field(columns.partition));
  if (!size) csv.Complain(fmt::format("partition: {}", size.error().message));
  const bool has_processes = columns.processes && !csv.Field(*columns.processes).empty();
  const int processes = has_processes ? csv.Integer(*columns.processes, kProcesses) : 1;
  const ProfilePoint point{.batch = csv.Integer(columns.batch, kBatches),
                           .latency_ms = csv.Real(columns.latency_ms, kMilliseconds),
                           .p95_ms = csv.OptionalReal(columns.p95_ms, kMilliseconds),
                           .utilization = csv.OptionalReal(columns.utilization, kShare),
                           .memory_mib = csv.OptionalReal(columns.memory_mib, kMebibytes),
                           .row = csv.line(),
                           .p50_ms = csv.OptionalReal(columns.p50_ms, kMilliseconds),
                           .p99_ms = csv.OptionalReal(columns.p99_ms, kMilliseconds),
                           .error = csv.OptionalReal(columns.error, kError),
                           .power_w = csv.OptionalReal(columns.power_w, kWatts)};
  const std::string gpu = OptionalName(csv, columns.gpu);
  const std::string source = OptionalName(csv, columns.source, kLongestSource);
  if (!csv.ok()) return;

  Draft& draft = drafts[{model, gpu}];
  if (draft.source.row == 0) draft.source = {source, csv.line()};
  if (draft.source.text != source) {
    csv.Complain(fmt::format(
        "source: {} is another than {} on line {} for the same model; give one of the two another "
        "model name, or the same source",
        Quoted(source), Quoted(draft.source.text), draft.source.row));
  }
  const auto [first, is_new] = draft.curves[{*size, processes}].emplace(point.batch, point);
  if (!is_new) {
    csv.Complain(fmt::format("{} on {} with batch {} and {} {} stands on line {} already",
                             Quoted(model), Describe(*size), point.batch, processes,
                             processes == 1 ? "process" : "processes", first->second.row));
  }
}

ModelProfile Finish(const std::pair<std::string, std::string>& key, const Draft& draft) {
  ModelProfile profile{
      .model = key.first, .gpu = key.second, .source = draft.source.text, .curves = {}};
  for (const auto& [size_and_processes, points] : draft.curves) {
    ProfileCurve curve{.size = size_and_processes.first, .processes = size_and_processes.second};
    for (const auto& [batch, point] : points) curve.points.push_back(point);
    profile.curves.push_back(std::move(curve));
  }
  return profile;
}

// A column of the file that is written, and what it says of a point.
struct Output {
  std::string_view name;
  std::string (*text)(const ModelProfile&, const ProfileCurve&, const ProfilePoint&);
  std::string_view when_unused;  // The column is left out when it says this everywhere.
};

std::string Shortest(std::optional<double> value) {
  return value ? fmt::format("{}", *value) : std::string();
}

using M = const ModelProfile&;
using C = const ProfileCurve&;
using P = const ProfilePoint&;
constexpr std::string_view kAlways = "\n";  // What no field says.
constexpr std::array<Output, 14> kOutputs = {{
    {"model", [](M m, C, P) { return CsvField(m.model); }, kAlways},
    {"partition", [](M, C c, P) { return Describe(c.size); }, kAlways},
    {"processes", [](M, C c, P) { return std::to_string(c.processes); }, "1"},
    {"batch", [](M, C, P p) { return std::to_string(p.batch); }, kAlways},
    {"latency_ms", [](M, C, P p) { return Shortest(p.latency_ms); }, kAlways},
    {"p50_ms", [](M, C, P p) { return Shortest(p.p50_ms); }, ""},
    {"p95_ms", [](M, C, P p) { return Shortest(p.p95_ms); }, ""},
    {"p99_ms", [](M, C, P p) { return Shortest(p.p99_ms); }, ""},
    {"error", [](M, C, P p) { return Shortest(p.error); }, ""},
    {"utilization", [](M, C, P p) { return Shortest(p.utilization); }, ""},
    {"memory_mib", [](M, C, P p) { return Shortest(p.memory_mib); }, ""},
    {"power_w", [](M, C, P p) { return Shortest(p.power_w); }, ""},
    {"gpu", [](M m, C, P) { return CsvField(m.gpu); }, ""},
    {"source", [](M m, C, P) { return CsvField(m.source); }, ""},
}};

template <typename Visit>
void ForEachPoint(const std::vector<ModelProfile>& models, Visit visit) {
  for (const ModelProfile& model : models) {
    for (const ProfileCurve& curve : model.curves) {
      for (const ProfilePoint& point : curve.points) visit(model, curve, point);
    }
  }
}

}  // namespace

const ModelProfile* ProfileFile::Find(std::string_view model) const {
  const auto found = std::ranges::find(models, model, &ModelProfile::model);
  return found == models.end() ? nullptr : &*found;
}

Result<ProfileFile> ParseProfiles(std::string_view text, std::string_view file_name) {
  CsvReader csv(text, file_name);
  csv.RefuseOthers(kColumns, kWhat);
  const Columns columns(csv);
  Drafts drafts;
  while (csv.NextRow()) ReadRow(csv, columns, drafts);
  if (drafts.empty()) csv.Complain("the header is followed by no measurements");
  if (!csv.ok()) return Fail(csv.error());

  ProfileFile file;
  for (const auto& [key, draft] : drafts) {
    file.models.push_back(Finish(key, draft));
    std::vector<Finding> findings = FindOddities(file.models.back());
    file.findings.insert(file.findings.end(), std::make_move_iterator(findings.begin()),
                         std::make_move_iterator(findings.end()));
  }
  std::stable_sort(file.findings.begin(), file.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.row < b.row; });
  return file;
}

std::string FormatProfiles(const std::vector<ModelProfile>& models) {
  std::array<bool, kOutputs.size()> used{};
  for (std::size_t i = 0; i < kOutputs.size(); ++i) used[i] = kOutputs[i].when_unused == kAlways;
  ForEachPoint(models, [&](M model, C curve, P point) {
    for (std::size_t i = 0; i < kOutputs.size(); ++i) {
      used[i] = used[i] || kOutputs[i].text(model, curve, point) != kOutputs[i].when_unused;
    }
  });
  std::string text;
  const auto line = [&](auto field_of) {
    bool first = true;
    for (std::size_t i = 0; i < kOutputs.size(); ++i) {
      if (!used[i]) continue;
      if (!first) text += ',';
      first = false;
      text += field_of(kOutputs[i]);
    }
    text += '\n';
  };
  line([](const Output& output) { return std::string(output.name); });
  ForEachPoint(models, [&](M model, C curve, P point) {
    line([&](const Output& output) { return output.text(model, curve, point); });
  });
  return text;
}

}  // namespace divvy::workload
