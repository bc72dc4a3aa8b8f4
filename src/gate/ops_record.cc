#include "gate/ops_record.h"

#include <algorithm>
#include <utility>

namespace divvy::gate {
namespace {

constexpr std::size_t kKept = 4096;

// A number that looks drawn and is the same in every run (splitmix).
std::uint64_t Scatter(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15U;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9U;
  value = (value ^ value >> 27) * 0x94d049bb133111ebU;
  return value ^ value >> 31;
}

void Join(OpsInterval& first, const OpsInterval& second) {
  first.end_ns = second.end_ns;
  for (const auto& [op, launches] : second.launches) first.launches[op] += launches;
}

}  // namespace

void OpDurations::Add(std::uint32_t ns) {
  ++count_;
  sum_ns_ += ns;
  // A reservoir: each of the first n is kept with probability kKept / n.
  if (kept_.size() < kKept) {
    kept_.push_back(ns);
  } else if (const std::uint64_t place = Scatter(count_) % count_; place < kKept) {
    kept_[place] = ns;
  }
}

double OpDurations::Mean() const {
  return count_ == 0 ? 0 : sum_ns_ / static_cast<double>(count_) / 1e3;
}

double OpDurations::Quantile(double share) const {
  return QuantileOf({{.durations = this, .launches = 1}}, share);
}

double QuantileOf(const std::vector<TimedPart>& parts, double share) {
  struct Weighted {
    std::uint32_t ns;
    double launches;
  };
  std::vector<Weighted> all;
  double launches = 0;
  for (const TimedPart& part : parts) {
    const std::vector<std::uint32_t>& kept = part.durations->kept();
    if (kept.empty()) continue;
    launches += static_cast<double>(part.launches);
    const double each = static_cast<double>(part.launches) / static_cast<double>(kept.size());
    for (const std::uint32_t ns : kept) all.push_back({.ns = ns, .launches = each});
  }
  if (all.empty()) return 0;
  std::ranges::sort(all, {}, &Weighted::ns);
  // The smallest at or below which such a share lies. A little less: sums of parts are not exact.
  const double wanted = share * launches * (1 - 1e-9);
  double below = 0;
  for (const Weighted& each : all) {
    below += each.launches;
    if (below >= wanted) return each.ns / 1e3;
  }
  return all.back().ns / 1e3;
}

std::size_t OpsRecord::AddProcess(OpsProcess process) {
  // Time begins with the first of them; those of one look come in any order.
  if (intervals_.empty() && (processes_.empty() || process.start_ns < current_.begin_ns))
    current_.begin_ns = process.start_ns;
  processes_.push_back(std::move(process));
  return processes_.size() - 1;
}

std::size_t OpsRecord::AddOp(std::size_t process, const OpFacts& facts, std::string kernel) {
  ops_.push_back({.process = process,
                  .kernel = std::move(kernel),
                  .facts = facts,
                  .launches = 0,
                  .durations = {}});
  return ops_.size() - 1;
}

void OpsRecord::SetLogState(std::size_t process, const OpsLogState& state) {
  processes_[process].log = state;
}

void OpsRecord::CountTo(std::size_t op, std::uint64_t launches) {
  if (launches <= ops_[op].launches) return;
  current_.launches[op] += launches - ops_[op].launches;
  ops_[op].launches = launches;
}

void OpsRecord::AddSample(std::size_t op, const OpSample& sample) {
  ops_[op].durations.Add(sample.duration_ns);
  if (!keep_samples_ || offered_++ % keep_every_ != 0) return;
  samples_.push_back({.op = op, .sample = sample});
  if (samples_.size() < kMostSamples) return;
  for (std::size_t i = 0; 2 * i < samples_.size(); ++i) samples_[i] = samples_[2 * i];
  samples_.resize((samples_.size() + 1) / 2);
  keep_every_ *= 2;
}

void OpsRecord::EndInterval(std::uint64_t now_ns) {
  if (processes_.empty() ||
      now_ns < current_.begin_ns + std::max<std::uint64_t>(1, least_interval_ns_))
    return;
  current_.end_ns = now_ns;
  intervals_.push_back(
      std::exchange(current_, OpsInterval{.begin_ns = now_ns, .end_ns = 0, .launches = {}}));
  if (intervals_.size() < kMostIntervals) return;
  for (std::size_t i = 0; 2 * i + 1 < intervals_.size(); ++i) {
    OpsInterval joined = std::move(intervals_[2 * i]);
    Join(joined, intervals_[2 * i + 1]);
    intervals_[i] = std::move(joined);
  }
  static_assert(kMostIntervals % 2 == 0);
  intervals_.resize(intervals_.size() / 2);
  // As long as those before, from now on.
  least_interval_ns_ = intervals_.front().end_ns - intervals_.front().begin_ns;
}

}  // namespace divvy::gate
