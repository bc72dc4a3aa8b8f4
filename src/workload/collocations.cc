#include "workload/collocations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/csv.h"
#include "base/spelling.h"
#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr std::string_view kCollocationsFile = "a file of collocations";

constexpr std::array<std::string_view, 13> kCollocationColumns = {
    "set",         "gpu",         "gpu_power_w", "mode",    "job",         "speed", "memory_gib",
    "utilisation", "sm_activity", "bandwidth",   "power_w", "steps_per_s", "demand"};

// All but the first: nothing is measured of jobs that did not share.
constexpr std::array<std::string_view, 5> kSharedModeNames = {"time-slicing", "mps", "mps-shares",
                                                              "mig", "gate"};

constexpr RealRange kNorms{1e-6, 100};
constexpr RealRange kParts{0, 1};
constexpr RealRange kManyWatts{0, 10'000};
constexpr RealRange kManyGib{0, 10'000};
constexpr RealRange kStepRates{1e-9, 1e9};

// A number of the profile, the column it stands in and what it may be.
struct ProfileColumn {
  std::string_view name;
  std::optional<double> SoloProfile::* field;
  RealRange range;
};

constexpr std::array<ProfileColumn, 7> kProfileColumns = {{
    {"memory_gib", &SoloProfile::memory_gib, kManyGib},
    {"utilisation", &SoloProfile::utilisation, kParts},
    {"sm_activity", &SoloProfile::sm_activity, kParts},
    {"bandwidth", &SoloProfile::bandwidth, kParts},
    {"power_w", &SoloProfile::power_w, kManyWatts},
    {"steps_per_s", &SoloProfile::steps_per_second, kStepRates},
    {"demand", &SoloProfile::demand, kParts},
}};

SharingMode ReadMode(CsvReader& csv, std::size_t column) {
  const std::string_view word = csv.Field(column);
  for (const SharingMode mode : kSharingModes) {
    if (mode != SharingMode::kOneByOne && NameOf(mode) == word) return mode;
  }
  csv.Complain(fmt::format("mode: {} is not {}{}", Quoted(word), OneOf(kSharedModeNames),
                           DidYouMean(word, kSharedModeNames)));
  return SharingMode::kTimeSlicing;
}

// Sets while they are read.
struct SetDrafts {
  std::vector<MeasuredSet> sets;
  std::vector<int> lines;  // Where each begins.
  std::map<std::string, std::size_t> index;

  MeasuredSet& Find(CsvReader& csv, MeasuredSet row) {
    const auto [at, is_new] = index.emplace(row.id, sets.size());
    if (is_new) {
      sets.push_back(std::move(row));
      lines.push_back(csv.line());
      return sets.back();
    }
    MeasuredSet& set = sets[at->second];
    if (set.gpu != row.gpu || set.mode != row.mode || set.gpu_power_w != row.gpu_power_w) {
      csv.Complain(
          fmt::format("set: {} has another gpu, gpu_power_w or mode on line {}; give one "
                      "of the two another name",
                      Quoted(set.id), lines[at->second]));
    }
    return set;
  }
};

}  // namespace

std::string_view NameOf(SharingMode mode) {
  switch (mode) {
    case SharingMode::kOneByOne:
      return "one-by-one";
    case SharingMode::kTimeSlicing:
      return "time-slicing";
    case SharingMode::kMps:
      return "mps";
    case SharingMode::kMpsShares:
      return "mps-shares";
    case SharingMode::kMig:
      return "mig";
    case SharingMode::kGate:
      return "gate";
  }
  return "";
}

Result<std::vector<MeasuredSet>> ParseCollocations(std::string_view text,
                                                   std::string_view file_name) {
  CsvReader csv(text, file_name);
  csv.RefuseOthers(kCollocationColumns, kCollocationsFile);
  const std::size_t id = csv.Require("set", kCollocationsFile);
  const std::size_t gpu = csv.Require("gpu", kCollocationsFile);
  const std::size_t mode = csv.Require("mode", kCollocationsFile);
  const std::size_t job = csv.Require("job", kCollocationsFile);
  const std::size_t speed = csv.Require("speed", kCollocationsFile);
  const auto board = csv.Find("gpu_power_w");
  SetDrafts drafts;
  while (csv.NextRow()) {
    MeasuredSet row{.id = csv.Name(id), .gpu = csv.Name(gpu), .jobs = {}};
    row.gpu_power_w = csv.OptionalReal(board, kManyWatts);
    row.mode = ReadMode(csv, mode);
    MeasuredJob measured{.name = csv.Name(job), .speed = csv.Real(speed, kNorms)};
    for (const ProfileColumn& column : kProfileColumns) {
      measured.profile.*column.field = csv.OptionalReal(csv.Find(column.name), column.range);
    }
    if (csv.ok()) drafts.Find(csv, std::move(row)).jobs.push_back(std::move(measured));
  }
  for (std::size_t i = 0; i < drafts.sets.size(); ++i) {
    if (drafts.sets[i].jobs.size() >= 2) continue;
    csv.Complain(drafts.lines[i], fmt::format("set: {} has one job; those that ran together share "
                                              "the name of their set",
                                              Quoted(drafts.sets[i].id)));
  }
  if (!csv.ok()) return Fail(csv.error());
  return std::move(drafts.sets);
}

std::string CollocationsHeader() {
  return fmt::format("{}\n", fmt::join(kCollocationColumns, ","));
}

std::string CollocationLines(const MeasuredSet& set) {
  const auto number = [](std::optional<double> value) {
    return value ? fmt::format("{:.6g}", *value) : std::string();
  };
  std::string lines;
  for (const MeasuredJob& job : set.jobs) {
    lines += fmt::format("{},{},{},{},{},{}", CsvField(set.id), CsvField(set.gpu),
                         number(set.gpu_power_w), NameOf(set.mode), CsvField(job.name),
                         number(job.speed));
    for (const ProfileColumn& column : kProfileColumns) {
      lines += fmt::format(",{}", number(job.profile.*column.field));
    }
    lines += "\n";
  }
  return lines;
}

}  // namespace divvy::workload
