// How well arrivals are told ahead: on Azure's two traces of LLM requests, in slots of
// 1 s and 10 s, and on two made-up loads, one that repeats itself and one in bursts.
//
// Three tables by horizon, over the second half of each load, since the forecasters'
// constants were chosen on the first: the mean absolute error of the mean, against
// that of the last value; the pinball loss of the quantile 0.8, as a share of the mean
// arrivals a slot; and how often what came was at or below that quantile. A star marks
// the best of a row.
//
// Needs DIVVY_DATA with azure_llm_inference_2023. The exit status is 1 when `best` is
// no better than the best simple baseline on the traces, by pinball loss over the
// horizons of 10 s to 60 s that a controller plans for.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "base/random.h"
#include "control/forecast.h"
#include "published_data.h"
#include "workload/trace_file.h"

namespace divvy::bench {
namespace {

constexpr double kQuantile = 0.8;
constexpr std::string_view kSimple[] = {"ewma", "seasonal-naive"};

struct Series {
  std::string name;
  int slot_s = 1;
  int season = 0;  // Slots.
  bool published = false;
  std::vector<double> counts;
};

// Of one forecaster at one horizon, summed over slots.
struct Score {
  double absolute = 0;
  double pinball = 0;
  double covered = 0;
  double slots = 0;
  double came = 0;
};

// By forecaster, then by horizon in seconds.
using Scores = std::map<std::string_view, std::map<int, Score>>;

std::vector<double> CountsOf(const workload::ModelTrace& trace, int slot_s) {
  // The last slot is not a whole one.
  const auto slots = static_cast<std::size_t>(Seconds(trace.arrivals.back().at) / slot_s);
  std::vector<double> counts(slots);
  for (const workload::Arrival& arrival : trace.arrivals) {
    const auto slot = static_cast<std::size_t>(Seconds(arrival.at) / slot_s);
    if (slot < slots) ++counts[slot];
  }
  return counts;
}

double Poisson(double mean, Random& random) {
  double count = 0;
  for (double at = random.Exponential(); at < mean; at += random.Exponential()) ++count;
  return count;
}

// A day of ten minutes, each slot off by a factor of its own.
Series DailyLoad() {
  Series series{.name = "made-up day", .season = 600, .counts = {}};
  Random random(11);
  for (int slot = 0; slot < 3600; ++slot) {
    const double day = 1 + 0.8 * std::sin(2 * std::numbers::pi * slot / 600);
    series.counts.push_back(Poisson(20 * day * random.Gamma(10) / 10, random));
  }
  return series;
}

// Two levels, one ten times the other, for 40 s and 20 s on average.
Series BurstyLoad() {
  Series series{.name = "made-up bursts", .counts = {}};
  Random random(12);
  bool burst = false;
  for (int slot = 0; slot < 3600; ++slot) {
    if (random.Uniform() < (burst ? 1.0 / 20 : 1.0 / 40)) burst = !burst;
    series.counts.push_back(Poisson(burst ? 20 : 2, random));
  }
  return series;
}

std::vector<int> HorizonsOf(const Series& series) {
  if (series.slot_s == 1) return {1, 10, 30, 60, 200};
  return {10, 30, 60, 200};
}

std::map<int, Score> Judge(std::string_view name, const Series& series) {
  auto made = control::MakeForecaster(name, {.season = series.season});
  control::Forecaster& forecaster = **made;
  const std::vector<int> horizons = HorizonsOf(series);
  const auto farthest = static_cast<std::size_t>(horizons.back() / series.slot_s);
  std::map<int, Score> scores;
  for (std::size_t slot = 0; slot + farthest < series.counts.size(); ++slot) {
    forecaster.Observe(series.counts[slot]);
    if (slot < series.counts.size() / 2) continue;
    const auto mean = forecaster.Mean(static_cast<int>(farthest));
    const auto quantile = forecaster.Quantile(static_cast<int>(farthest), kQuantile);
    for (const int seconds : horizons) {
      const auto ahead = static_cast<std::size_t>(seconds / series.slot_s);
      const double came = series.counts[slot + ahead];
      const double above = came - quantile[ahead - 1];
      Score& score = scores[seconds];
      score.absolute += std::abs(came - mean[ahead - 1]);
      score.pinball += above > 0 ? kQuantile * above : (kQuantile - 1) * above;
      score.covered += above <= 0 ? 1 : 0;
      score.came += came;
      ++score.slots;
    }
  }
  return scores;
}

class Tables {
 public:
  void Add(const Series& series) {
    Scores scores;
    for (const std::string_view name : control::ForecasterNames()) {
      scores[name] = Judge(name, series);
    }
    // Whatever the season: the yardstick is the last value.
    Series unseasonal = series;
    unseasonal.season = 0;
    scores["last value"] = Judge("seasonal-naive", unseasonal);
    judged_.emplace_back(series, std::move(scores));
  }

  void Print() const {
    Print("mean absolute error / that of the last value (less is better)", true,
          [](const Score& score, const Score& last) { return score.absolute / last.absolute; });
    Print("pinball loss at 0.8 / mean arrivals a slot (less is better)", true,
          [](const Score& score, const Score&) { return score.pinball / score.came; });
    Print("slots at or below the quantile 0.8 (0.8 is right)", false,
          [](const Score& score, const Score&) { return score.covered / score.slots; });
  }

  // 0 when `best` is below the simple ones.
  [[nodiscard]] int Conclude() const {
    fmt::print("\npinball loss at 0.8 / that of the last value, mean of 10, 30 and 60 s ahead\n");
    fmt::print("{:<16}{:>8}{:>9}\n", "", "traces", "made-up");
    for (const std::string_view name : control::ForecasterNames()) {
      fmt::print("{:<16}{:>8.4f}{:>9.4f}\n", name, Loss(name, true), Loss(name, false));
    }
    const auto* const simple = std::ranges::min_element(
        kSimple, {}, [&](std::string_view name) { return Loss(name, true); });
    const bool met = Loss("best", true) < Loss(*simple, true);
    fmt::print("best / {} on the traces: {:.3f}, bar below 1: {}\n", *simple,
               Loss("best", true) / Loss(*simple, true), met ? "met" : "MISSED");
    return met ? 0 : 1;
  }

 private:
  template <typename Figure>
  void Print(std::string_view what, bool star, const Figure& figure) const {
    fmt::print("\n{}\n{:<16}{:>6}{:>8}", what, "load", "slot", "ahead");
    for (const std::string_view name : control::ForecasterNames()) fmt::print("{:>16}", name);
    fmt::print("\n");
    for (const auto& [series, scores] : judged_) {
      for (const int seconds : HorizonsOf(series)) {
        const Score& last = scores.at("last value").at(seconds);
        double least = 1e300;
        for (const std::string_view name : control::ForecasterNames()) {
          least = std::min(least, figure(scores.at(name).at(seconds), last));
        }
        fmt::print("{:<16}{:>4} s{:>6} s", series.name, series.slot_s, seconds);
        for (const std::string_view name : control::ForecasterNames()) {
          const double value = figure(scores.at(name).at(seconds), last);
          fmt::print("{:>15.3f}{}", value, star && value <= least ? '*' : ' ');
        }
        fmt::print("\n");
      }
    }
  }

  [[nodiscard]] double Loss(std::string_view name, bool published) const {
    double sum = 0;
    double rows = 0;
    for (const auto& [series, scores] : judged_) {
      if (series.published != published) continue;
      for (const int seconds : {10, 30, 60}) {
        sum += scores.at(name).at(seconds).pinball / scores.at("last value").at(seconds).pinball;
        ++rows;
      }
    }
    return sum / rows;
  }

  std::vector<std::pair<Series, Scores>> judged_;
};

double Median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

// How long a slot of one tenant takes: observing, and 200 slots told ahead.
void PrintCost() {
  using Microseconds = std::chrono::duration<double, std::micro>;
  fmt::print("\nmicroseconds, median: observe a slot; tell a quantile of 200\n");
  const Series series = DailyLoad();
  for (const std::string_view name : control::ForecasterNames()) {
    auto made = control::MakeForecaster(name, {.season = series.season});
    std::vector<double> observe_us;
    std::vector<double> tell_us;
    for (const double count : series.counts) {
      const auto start = std::chrono::steady_clock::now();
      (*made)->Observe(count);
      const auto observed = std::chrono::steady_clock::now();
      const auto told = (*made)->Quantile(200, kQuantile);
      const auto end = std::chrono::steady_clock::now();
      observe_us.push_back(Microseconds(observed - start).count());
      tell_us.push_back(Microseconds(end - observed).count());
    }
    fmt::print("{:<16}{:>8.1f}{:>8.1f}\n", name, Median(observe_us), Median(tell_us));
  }
}

int Main() {
  const auto data = DataFolder();
  if (!data) {
    fmt::print("skipped: set DIVVY_DATA to a folder with Azure's traces\n");
    return 0;
  }
  Tables tables;
  for (const std::string name : {"code", "conv"}) {
    const std::string path =
        *data + "/azure_llm_inference_2023/AzureLLMInferenceTrace_" + name + ".csv";
    const auto trace = workload::ParseTrace(ReadAll(path), path);
    if (!trace) {
      fmt::print("{}\n", trace.error().message);
      return 1;
    }
    for (const int slot_s : {1, 10}) {
      tables.Add({.name = "azure " + name,
                  .slot_s = slot_s,
                  .published = true,
                  .counts = CountsOf(trace->models[0], slot_s)});
    }
  }
  tables.Add(DailyLoad());
  tables.Add(BurstyLoad());
  tables.Print();
  PrintCost();
  return tables.Conclude();
}

}  // namespace
}  // namespace divvy::bench

int main() { return divvy::bench::Main(); }
