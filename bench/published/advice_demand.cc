#include "advice_demand.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "base/csv.h"
#include "planner/demand.h"
#include "published_data.h"

namespace divvy::bench {
namespace {

using workload::SoloProfile;

struct SlicedJob {
  std::string model;
  SoloProfile profile;
  std::map<int, double> seconds;  // By compute slices.
  double demand = 0;
};

// The demand that explains the slices best: 1 - d + d * 7 / slices, relative errors.
double DemandOnSlices(const std::map<int, double>& seconds) {
  const double whole = seconds.at(7);
  double above = 0;
  double below = 0;
  for (const auto& [slices, time] : seconds) {
    if (slices == 7) continue;
    const double loss = 7.0 / slices - 1;
    const double weight = 1 / ((1 + loss) * (1 + loss));
    above += weight * loss * (time / whole - 1);
    below += weight * loss * loss;
  }
  return std::clamp(above / below, 0.0, 1.0);
}

std::vector<SlicedJob> ReadMiso(const std::string& folder) {
  std::map<std::pair<std::string, int>, SlicedJob> jobs;
  const std::string times = ReadAll(folder + "/train_iter_time_per_mig_slice.csv");
  CsvReader csv(times, "train_iter_time_per_mig_slice.csv");
  const auto model = csv.Require("model", "MISO");
  const auto batch = csv.Require("batch", "MISO");
  const auto slice = csv.Require("mig_profile", "MISO");
  // Its own notes say that deepspeech2's times depend on the utterances: means there.
  const auto mean = csv.Require("mean_s", "MISO");
  const auto median = csv.Require("p50_s", "MISO");
  while (csv.NextRow()) {
    const std::string name = csv.Name(model);
    const int size = csv.Integer(batch, {1, 1 << 20});
    jobs[{name, size}].seconds[csv.Field(slice)[0] - '0'] =
        csv.Real(name == "deepspeech2" ? mean : median, {1e-9, 1e9});
  }
  const std::string use = ReadAll(folder + "/full_gpu_util.csv");
  CsvReader util(use, "full_gpu_util.csv");
  const auto util_model = util.Require("model", "MISO");
  const auto util_batch = util.Require("batch", "MISO");
  const auto power = util.Require("power_w", "MISO");
  const auto memory = util.Require("util_mem_pct", "MISO");
  const auto sm = util.Require("util_sm_pct", "MISO");
  std::vector<SlicedJob> read;
  while (util.NextRow()) {
    const std::string name = util.Name(util_model);
    const int size = util.Integer(util_batch, {1, 1 << 20});
    const auto found = jobs.find({name, size});
    if (found == jobs.end() || !found->second.seconds.contains(7)) continue;
    SlicedJob job = found->second;
    job.model = name;
    job.profile.utilisation = util.Real(sm, {0, 100}) / 100;
    job.profile.bandwidth = util.Real(memory, {0, 100}) / 100;
    job.profile.power_w = util.Real(power, {0, 1000}) / 250;  // Of the board's limit.
    job.profile.batch = size;
    for (const auto& [key, other] : jobs) {
      const auto whole = other.seconds.find(7);
      if (key.first != name || whole == other.seconds.end()) continue;
      job.profile.speeds.push_back({key.second, 1 / whole->second});
    }
    job.demand = DemandOnSlices(job.seconds);
    read.push_back(std::move(job));
  }
  return read;
}

using Terms = std::vector<double>;

// Least squares by normal equations.
Terms LeastSquares(const std::vector<std::pair<Terms, double>>& rows) {
  const std::size_t n = rows.front().first.size();
  std::vector<Terms> a(n, Terms(n + 1, 0));
  for (const auto& [x, y] : rows) {
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) a[i][j] += x[i] * x[j];
      a[i][n] += x[i] * y;
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t row = 0; row < n; ++row) {
      if (row == i) continue;
      const double factor = a[row][i] / a[i][i];
      for (std::size_t j = i; j <= n; ++j) a[row][j] -= factor * a[i][j];
    }
  }
  Terms x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = a[i][n] / a[i][i];
  return x;
}

void JudgeLink(const std::vector<SlicedJob>& jobs, const char* name,
               const std::function<Terms(const SlicedJob&)>& terms) {
  const auto fit = [&](const std::string& without) {
    std::vector<std::pair<Terms, double>> rows;
    for (const SlicedJob& job : jobs) {
      if (job.model != without) rows.emplace_back(terms(job), job.demand);
    }
    return LeastSquares(rows);
  };
  double squares = 0;
  for (const SlicedJob& job : jobs) {
    const Terms fitted = fit(job.model);
    const Terms x = terms(job);
    double demand = 0;
    for (std::size_t i = 0; i < x.size(); ++i) demand += fitted[i] * x[i];
    squares += std::pow(std::clamp(demand, 0.0, 1.0) - job.demand, 2);
  }
  std::string shown;
  for (const double value : fit("")) shown += fmt::format("{:8.3f}", value);
  fmt::print("  {:<28}{:>8.3f}   {}\n", name, std::sqrt(squares / static_cast<double>(jobs.size())),
             shown);
}

}  // namespace

void JudgeDemand(const std::string& folder) {
  const auto jobs = ReadMiso(folder);
  if (jobs.empty()) {
    fmt::print("{} has no MISO data\n", folder);
    return;
  }
  fmt::print("Demand of {} jobs on MIG slices, model left out: standard error, coefficients\n",
             jobs.size());
  JudgeLink(jobs, "nothing", [](const SlicedJob&) { return Terms{1}; });
  JudgeLink(jobs, "power", [](const SlicedJob& j) { return Terms{1, *j.profile.power_w}; });
  JudgeLink(jobs, "utilisation",
            [](const SlicedJob& j) { return Terms{1, *j.profile.utilisation}; });
  JudgeLink(jobs, "bandwidth", [](const SlicedJob& j) { return Terms{1, *j.profile.bandwidth}; });
  JudgeLink(jobs, "utilisation and bandwidth", [](const SlicedJob& j) {
    return Terms{1, *j.profile.utilisation, *j.profile.bandwidth};
  });
  JudgeLink(jobs, "speeds by batch", [](const SlicedJob& j) {
    return Terms{1, planner::BatchScalingShare(j.profile).value_or(0)};
  });
  double squares = 0;
  double slices = 0;
  int count = 0;
  for (const SlicedJob& job : jobs) {
    const auto demand = planner::EstimateDemand(job.profile, 1.0);
    squares += std::pow(demand.share - job.demand, 2);
    for (const auto& [size, time] : job.seconds) {
      if (size == 7) continue;
      slices += std::abs(planner::SpeedInPart(demand, size / 7.0) - job.seconds.at(7) / time);
      ++count;
    }
  }
  fmt::print("  shipped, from all of these {:>9.3f}   (on what it was fitted on)\n",
             std::sqrt(squares / static_cast<double>(jobs.size())));
  fmt::print("  speed on a slice by it: mean error {:.3f} of full speed, {} slices\n",
             slices / count, count);
  fmt::print("  demands:");
  for (const SlicedJob& job : jobs) {
    fmt::print(" {}/{} {:.2f}", job.model, *job.profile.batch, job.demand);
  }
  fmt::print("\n\n");
}

}  // namespace divvy::bench
