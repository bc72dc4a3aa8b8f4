#include "profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "table.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using workload::Finding;
using workload::ModelProfile;
using workload::PartitionSize;
using workload::ProfileCurve;
using workload::ProfileFile;
using workload::ProfilePoint;
using Kind = Finding::Kind;

constexpr std::size_t kShownOfAKind = 20;

struct KindName {
  Kind kind;
  std::string_view key;  // For programs.
  const char* one;       // Of findings of the kind.
};
constexpr std::array<KindName, 3> kKinds = {{{Kind::kHole, "hole", "hole"},
                                             {Kind::kNotMonotone, "not_monotone", "fall"},
                                             {Kind::kOutlier, "outlier", "outlier"}}};

// The numbers if they are few, else "1 to 64 (7)".
std::string Numbers(const std::set<int>& numbers) {
  constexpr std::size_t kFew = 8;
  if (numbers.size() <= kFew) return fmt::format("{}", fmt::join(numbers, " "));
  return fmt::format("{} to {} ({})", *numbers.begin(), *numbers.rbegin(), numbers.size());
}

// The curves of one partition size, together.
struct Measured {
  std::set<int> processes;
  std::set<int> batches;
  std::size_t points = 0;
};

std::map<PartitionSize, Measured> BySize(const ModelProfile& model) {
  std::map<PartitionSize, Measured> sizes;
  for (const ProfileCurve& curve : model.curves) {
    Measured& measured = sizes[curve.size];
    measured.processes.insert(curve.processes);
    for (const ProfilePoint& point : curve.points) measured.batches.insert(point.batch);
    measured.points += curve.points.size();
  }
  return sizes;
}

std::string Inventory(const ProfileFile& file) {
  std::vector<std::vector<std::string>> rows = {
      {"MODEL", "GPU", "PARTITION", "PROCESSES", "BATCHES", "POINTS"}};
  for (const ModelProfile& model : file.models) {
    bool first = true;
    for (const auto& [size, measured] : BySize(model)) {
      rows.push_back({first ? model.model : "",
                      !first              ? ""
                      : model.gpu.empty() ? "unknown"
                                          : model.gpu,
                      Describe(size), Numbers(measured.processes), Numbers(measured.batches),
                      std::to_string(measured.points)});
      first = false;
    }
  }
  return Table(rows, 5);
}

std::string Sources(const ProfileFile& file) {
  std::set<std::string> sources;
  for (const ModelProfile& model : file.models) {
    sources.insert(model.source.empty() ? "not said" : model.source);
  }
  return fmt::format("Source: {}\n", fmt::join(sources, "; "));
}

}  // namespace

std::string DescribeCheck(const ProfileFile& file, std::string_view file_name, bool all) {
  std::string text = Inventory(file) + '\n' + Sources(file);
  if (file.findings.empty()) return text + fmt::format("{}: nothing odd\n", file_name);
  text += '\n';
  for (const KindName& name : kKinds) {
    std::size_t count = 0;
    for (const Finding& finding : file.findings) {
      if (finding.kind != name.kind) continue;
      if (all || ++count <= kShownOfAKind) {
        text += fmt::format("{}:{}: {}: {}\n", file_name, finding.row, name.one, finding.message);
      }
    }
    if (count > kShownOfAKind) {
      text += fmt::format("{}: and {}; --all lists them\n", file_name,
                          Count(count - kShownOfAKind, fmt::format("more {}", name.one)));
    }
  }
  return text;
}

std::string CheckToJson(const ProfileFile& file, std::string_view file_name) {
  Json json = {{"file", file_name}, {"models", Json::array()}, {"findings", Json::array()}};
  for (const ModelProfile& model : file.models) {
    Json curves = Json::array();
    for (const ProfileCurve& curve : model.curves) {
      std::vector<int> batches;
      for (const ProfilePoint& point : curve.points) batches.push_back(point.batch);
      curves.push_back({{"partition", Describe(curve.size)},
                        {"processes", curve.processes},
                        {"batches", std::move(batches)}});
    }
    json["models"].push_back({{"model", model.model},
                              {"gpu", model.gpu.empty() ? Json(nullptr) : Json(model.gpu)},
                              {"source", model.source.empty() ? Json(nullptr) : Json(model.source)},
                              {"curves", std::move(curves)}});
  }
  for (const Finding& finding : file.findings) {
    const auto name = std::ranges::find(kKinds, finding.kind, &KindName::kind);
    json["findings"].push_back(
        {{"kind", name->key}, {"line", finding.row}, {"message", finding.message}});
  }
  return json.dump(2) + "\n";
}

std::string DescribeCurves(const ModelProfile& model) {
  std::set<int> batches;
  for (const ProfileCurve& curve : model.curves) {
    for (const ProfilePoint& point : curve.points) batches.insert(point.batch);
  }
  std::vector<std::vector<std::string>> rows = {{"PARTITION", "PROCESSES"}};
  for (const int batch : batches) rows.front().push_back(std::to_string(batch));
  rows.front().push_back("MOST ITEMS/S");
  for (const ProfileCurve& curve : model.curves) {
    auto& row = rows.emplace_back();
    row = {Describe(curve.size), std::to_string(curve.processes)};
    double most = 0;
    for (const int batch : batches) {
      const auto point = std::ranges::find(curve.points, batch, &ProfilePoint::batch);
      row.push_back(point == curve.points.end() ? "-" : FourDigits(point->latency_ms));
      most = std::max(most, curve.Throughput(batch).value_or(0));
    }
    row.push_back(FourDigits(most));
  }
  return fmt::format("{}{}{}: milliseconds by batch\n{}", model.model,
                     model.gpu.empty() ? "" : " on " + model.gpu,
                     model.source.empty() ? "" : " (" + model.source + ")", Table(rows, 1));
}

}  // namespace divvy::app
