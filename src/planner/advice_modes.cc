#include "planner/advice_modes.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "gpu/enumerate.h"

namespace divvy::planner {
namespace {

using workload::CollocatedJob;
using workload::JobClass;

// An MPS server's own memory; its clients have contexts of their own.
constexpr double kMpsServerGib = 0.1;
// By its documentation, from Volta on.
constexpr std::size_t kMostMpsClients = 48;

// Every job may exceed its allowance by so much, in prediction, for the odds to be called
// so: the model leans to the middle. Chosen on Gavel's pairs: a predicted 80 % for 85 %,
// and 70 % for 85 %.
constexpr double kLikelyFactor = 1.417;
constexpr double kPerhapsFactor = 2.43;

// Tail latency of inference beside training over that alone, measured on one H200 with one
// pair (bench/results/gate.md): "tight" gate, percentages, time slices, plain MPS.
constexpr double kGateTail = 1.25;
constexpr double kMpsSharesTail = 1.8;
constexpr double kTimeSlicingTail = 3.9;
constexpr double kMpsTail = 66;

// Beside inference that keeps the GPU busy for 20 % of the time, training under the gate
// took 1.14 times as long there.
constexpr double kGateCost = 0.7;

bool HasClass(const AdviceRequest& request, JobClass job_class) {
  return std::ranges::any_of(request.jobs,
                             [&](const CollocatedJob& job) { return job.job_class == job_class; });
}

std::vector<std::optional<double>> StepsOf(const std::vector<CollocatedJob>& jobs) {
  std::vector<std::optional<double>> steps;
  for (const CollocatedJob& job : jobs) steps.push_back(job.profile.steps_per_second);
  return steps;
}

// The outlook of a job that takes `extra` longer, uncertain by a factor of e to `error`, and is at
// `most` so fast.
JobOutlook Slowed(double extra, double error, double most) {
  return {.speed = std::min(most, 1 / (1 + extra)),
          .low = std::min(most, 1 / (1 + extra * std::exp(error))),
          .high = std::min(most, 1 / (1 + extra * std::exp(-error))),
          .share = {},
          .p99 = {}};
}

void Conclude(const AdviceRequest& request, ModeOutlook& outlook) {
  outlook.throughput = 0;
  double worst = 0;
  for (const JobOutlook& job : outlook.jobs) {
    outlook.throughput += job.speed;
    worst = std::max(worst, 1 / job.speed - 1);
  }
  const double allowed = 1 / request.keep - 1;
  outlook.keeps = Odds::kUnlikely;
  if (worst <= allowed * kPerhapsFactor) outlook.keeps = Odds::kPerhaps;
  if (worst <= allowed * kLikelyFactor) outlook.keeps = Odds::kLikely;
}

std::string TooLarge(double needed, double there) {
  return fmt::format(
      "needs {:.1f} GiB of memory with CUDA's contexts, {:.1f} more than the {:.1f} there are",
      needed, needed - there, there);
}

// One after the other: each has the GPU to itself.
ModeOutlook OneByOne(const AdviceRequest& request) {
  ModeOutlook outlook{.mode = SharingMode::kOneByOne};
  for (const CollocatedJob& job : request.jobs) {
    outlook.jobs.emplace_back();
    const auto& memory = job.profile.memory_gib;
    if (!memory) continue;
    const double needed = *memory + kContextGib;
    outlook.memory_gib = std::max(outlook.memory_gib.value_or(0), needed);
    if (request.memory_gib && needed > *request.memory_gib) {
      outlook.impossible =
          fmt::format("{} alone {}", job.name, TooLarge(needed, *request.memory_gib));
    }
  }
  if (!outlook.impossible.empty()) outlook.jobs.clear();
  outlook.throughput = 1;
  outlook.keeps = Odds::kLikely;
  return outlook;
}

// What of the GPU's time a job's kernels take alone; under MPS, of its SMs' time. 0 if nobody
// knows.
double LoadOf(const CollocatedJob& job, bool mps) {
  return (mps ? job.profile.sm_activity : job.profile.utilisation).value_or(0);
}

// However little they disturb each other: of the GPU's time, of which `there` is to be had, each
// job gets what it needs or an equal part of what the others leave.
std::vector<double> MostSpeeds(const std::vector<CollocatedJob>& jobs, bool mps, double there) {
  std::vector<double> loads;
  for (const CollocatedJob& job : jobs) loads.push_back(LoadOf(job, mps));
  std::vector<double> sorted = loads;
  std::ranges::sort(sorted);
  double part = 0;
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    part = there / static_cast<double>(sorted.size() - i);
    if (sorted[i] > part) break;
    there -= sorted[i];
  }
  std::vector<double> speeds;
  for (const double load : loads) speeds.push_back(load > part ? part / load : 1);
  return speeds;
}

// What others add to each job's time. The model knows pairs; among more a job has an equal turn of
// the GPU when it wants it, by time slicing for as long as its kernels run, under MPS as far as it
// feels the SMs, and fares no better than in the worst of the pairs.
std::vector<double> ExtraTimes(const InterferenceModel& model, bool mps,
                               const std::vector<CollocatedJob>& jobs,
                               const std::vector<Demand>& demands) {
  const auto steps = StepsOf(jobs);
  const auto exposures = Exposures(demands, steps);
  std::vector<double> extras;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    double most = mps ? demands[i].share : jobs[i].profile.utilisation.value_or(1);
    most *= static_cast<double>(jobs.size() - 1);
    for (std::size_t j = 0; j < jobs.size(); ++j) {
      if (j == i) continue;
      const std::array pair_demands = {demands[i], demands[j]};
      const std::array pair_steps = {steps[i], steps[j]};
      most = std::max(most, ExtraTime(model, Exposures(pair_demands, pair_steps)[0]));
    }
    extras.push_back(std::min(ExtraTime(model, exposures[i]), most));
  }
  return extras;
}

// Time slicing and MPS: what the interference model says.
ModeOutlook Shared(const AdviceRequest& request, const std::vector<Demand>& demands,
                   SharingMode mode) {
  ModeOutlook outlook{.mode = mode};
  const bool mps = mode == SharingMode::kMps;
  outlook.memory_gib = MemoryTogether(request);
  if (mps && outlook.memory_gib) *outlook.memory_gib += kMpsServerGib;
  if (outlook.memory_gib && request.memory_gib && *outlook.memory_gib > *request.memory_gib) {
    outlook.impossible = TooLarge(*outlook.memory_gib, *request.memory_gib);
    return outlook;
  }
  if (mps && request.jobs.size() > kMostMpsClients) {
    outlook.impossible = fmt::format("MPS takes {} clients at most", kMostMpsClients);
    return outlook;
  }
  const InterferenceModel& model =
      mps ? request.models.mps : request.models.TimeSlicing(request.gpu_name);
  double error = model.error * model.error;
  for (const Demand& demand : demands) error += std::pow(model.demand * demand.error, 2);
  const std::vector<double> extras = ExtraTimes(model, mps, request.jobs, demands);
  const std::vector<double> most = MostSpeeds(request.jobs, mps, 1);
  for (std::size_t i = 0; i < extras.size(); ++i) {
    outlook.jobs.push_back(Slowed(extras[i], std::sqrt(error), most[i]));
  }
  for (std::size_t i = 0; i < request.jobs.size(); ++i) {
    // Beside batch work: a few requests of two latency jobs meet seldom.
    if (request.jobs[i].job_class != JobClass::kLatency) continue;
    if (HasClass(request, JobClass::kBatch))
      outlook.jobs[i].p99 = mps ? kMpsTail : kTimeSlicingTail;
  }
  Conclude(request, outlook);
  return outlook;
}

// In a part of the GPU, whose SMs can do no more work than all of their time.
ExpectedSpeed SpeedIn(double part, const CollocatedJob& job, const Demand& demand) {
  const double activity = LoadOf(job, /*mps=*/true);
  const double most = activity > part ? part / activity : 1;
  const ExpectedSpeed expected = ExpectedInPart(demand, part);
  return {.speed = std::min(expected.speed, most),
          .low = std::min(expected.low, most),
          .high = std::min(expected.high, most)};
}

// Each job in its part of the SMs; memory and caches are still shared, which costs what two
// idle jobs cost each other.
ModeOutlook MpsShares(const AdviceRequest& request, const std::vector<Demand>& demands) {
  ModeOutlook outlook = Shared(request, demands, SharingMode::kMps);
  outlook.mode = SharingMode::kMpsShares;
  if (!outlook.impossible.empty()) return outlook;
  const auto shares = SharesByDemand(demands);
  const double meeting =
      std::exp(request.models.mps.base) * static_cast<double>(demands.size() - 1);
  for (std::size_t i = 0; i < demands.size(); ++i) {
    JobOutlook& job = outlook.jobs[i];
    const ExpectedSpeed alone = SpeedIn(shares[i] / 100.0, request.jobs[i], demands[i]);
    job.speed = alone.speed / (1 + meeting);
    job.low = alone.low / (1 + meeting);
    job.high = alone.high / (1 + meeting);
    job.share = fmt::format("{}%", shares[i]);
    if (job.p99) job.p99 = kMpsSharesTail;
  }
  Conclude(request, outlook);
  return outlook;
}

// Finds who gets which instance so that the sum of speeds is highest.
class InstanceDealer {
 public:
  InstanceDealer(const AdviceRequest& request, const std::vector<Demand>& demands)
      : request_(request), demands_(demands), chosen_(demands.size()) {}

  // Tries one multiset of instances.
  void Try(const std::vector<gpu::ProfileIndex>& instances) {
    if (instances.size() < demands_.size()) return;
    taken_.assign(instances.size(), false);
    Deal(instances, 0, 0);
  }

  // Empty when no multiset has room for all.
  const std::vector<gpu::ProfileIndex>& best() const { return best_; }

  double Part(gpu::ProfileIndex profile) const {
    return static_cast<double>(request_.gpu->profile(profile).compute_slices) /
           request_.gpu->compute_slices;
  }

 private:
  bool Fits(std::size_t job, gpu::ProfileIndex profile) const {
    const auto& memory = request_.jobs[job].profile.memory_gib;
    const auto& there = request_.gpu->profile(profile).memory_mib;
    return !memory || !there || *memory + kContextGib <= *there / 1024.0;
  }

  void Deal(const std::vector<gpu::ProfileIndex>& instances, std::size_t job, double sum) {
    if (job == demands_.size()) {
      if (sum > best_sum_) {
        best_sum_ = sum;
        best_ = chosen_;
      }
      return;
    }
    // What is left can add no more than one each.
    if (sum + static_cast<double>(demands_.size() - job) <= best_sum_) return;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      // Like instances stand together: the first free one speaks for the others.
      const bool repeated = i > 0 && instances[i] == instances[i - 1] && !taken_[i - 1];
      if (taken_[i] || repeated || !Fits(job, instances[i])) continue;
      taken_[i] = true;
      chosen_[job] = instances[i];
      Deal(instances, job + 1,
           sum + SpeedIn(Part(instances[i]), request_.jobs[job], demands_[job]).speed);
      taken_[i] = false;
    }
  }

  const AdviceRequest& request_;
  const std::vector<Demand>& demands_;
  std::vector<gpu::ProfileIndex> chosen_;
  std::vector<bool> taken_;
  std::vector<gpu::ProfileIndex> best_;
  double best_sum_ = 0;
};

ModeOutlook Mig(const AdviceRequest& request, const std::vector<Demand>& demands) {
  ModeOutlook outlook{.mode = SharingMode::kMig};
  if (request.gpu == nullptr) {
    outlook.impossible = fmt::format("{} is none of the GPUs that MIG cuts", request.gpu_name);
    return outlook;
  }
  outlook.memory_gib = MemoryTogether(request);
  InstanceDealer dealer(request, demands);
  const auto profiles = request.gpu->Select(gpu::ProfileSet::kBase);
  std::size_t most = 0;
  for (const auto& instances :
       gpu::DistinctMultisets(gpu::EnumerateMaximalLayouts(*request.gpu, profiles))) {
    most = std::max(most, instances.size());
    dealer.Try(instances);
  }
  if (dealer.best().empty()) {
    outlook.impossible =
        demands.size() > most
            ? fmt::format("{} has {} instances at most", request.gpu->name, most)
            : fmt::format("no cut of {} has an instance with enough memory for every job",
                          request.gpu->name);
    return outlook;
  }
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const ExpectedSpeed expected =
        SpeedIn(dealer.Part(dealer.best()[i]), request.jobs[i], demands[i]);
    JobOutlook job{.speed = expected.speed,
                   .low = expected.low,
                   .high = expected.high,
                   .share = request.gpu->profile(dealer.best()[i]).name,
                   .p99 = {}};
    if (request.jobs[i].job_class == JobClass::kLatency) job.p99 = 1 / job.speed;
    outlook.jobs.push_back(std::move(job));
  }
  Conclude(request, outlook);
  return outlook;
}

// Batch jobs wait while latency jobs keep the GPU busy, and share it among themselves by
// time slices.
ModeOutlook Gate(const AdviceRequest& request, const std::vector<Demand>& demands) {
  ModeOutlook outlook = Shared(request, demands, SharingMode::kTimeSlicing);
  outlook.mode = SharingMode::kGate;
  if (!HasClass(request, JobClass::kLatency) || !HasClass(request, JobClass::kBatch)) {
    outlook.impossible = "the gate needs a latency job and a batch job";
    outlook.jobs.clear();
  }
  if (!outlook.impossible.empty()) return outlook;
  double busy = 0;
  std::vector<Demand> batch;
  std::vector<CollocatedJob> batch_jobs;
  for (std::size_t i = 0; i < demands.size(); ++i) {
    const CollocatedJob& job = request.jobs[i];
    if (job.job_class == JobClass::kLatency) {
      busy += job.profile.utilisation.value_or(demands[i].share);
    } else {
      batch.push_back(demands[i]);
      batch_jobs.push_back(job);
    }
  }
  const InterferenceModel& model = request.models.TimeSlicing(request.gpu_name);
  const std::vector<double> extras = ExtraTimes(model, /*mps=*/false, batch_jobs, batch);
  const std::vector<double> most =
      MostSpeeds(batch_jobs, /*mps=*/false, 1 / (1 + kGateCost * busy));
  std::size_t next = 0;
  for (std::size_t i = 0; i < demands.size(); ++i) {
    if (request.jobs[i].job_class == JobClass::kLatency) {
      outlook.jobs[i] = {};
      outlook.jobs[i].p99 = kGateTail;
      continue;
    }
    const bool several = batch.size() > 1;
    const double among = several ? extras[next] : 0;
    outlook.jobs[i] =
        Slowed(kGateCost * busy + among, several ? model.error : 0.5, several ? most[next] : 1);
    ++next;
  }
  Conclude(request, outlook);
  return outlook;
}

}  // namespace

std::vector<int> SharesByDemand(const std::vector<Demand>& demands) {
  constexpr double kLeast = 0.1;
  double total = 0;
  for (const Demand& demand : demands) total += std::max(demand.share, kLeast);
  std::vector<int> shares;
  for (const Demand& demand : demands) {
    shares.push_back(std::max(1, static_cast<int>(100 * std::max(demand.share, kLeast) / total)));
  }
  return shares;
}

std::optional<double> MemoryTogether(const AdviceRequest& request) {
  double total = 0;
  for (const CollocatedJob& job : request.jobs) {
    if (!job.profile.memory_gib) return std::nullopt;
    total += *job.profile.memory_gib + kContextGib;
  }
  return total;
}

std::vector<ModeOutlook> OutlookOfModes(const AdviceRequest& request,
                                        const std::vector<Demand>& demands) {
  return {OneByOne(request),
          Shared(request, demands, SharingMode::kTimeSlicing),
          Shared(request, demands, SharingMode::kMps),
          MpsShares(request, demands),
          Mig(request, demands),
          Gate(request, demands)};
}

}  // namespace divvy::planner
