#include "planner/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "planner/advice_modes.h"

namespace divvy::planner {
namespace {

using workload::JobClass;

// A mode must promise this much more than one that stands before it in the order of
// preference: below it the model cannot tell them apart.
constexpr double kClearlyBetter = 1.05;

// What to prefer among equals. MPS needs nothing and hands over what a job leaves idle;
// MIG does not; shares and time slices lose to it in the study's every mix.
constexpr std::array<SharingMode, 4> kPreference = {SharingMode::kMps, SharingMode::kTimeSlicing,
                                                    SharingMode::kMig, SharingMode::kMpsShares};

class Adviser {
 public:
  Adviser(const AdviceRequest& request, Advice& advice) : request_(request), advice_(advice) {}

  void Decide() {
    if (request_.jobs.size() == 1) {
      return Take(SharingMode::kOneByOne, "there is one job, and nothing to share with.");
    }
    if (!advice_.outlook(SharingMode::kOneByOne).impossible.empty()) {
      return Take(SharingMode::kOneByOne, advice_.outlook(SharingMode::kOneByOne).impossible + ".");
    }
    if (request_.isolate) return DecideApart();
    const bool latency = HasJob(JobClass::kLatency);
    if (latency && HasJob(JobClass::kBatch)) return DecideMixed();
    return DecideByThroughput(latency);
  }

 private:
  bool HasJob(JobClass job_class) const {
    return std::ranges::any_of(request_.jobs,
                               [&](const auto& job) { return job.job_class == job_class; });
  }

  bool Possible(SharingMode mode) const { return advice_.outlook(mode).impossible.empty(); }

  void Take(SharingMode mode, std::string reason) {
    advice_.recommended = mode;
    advice_.reason = std::move(reason);
  }

  double TotalDemand() const {
    double total = 0;
    for (const Demand& demand : advice_.demands) total += demand.share;
    return total;
  }

  void DecideApart() {
    const ModeOutlook& mig = advice_.outlook(SharingMode::kMig);
    if (!mig.impossible.empty()) {
      return Take(SharingMode::kOneByOne,
                  fmt::format("only MIG keeps jobs apart, and {}.", mig.impossible));
    }
    Take(SharingMode::kMig,
         fmt::format("only MIG gives each job memory and SMs of its own; they do {:.2f} times the "
                     "work of one job at a time.",
                     mig.throughput));
  }

  // Somebody waits for answers while others train.
  void DecideMixed() {
    if (Possible(SharingMode::kGate)) {
      double least = 1;
      for (const JobOutlook& job : advice_.outlook(SharingMode::kGate).jobs) {
        least = std::min(least, job.speed);
      }
      return Take(
          SharingMode::kGate,
          fmt::format("a latency job shares with batch work: the gate lets batch kernels run "
                      "only while no request does, which leaves batch jobs at least {:.0f} % "
                      "of their speed.",
                      100 * least));
    }
    Take(SharingMode::kOneByOne, fmt::format("the set {}: give the latency job a GPU of its own.",
                                             advice_.outlook(SharingMode::kGate).impossible));
  }

  // Jobs of one kind: the mode that does most, if that is worth it. Latency jobs cannot
  // take turns, so for them any mode will do that fits.
  void DecideByThroughput(bool latency) {
    const ModeOutlook* best = nullptr;
    for (const SharingMode mode : kPreference) {
      const ModeOutlook& outlook = advice_.outlook(mode);
      if (!outlook.impossible.empty()) continue;
      if (best == nullptr || outlook.throughput > best->throughput * kClearlyBetter) {
        best = &outlook;
      }
    }
    if (best == nullptr) {
      return Take(
          SharingMode::kOneByOne,
          fmt::format("the set {}.", advice_.outlook(SharingMode::kTimeSlicing).impossible));
    }
    const double percent = 100 * TotalDemand();
    if (best->throughput < kWorthSharing && !latency) {
      return Take(
          SharingMode::kOneByOne,
          fmt::format("the jobs want {:.0f} % of the GPU between them, so that the best way "
                      "of sharing ({}) would do {:.2f} times the work of one job at a time, "
                      "less than the {:.2f} that make it worth it.",
                      percent, NameOf(best->mode), best->throughput, kWorthSharing));
    }
    Take(
        best->mode,
        fmt::format("the jobs want {:.0f} % of the GPU between them{}, and under {} they do {:.2f} "
                    "times the work of one job at a time.",
                    percent, MemoryClause(), NameOf(best->mode), best->throughput));
  }

  std::string MemoryClause() const {
    const auto memory = MemoryTogether(request_);
    if (!memory || !request_.memory_gib) return {};
    return fmt::format(" and {:.1f} of its {:.1f} GiB", *memory, *request_.memory_gib);
  }

  const AdviceRequest& request_;
  Advice& advice_;
};

std::vector<std::string> NotesOn(const AdviceRequest& request, const Advice& advice) {
  std::vector<std::string> notes;
  bool power = false;
  for (std::size_t i = 0; i < request.jobs.size(); ++i) {
    const auto& job = request.jobs[i];
    if (!job.profile.memory_gib) {
      notes.push_back(
          fmt::format("{}: its memory is not known; that it fits is assumed", job.name));
    }
    if (advice.demands[i].is_guess) {
      notes.push_back(
          fmt::format("{}: nothing tells how much of the GPU it needs; give its "
                      "utilisation or, better, its power",
                      job.name));
    }
    power = power || (job.profile.power_w && !request.power_w);
  }
  if (power) notes.push_back("power says nothing without the GPU's limit: give gpu's 'power'");
  if (!request.memory_gib)
    notes.push_back("the GPU's memory is not known; that all fits is assumed");
  return notes;
}

}  // namespace

std::string_view Describe(Odds odds) {
  switch (odds) {
    case Odds::kLikely:
      return "likely";
    case Odds::kPerhaps:
      return "perhaps";
    case Odds::kUnlikely:
      return "unlikely";
  }
  return "";
}

Advice Advise(const AdviceRequest& request) {
  Check(!request.jobs.empty(), "advice is about one job at least");
  Advice advice;
  for (const auto& job : request.jobs) {
    advice.demands.push_back(EstimateDemand(job.profile, request.power_w));
  }
  advice.modes = OutlookOfModes(request, advice.demands);
  Adviser(request, advice).Decide();
  advice.notes = NotesOn(request, advice);
  return advice;
}

}  // namespace divvy::planner
