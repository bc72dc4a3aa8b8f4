#include "client/summary.h"

#include <algorithm>
#include <map>
#include <utility>

namespace divvy::client {
namespace {

// More sizes than this are put together.
constexpr std::size_t kMostSizes = 12;
constexpr double kTolerableLateness = 0.1;

// Counts requests one by one, and sorts their latencies at the end.
class Tally {
 public:
  void Add(const Record& record, const std::optional<Duration>& slo) {
    ++figures_.sent;
    if (slo) ++figures_.with_slo;
    switch (record.outcome) {
      case Outcome::kAnswered:
        ++figures_.answered;
        figures_.items += static_cast<std::uint64_t>(record.items);
        if (slo) ++(record.latency() <= *slo ? figures_.in_time : figures_.late);
        latencies_.push_back(record.latency());
        return;
      case Outcome::kRefused:
        ++figures_.refused;
        return;
      case Outcome::kFailed:
        ++figures_.failed;
        return;
      case Outcome::kUnanswered:
        ++figures_.unanswered;
        return;
    }
  }

  Figures Take() {
    if (latencies_.empty()) return std::move(figures_);
    std::ranges::sort(latencies_);
    double sum_ms = 0;
    for (const Duration latency : latencies_) sum_ms += Milliseconds(latency);
    figures_.mean = FromMilliseconds(sum_ms / static_cast<double>(latencies_.size()));
    figures_.max = latencies_.back();
    for (const double q : kPercentiles) {
      figures_.percentiles.push_back(EstimateQuantile(latencies_, q));
    }
    return std::move(figures_);
  }

 private:
  Figures figures_;
  std::vector<Duration> latencies_;
};

// 1, 2, 3-4, 5-8, ...: the ends of the range that `items` is in.
std::pair<int, int> Doubling(int items) {
  int most = 1;
  while (most < items) most *= 2;
  return {most / 2 + 1, most};
}

std::vector<Group> BySize(const RunLog& log, std::span<const std::optional<Duration>> slos) {
  std::map<int, std::map<int, Tally>> exact;  // By model and items.
  for (const Record& record : log.records) {
    exact[record.model][record.items].Add(record, slos[static_cast<std::size_t>(record.model)]);
  }
  std::vector<Group> groups;
  for (auto& [model, sizes] : exact) {
    if (sizes.size() < 2) continue;
    if (sizes.size() <= kMostSizes) {
      for (auto& [items, tally] : sizes) groups.push_back({model, items, items, tally.Take()});
      continue;
    }
    std::map<std::pair<int, int>, Tally> ranges;
    for (const Record& record : log.records) {
      if (record.model != model) continue;
      ranges[Doubling(record.items)].Add(record, slos[static_cast<std::size_t>(model)]);
    }
    for (auto& [range, tally] : ranges) {
      groups.push_back({model, range.first, range.second, tally.Take()});
    }
  }
  return groups;
}

std::vector<ReasonCount> CountReasons(const RunLog& log) {
  std::map<std::pair<std::uint16_t, Outcome>, std::uint64_t> counts;
  for (const Record& record : log.records) {
    if (record.outcome == Outcome::kRefused || record.outcome == Outcome::kFailed) {
      ++counts[{record.reason, record.outcome}];
    }
  }
  std::vector<ReasonCount> reasons;
  for (const auto& [key, count] : counts) {
    reasons.push_back({log.reasons[key.first], key.second, count});
  }
  std::ranges::stable_sort(reasons, std::ranges::greater(), &ReasonCount::count);
  return reasons;
}

void AddOwnDelays(const RunLog& log, Summary& summary) {
  std::vector<Duration> lateness;
  for (const Record& record : log.records) {
    lateness.push_back(record.issued - record.scheduled);
    const Duration wait = record.sent - record.issued;
    if (wait > Duration::zero()) ++summary.waited;
    summary.longest_wait = std::max(summary.longest_wait, wait);
  }
  if (lateness.empty()) return;
  std::ranges::sort(lateness);
  constexpr double kP99 = 0.99;
  summary.lateness = EstimateQuantile(lateness, kP99);
  summary.most_late = lateness.back();
}

}  // namespace

std::optional<double> Figures::attainment() const {
  if (with_slo == 0) return std::nullopt;
  return static_cast<double>(in_time) / static_cast<double>(with_slo);
}

double Summary::PerSecond(std::uint64_t count) const {
  return elapsed > Duration::zero() ? static_cast<double>(count) / Seconds(elapsed) : 0;
}

bool Summary::late_ourselves() const {
  if (!lateness || all.percentiles.empty()) return false;
  return Seconds(lateness->value) > kTolerableLateness * Seconds(all.percentiles.front().value);
}

Summary Summarise(const RunLog& log, std::span<const std::optional<Duration>> slos) {
  Summary summary;
  summary.elapsed = log.elapsed;
  Tally all;
  std::vector<Tally> models(slos.size());
  for (const Record& record : log.records) {
    const auto model = static_cast<std::size_t>(record.model);
    all.Add(record, slos[model]);
    models[model].Add(record, slos[model]);
  }
  summary.all = all.Take();
  for (std::size_t i = 0; i < models.size(); ++i) {
    summary.models.push_back({static_cast<int>(i), 1, 1, models[i].Take()});
  }
  summary.sizes = BySize(log, slos);
  summary.reasons = CountReasons(log);
  AddOwnDelays(log, summary);
  return summary;
}

bool Holds(const Summary& summary, double q) {
  return std::ranges::all_of(summary.models, [q](const Group& group) {
    const Figures& figures = group.figures;
    const std::uint64_t good = figures.with_slo > 0 ? figures.in_time : figures.answered;
    return static_cast<double>(good) >= q * static_cast<double>(figures.sent);
  });
}

}  // namespace divvy::client
