#include "collocate_exports.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/text_safety.h"
#include "text_file.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;
using measure::RunRow;
using measure::RunState;

// The figures of a row that are known, by name.
std::vector<std::pair<std::string, double>> FiguresOf(const RunRow& row) {
  std::vector<std::pair<std::string, double>> figures;
  const auto add = [&](const char* name, const std::optional<double>& value) {
    if (value) figures.emplace_back(name, *value);
  };
  add("seconds", row.figures.seconds);
  add("steps_per_second", row.figures.steps_per_s);
  add("latency_ms", row.figures.latency_ms);
  add("cpu_seconds", row.figures.cpu_s);
  add("host_memory_mib", row.figures.host_mib);
  add("gpu_busy_ratio", row.gpu.busy);
  add("gpu_sm_active_ratio", row.gpu.sm_active);
  add("gpu_memory_mib", row.gpu.memory_mib);
  add("gpu_power_watts", row.gpu.power_w);
  add("gpu_energy_joules", row.gpu.energy_j());
  return figures;
}

std::string Label(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '\\' || c == '"') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

// For names in the store, where chance must not make two alike.
std::uint64_t Hash(std::string_view text, std::uint64_t seed) {
  return HashOf(text, kHashOfNothing ^ seed);
}

std::string YamlText(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

[[nodiscard]] Result<void> Make(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error) return {};
  return Fail(ErrorCode::kUnavailable,
              fmt::format("cannot make the folder {}: {}", folder.string(), error.message()));
}

// How a run ended, as MLflow numbers it.
constexpr int kMlflowFinished = 3;
constexpr int kMlflowFailed = 4;

// Files in order; the last makes the run count.
[[nodiscard]] Result<void> SaveRun(const fs::path& run, const std::string& id, std::size_t number,
                                   const std::string& experiment, const RunRow& row,
                                   long long now_ms) {
  for (const char* part : {"metrics", "params", "tags", "artifacts"}) {
    if (auto made = Make(run / part); !made) return made;
  }
  std::map<std::string, std::string> files;
  for (const auto& [name, value] : FiguresOf(row)) {
    files["metrics/" + name] = fmt::format("{} {:.9g} 0\n", now_ms, value);
  }
  files["params/workload"] = row.workload;
  files["params/mode"] = measure::NameOfMode(row.mode);
  files["params/job"] = row.job;
  if (row.share) files["params/sm_percent"] = std::to_string(*row.share);
  if (!row.on.empty()) files["params/gpu"] = row.on;
  const bool failed = row.state == RunState::kFailed;
  if (failed) files["tags/divvy.why"] = row.why;
  const std::string name = fmt::format("{} {}", row.workload, row.job);
  files["tags/mlflow.runName"] = name;
  const auto took = static_cast<long long>(row.gpu.measured_s.value_or(0) * 1000);
  for (const auto& [path, text] : files) {
    if (auto saved = SaveText((run / path).string(), text); !saved) return saved;
  }
  return SaveText(
      (run / "meta.yaml").string(),
      fmt::format("artifact_uri: {}\nend_time: {}\nentry_point_name: ''\n"
                  "experiment_id: '{}'\nlifecycle_stage: active\nrun_id: {}\n"
                  "run_name: {}\nrun_uuid: {}\nsource_name: ''\nsource_type: 4\n"
                  "source_version: ''\nstart_time: {}\nstatus: {}\ntags: []\n"
                  "user_id: ''\n",
                  YamlText((run / "artifacts").string()), now_ms + static_cast<long long>(number),
                  experiment, id, YamlText(name), id, now_ms - took,
                  failed ? kMlflowFailed : kMlflowFinished));
}

}  // namespace

std::string PrometheusText(const CollocateFindings& findings) {
  // By name: all samples of a metric stand together.
  std::map<std::string, std::string> metrics;
  // A job may stand in a workload several times.
  std::map<std::string, int> copies;
  const auto labels = [&](const std::string& workload, std::string_view mode,
                          const std::string& job, const char* what) {
    const int copy = ++copies[fmt::format("{}\n{}\n{}", what, workload, job)];
    return fmt::format("workload=\"{}\",mode=\"{}\",job=\"{}\",copy=\"{}\"", Label(workload), mode,
                       Label(job), copy);
  };
  for (const RunRow& row : findings.rows) {
    if (row.state != RunState::kDone) continue;
    const std::string who = labels(row.workload, measure::NameOfMode(row.mode), row.job, "run");
    for (const auto& [name, value] : FiguresOf(row)) {
      metrics["divvy_collocate_" + name] +=
          fmt::format("divvy_collocate_{}{{{}}} {:.9g}\n", name, who, value);
    }
  }
  for (const measure::SetTogether& set : findings.sets) {
    for (const measure::JobTogether& job : set.jobs) {
      const std::string who = labels(set.workload, NameOf(set.mode), job.job, "speed");
      if (!job.speed) continue;
      metrics["divvy_collocate_speed_ratio"] +=
          fmt::format("divvy_collocate_speed_ratio{{{}}} {:.9g}\n", who, *job.speed);
    }
  }
  std::string text;
  for (const auto& [name, samples] : metrics) {
    text += fmt::format("# TYPE {} gauge\n{}", name, samples);
  }
  return text;
}

Result<void> SaveForMlflow(const std::string& folder, const CollocateFindings& findings,
                           long long now_ms) {
  std::error_code error;
  const fs::path store = fs::absolute(folder, error);
  const std::string experiment =
      std::to_string(Hash(findings.title, 0) % 1'000'000'000'000'000'000ULL);
  const fs::path at = store / experiment;
  if (auto made = Make(at); !made) return made;
  for (std::size_t i = 0; i < findings.rows.size(); ++i) {
    const RunRow& row = findings.rows[i];
    if (row.state != RunState::kDone && row.state != RunState::kFailed) continue;
    // What was found is part of the name: measured again, it is another run.
    const std::string what = fmt::format("{}/{}", i, measure::FormatRuns({row}));
    const std::string id = fmt::format("{:016x}{:016x}", Hash(what, 1), Hash(what, 2));
    if (fs::exists(at / id / "meta.yaml", error)) continue;
    if (auto saved = SaveRun(at / id, id, i, experiment, row, now_ms); !saved) return saved;
  }
  return SaveText((at / "meta.yaml").string(),
                  fmt::format("artifact_location: {}\ncreation_time: {}\nexperiment_id: '{}'\n"
                              "last_update_time: {}\nlifecycle_stage: active\nname: {}\n",
                              YamlText(at.string()), now_ms, experiment, now_ms,
                              YamlText("divvy collocate " + findings.title)));
}

Result<void> CheckExports(const ExportPaths& paths) {
  for (const auto& [option, path] :
       {std::pair{"--html", &paths.html}, {"--prometheus", &paths.prometheus}}) {
    if (path->empty()) continue;
    if (auto writable = CheckWritable(option, *path); !writable) return writable;
  }
  return paths.mlflow.empty() ? Result<void>{} : MakeWritableFolder("--mlflow", paths.mlflow);
}

Result<void> Export(const ExportPaths& paths, const CollocateFindings& findings) {
  if (!paths.html.empty()) {
    if (auto saved = SaveText(paths.html, FindingsPage(findings)); !saved) return saved;
  }
  if (!paths.prometheus.empty()) {
    if (auto saved = SaveText(paths.prometheus, PrometheusText(findings)); !saved) return saved;
  }
  if (paths.mlflow.empty()) return {};
  const auto now = std::chrono::floor<std::chrono::milliseconds>(
      std::chrono::system_clock::now().time_since_epoch());
  return SaveForMlflow(paths.mlflow, findings, now.count());
}

}  // namespace divvy::app
