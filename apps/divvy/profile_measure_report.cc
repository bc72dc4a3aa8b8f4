#include "profile_measure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "divvy_commit.h"
#include "table.h"
#include "workload/profile_file.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;
using measure::Point;

std::string OrDash(std::optional<double> value) { return value ? FourDigits(*value) : "-"; }

Json OrNull(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

// A figure is known within a percent or so: more digits would only be long.
double FewDigits(double value) {
  constexpr int kDigits = 5;
  if (!(value > 0)) return 0;
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

std::optional<double> FewDigits(std::optional<double> value) {
  if (!value) return value;
  return FewDigits(*value);
}

double ItemsPerSecond(const Point& point) {
  return point.processes * point.figures.batch * 1000.0 / point.figures.latency_ms;
}

}  // namespace

Point ToPoint(const workload::PartitionSize& size, int processes, int batch,
              const measure::Measured& measured) {
  const measure::Samples& samples = measured.samples;
  Point point{.size = size,
              .processes = processes,
              .figures = {.batch = batch, .latency_ms = FewDigits(samples.mean())},
              .error = FewDigits(samples.Error()),
              .batches = static_cast<int>(samples.count())};
  workload::ProfilePoint& figures = point.figures;
  figures.p50_ms = FewDigits(samples.Quantile(0.5));
  if (samples.count() >= measure::kLeastForP95) figures.p95_ms = FewDigits(samples.Quantile(0.95));
  if (samples.count() >= measure::kLeastForP99) figures.p99_ms = FewDigits(samples.Quantile(0.99));
  figures.utilization = FewDigits(measured.usage.utilization);
  figures.memory_mib = FewDigits(measured.usage.memory_mib);
  figures.power_w = FewDigits(measured.usage.power_w);
  return point;
}

workload::ModelProfile ToProfile(const std::string& model, const std::string& gpu,
                                 const std::string& source,
                                 const std::vector<measure::Partition>& partitions,
                                 const std::vector<Point>& points) {
  std::map<std::pair<workload::PartitionSize, int>, std::map<int, workload::ProfilePoint>> curves;
  for (const Point& point : points) {
    workload::ProfilePoint figures = point.figures;
    figures.error = point.error;
    curves[{point.size, point.processes}][figures.batch] = figures;
    for (const measure::Partition& partition : partitions) {
      if (partition.size != point.size) continue;
      for (const workload::PartitionSize& same : partition.same) {
        curves[{same, point.processes}][figures.batch] = figures;
      }
    }
  }
  workload::ModelProfile profile{.model = model, .gpu = gpu, .source = source, .curves = {}};
  for (const auto& [key, by_batch] : curves) {
    workload::ProfileCurve curve{.size = key.first, .processes = key.second};
    for (const auto& [batch, point] : by_batch) curve.points.push_back(point);
    profile.curves.push_back(std::move(curve));
  }
  return profile;
}

std::string SourceText(std::string_view date, std::string_view where, std::string_view command) {
  const std::string_view commit = DIVVY_COMMIT;
  std::string text = fmt::format("measured {}, {}, divvy {}{}, {}", date, where, DIVVY_VERSION,
                                 commit.empty() ? "" : fmt::format(" ({})", commit), command);
  // One text of printable bytes: a command line may have any.
  std::ranges::replace_if(text, [](unsigned char c) { return c < ' ' || c >= 0x7f; }, '?');
  constexpr std::size_t kMost = workload::kLongestSource;
  if (text.size() > kMost) text = text.substr(0, kMost - 2) + "..";
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string PointsTable(const std::vector<Point>& points) {
  std::vector<std::vector<std::string>> rows = {{"PARTITION", "PROCESSES", "BATCH", "MEAN MS", "+-",
                                                 "P50", "P95", "P99", "ITEMS/S", "BUSY", "MIB",
                                                 "W"}};
  for (const Point& point : points) {
    const workload::ProfilePoint& f = point.figures;
    rows.push_back({Describe(point.size), std::to_string(point.processes), std::to_string(f.batch),
                    FourDigits(f.latency_ms), Percent(point.error), OrDash(f.p50_ms),
                    OrDash(f.p95_ms), OrDash(f.p99_ms), FourDigits(ItemsPerSecond(point)),
                    f.utilization ? Percent(*f.utilization) : "-", OrDash(f.memory_mib),
                    OrDash(f.power_w)});
  }
  return Table(rows, 1);
}

std::string PointsJson(const workload::ModelProfile& profile, const std::vector<Point>& points) {
  Json json = {{"model", profile.model},
               {"gpu", profile.gpu.empty() ? Json(nullptr) : Json(profile.gpu)},
               {"source", profile.source},
               {"points", Json::array()}};
  for (const Point& point : points) {
    const workload::ProfilePoint& f = point.figures;
    json["points"].push_back({{"partition", Describe(point.size)},
                              {"processes", point.processes},
                              {"batch", f.batch},
                              {"latency_ms", f.latency_ms},
                              {"error", point.error},
                              {"batches", point.batches},
                              {"p50_ms", OrNull(f.p50_ms)},
                              {"p95_ms", OrNull(f.p95_ms)},
                              {"p99_ms", OrNull(f.p99_ms)},
                              {"items_per_second", ItemsPerSecond(point)},
                              {"utilization", OrNull(f.utilization)},
                              {"memory_mib", OrNull(f.memory_mib)},
                              {"power_w", OrNull(f.power_w)}});
  }
  return json.dump(2) + "\n";
}

std::string AboutTime(Duration time) {
  const double seconds = Seconds(time);
  constexpr double kMinute = 60;
  if (seconds < 2 * kMinute) return fmt::format("about {:.0f} s", std::max(1.0, seconds));
  return fmt::format("about {:.0f} min", seconds / kMinute);
}

std::string CurveName(const workload::PartitionSize& size, int processes) {
  if (processes == 1) return Describe(size);
  return fmt::format("{} with {} processes", Describe(size), processes);
}

}  // namespace divvy::app
