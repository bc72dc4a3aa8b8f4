#include "workload/profile_import.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "base/csv.h"
#include "gpu/catalogue.h"
#include "workload/batch_distribution.h"
#include "workload/profile_check.h"

namespace divvy::workload {
namespace {

constexpr IntRange kSlices{1, 64};
constexpr IntRange kProcesses{1, 1'000};
constexpr IntRange kBatches{1, kLargestBatch};
constexpr IntRange kSequenceLengths{1, 10'000'000};
constexpr RealRange kMilliseconds{1e-6, 1e9};
constexpr RealRange kRates{1e-9, 1e12};
constexpr RealRange kShare{0, 1};
constexpr RealRange kMebibytes{0, 1e9};

// What was measured at one point, with the digits that stood in the file.
struct Measured {
  ProfilePoint point;
  std::string figure;
};

using CurveKey = std::pair<PartitionSize, int>;                        // Size and processes.
using Curves = std::map<CurveKey, std::map<int, Measured>>;            // Points by batch.
using Drafts = std::map<std::pair<std::string, std::string>, Curves>;  // By model and GPU.

// Rows that were left out for one reason.
struct LeftOut {
  std::vector<int> rows;

  void Note(std::string_view why, std::vector<std::string>& notes) const {
    if (rows.empty()) return;
    constexpr std::size_t kShown = 12;
    std::string list;
    for (std::size_t i = 0; i < std::min(rows.size(), kShown); ++i) {
      list += fmt::format("{}{}", i == 0 ? "" : ", ", rows[i]);
    }
    if (rows.size() > kShown) list += ", ...";
    notes.push_back(fmt::format("{} {} left out: {} (line {})", rows.size(),
                                rows.size() == 1 ? "row" : "rows", why, list));
  }
};

// Leaves out points that repeat the figure with one process fewer.
void DropCopies(const std::string& model, Curves& curves, std::vector<std::string>& notes) {
  // Largest number of processes first, so that a copy of a copy is found as well.
  for (auto curve = curves.rbegin(); curve != curves.rend(); ++curve) {
    const auto& [size, processes] = curve->first;
    const auto fewer = curves.find({size, processes - 1});
    if (fewer == curves.end()) continue;
    for (const auto& [batch, original] : fewer->second) {
      const auto copy = curve->second.find(batch);
      if (copy == curve->second.end() || copy->second.figure != original.figure) continue;
      notes.push_back(fmt::format(
          "{} on {}, {} processes, batch {}: left out (line {}): {} for each process, digit for "
          "digit the figure with {} (line {}), so the last process likely did not run",
          model, Describe(size), processes, batch, copy->second.point.row, copy->second.figure,
          processes - 1, original.point.row));
      curve->second.erase(copy);
    }
  }
}

// Leaves out what the outlier rule finds.
void DropOutliers(ModelProfile& model, std::vector<std::string>& notes) {
  for (const Finding& finding : FindOddities(model)) {
    if (finding.kind != Finding::Kind::kOutlier) continue;
    notes.push_back(fmt::format("{}; left out (line {})", finding.message, finding.row));
    for (ProfileCurve& curve : model.curves) {
      std::erase_if(curve.points,
                    [&](const ProfilePoint& point) { return point.row == finding.row; });
    }
  }
}

Imported Finish(const Drafts& drafts, std::string_view source, std::vector<std::string> notes) {
  Imported imported{.models = {}, .notes = std::move(notes)};
  for (const auto& [model_and_gpu, curves] : drafts) {
    ModelProfile model{.model = model_and_gpu.first,
                       .gpu = model_and_gpu.second,
                       .source = std::string(source),
                       .curves = {}};
    for (const auto& [key, points] : curves) {
      ProfileCurve curve{.size = key.first, .processes = key.second};
      for (const auto& [batch, measured] : points) curve.points.push_back(measured.point);
      if (!curve.points.empty()) model.curves.push_back(std::move(curve));
    }
    DropOutliers(model, imported.notes);
    imported.models.push_back(std::move(model));
  }
  return imported;
}

Result<Imported> ImportParvaGpu(CsvReader& csv) {
  constexpr std::string_view kWhat = "a ParvaGPU table";
  const std::size_t model = csv.Require("model", kWhat);
  const std::size_t slices = csv.Require("mig_gpc", kWhat);
  const std::size_t batch = csv.Require("batch", kWhat);
  const std::size_t processes = csv.Require("mps_procs", kWhat);
  const std::size_t throughput = csv.Require("throughput_per_proc_rps", kWhat);
  const std::size_t latency = csv.Require("latency_ms_from_thr", kWhat);
  const std::size_t status = csv.Require("status", kWhat);
  Drafts drafts;
  LeftOut not_run;
  LeftOut again;
  while (csv.NextRow()) {
    if (csv.Field(status) != "ok") {
      not_run.rows.push_back(csv.line());
      continue;
    }
    const std::string name = csv.Name(model);
    const PartitionSize size{.unit = PartitionSize::Unit::kSlices,
                             .amount = csv.Integer(slices, kSlices)};
    const int process_count = csv.Integer(processes, kProcesses);
    const ProfilePoint point{.batch = csv.Integer(batch, kBatches),
                             .latency_ms = csv.Real(latency, kMilliseconds),
                             .row = csv.line()};
    csv.Real(throughput, kRates);
    if (!csv.ok()) break;
    auto& points = drafts[{name, "A100-80GB"}][{size, process_count}];
    const Measured measured{point, std::string(csv.Field(throughput))};
    if (!points.emplace(point.batch, measured).second) again.rows.push_back(csv.line());
  }
  if (drafts.empty()) csv.Complain("no measurement that ran follows the header");
  if (!csv.ok()) return Fail(csv.error());

  std::vector<std::string> notes;
  not_run.Note("out of memory or not run", notes);
  again.Note("the same point as a row before", notes);
  for (auto& [model_and_gpu, curves] : drafts) DropCopies(model_and_gpu.first, curves, notes);
  return Finish(drafts, "published, ParvaGPU (SC'24)", std::move(notes));
}

// One inference row of MIGPerf, before its model has its final name.
struct MigPerfRow {
  std::string gpu;
  std::string model;
  int sequence = 0;  // 0 for a model without sequences.
  PartitionSize size;
  ProfilePoint point;
};

// The catalogue's name for the GPU in `column`.
std::string GpuName(CsvReader& csv, std::size_t column) {
  const auto model = gpu::FindGpuModel(csv.Field(column));
  if (model) return (*model)->name;
  csv.Complain(fmt::format("gpu: {}", model.error().message));
  return {};
}

std::vector<MigPerfRow> ReadMigPerf(CsvReader& csv, LeftOut& training) {
  constexpr std::string_view kWhat = "a MIGPerf table";
  const std::size_t gpu = csv.Require("gpu", kWhat);
  const std::size_t kind = csv.Require("kind", kWhat);
  const std::size_t model = csv.Require("model", kWhat);
  const std::size_t sequence = csv.Require("seq_len", kWhat);
  const std::size_t batch = csv.Require("batch", kWhat);
  const std::size_t profile = csv.Require("mig_profile", kWhat);
  const std::size_t latency = csv.Require("latency_ms", kWhat);
  const std::size_t utilization = csv.Require("gract_mean", kWhat);
  const std::size_t memory = csv.Require("fb_used_mib_mean", kWhat);
  std::vector<MigPerfRow> rows;
  while (csv.NextRow()) {
    if (csv.Field(kind) != "infer") {
      training.rows.push_back(csv.line());
      continue;
    }
    const auto size = ParsePartitionSize(csv.Field(profile));
    if (!size) {
      csv.Complain(fmt::format("mig_profile: {}", size.error().message));
      break;
    }
    const bool has_sequence = !csv.Field(sequence).empty();
    rows.push_back({.gpu = GpuName(csv, gpu),
                    .model = csv.Name(model),
                    .sequence = has_sequence ? csv.Integer(sequence, kSequenceLengths) : 0,
                    .size = *size,
                    .point = {.batch = csv.Integer(batch, kBatches),
                              .latency_ms = csv.Real(latency, kMilliseconds),
                              .utilization = csv.OptionalReal(utilization, kShare),
                              .memory_mib = csv.OptionalReal(memory, kMebibytes),
                              .row = csv.line()}});
  }
  return rows;
}

Result<Imported> ImportMigPerf(CsvReader& csv) {
  LeftOut training;
  const std::vector<MigPerfRow> rows = ReadMigPerf(csv, training);
  if (rows.empty()) csv.Complain("no inference row follows the header");
  if (!csv.ok()) return Fail(csv.error());

  std::map<std::pair<std::string, std::string>, std::set<int>> sequences;
  for (const MigPerfRow& row : rows) sequences[{row.model, row.gpu}].insert(row.sequence);
  Drafts drafts;
  LeftOut again;
  for (const MigPerfRow& row : rows) {
    const bool several = sequences[{row.model, row.gpu}].size() > 1;
    const std::string name = several ? fmt::format("{}@seq{}", row.model, row.sequence) : row.model;
    auto& points = drafts[{name, row.gpu}][{row.size, 1}];
    if (!points.emplace(row.point.batch, Measured{row.point, {}}).second) {
      again.rows.push_back(row.point.row);
    }
  }
  std::vector<std::string> notes;
  training.Note("not inference", notes);
  again.Note("the same point as a row before", notes);
  return Finish(drafts, "published, MIGPerf", std::move(notes));
}

}  // namespace

Result<Imported> ImportProfiles(ForeignTable table, std::string_view text,
                                std::string_view file_name) {
  CsvReader csv(text, file_name);
  switch (table) {
    case ForeignTable::kParvaGpu:
      return ImportParvaGpu(csv);
    case ForeignTable::kMigPerf:
      return ImportMigPerf(csv);
  }
  return Fail(ErrorCode::kInvalidArgument, "no such table");
}

}  // namespace divvy::workload
