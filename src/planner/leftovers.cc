#include "planner/leftovers.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace divvy::planner {
namespace {

using workload::CollocatedJob;
using workload::JobClass;

// What each GPU has left, idle instances taken away.
std::vector<gpu::MigLayout> FreeLayouts(const Problem& problem, const Deployment& deployment) {
  std::vector<gpu::MigLayout> layouts;
  for (const std::vector<Replica>& replicas : deployment.gpus) {
    layouts.emplace_back(*problem.gpu);
    for (const Replica& replica : replicas) {
      if (replica.kind == Replica::Kind::kIdle) continue;
      Check(layouts.back().Place(replica.instance).has_value(), "a deployment is legal");
    }
  }
  const auto there = static_cast<std::size_t>(problem.gpus.value_or(0));
  while (layouts.size() < there) layouts.emplace_back(*problem.gpu);
  return layouts;
}

double PartOf(const gpu::GpuModel& gpu, gpu::ProfileIndex profile) {
  return static_cast<double>(gpu.profile(profile).compute_slices) / gpu.compute_slices;
}

// Of the free instances that hold the job: where it is fastest, and of those the smallest.
std::optional<FreePlace> BestFree(const gpu::GpuModel& gpu,
                                  const std::vector<gpu::MigLayout>& layouts,
                                  const CollocatedJob& job, const Demand& demand) {
  std::optional<FreePlace> best;
  for (const gpu::ProfileIndex profile : gpu.Select(gpu::ProfileSet::kBase)) {
    const auto& memory = gpu.profile(profile).memory_mib;
    if (job.profile.memory_gib && memory &&
        *job.profile.memory_gib + kContextGib > *memory / 1024.0) {
      continue;
    }
    const ExpectedSpeed speed = ExpectedInPart(demand, PartOf(gpu, profile));
    if (best && speed.speed <= best->speed.speed) continue;
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      const std::vector<int> starts = layouts[i].FreeStarts(profile);
      if (starts.empty()) continue;
      best = {i, {starts.back(), profile}, speed};
      break;
    }
  }
  return best;
}

// The most memory of any instance that is free, in GiB; 0 when none is.
double MostFreeGib(const gpu::GpuModel& gpu, const std::vector<gpu::MigLayout>& layouts) {
  double most = 0;
  for (const gpu::ProfileIndex profile : gpu.Select(gpu::ProfileSet::kBase)) {
    const bool free = std::ranges::any_of(
        layouts, [&](const gpu::MigLayout& layout) { return !layout.FreeStarts(profile).empty(); });
    if (free) most = std::max(most, gpu.profile(profile).memory_mib.value_or(0) / 1024.0);
  }
  return most;
}

std::string WhyNot(const gpu::GpuModel& gpu, const std::vector<gpu::MigLayout>& layouts,
                   const CollocatedJob& job) {
  const double most = MostFreeGib(gpu, layouts);
  if (most == 0) return "no instance is free";
  return fmt::format(
      "needs {:.1f} GiB with CUDA's context, and no free instance has more than {:.1f}",
      job.profile.memory_gib.value_or(0) + kContextGib, most);
}

// How much of each GPU its models and jobs take; nothing for a GPU without a model. Of a job nobody
// knows when it rests.
std::vector<std::optional<double>> BusyOf(const Problem& problem, const Deployment& deployment) {
  const std::vector<ModelFigures> figures = Assess(problem, deployment);
  std::vector<std::optional<double>> busy(deployment.gpus.size());
  for (std::size_t i = 0; i < deployment.gpus.size(); ++i) {
    double all = 0;
    for (const Replica& replica : deployment.gpus[i]) {
      if (replica.kind == Replica::Kind::kIdle) continue;
      double load = 1;
      if (replica.kind == Replica::Kind::kModel) {
        const ModelFigures& model = figures[replica.index];
        if (model.capacity > 0) load = std::min(1.0, model.demand / model.capacity);
        busy[i] = 0;
      }
      all += load * PartOf(*problem.gpu, replica.instance.profile);
    }
    if (busy[i]) busy[i] = all;
  }
  return busy;
}

// GiB of the largest instance: about all that there is.
std::optional<double> MemoryOf(const gpu::GpuModel& gpu) {
  std::optional<double> most;
  for (const gpu::ProfileIndex profile : gpu.Select(gpu::ProfileSet::kBase)) {
    const auto& mib = gpu.profile(profile).memory_mib;
    if (mib) most = std::max(most.value_or(0), *mib / 1024.0);
  }
  return most;
}

void AdviseBesideServices(const Problem& problem, const std::vector<std::optional<double>>& busy,
                          const CollocatedJob& job, std::optional<double> power_w,
                          LeftoverAdvice& advice) {
  std::optional<std::size_t> calmest;
  for (std::size_t i = 0; i < busy.size(); ++i) {
    if (busy[i] && (!calmest || *busy[i] < *busy[*calmest])) calmest = i;
  }
  if (!calmest) {
    advice.why_not_beside = "no GPU has a service";
    return;
  }
  CollocatedJob services{.name = job.name + " and services"};
  services.job_class = JobClass::kLatency;
  services.profile.utilisation = std::min(1.0, *busy[*calmest]);
  services.profile.memory_gib = 0;  // Theirs comes on top, and is not known here.
  const Advice sharing = Advise({.gpu_name = problem.gpu->name,
                                 .gpu = problem.gpu,
                                 .memory_gib = MemoryOf(*problem.gpu),
                                 .power_w = power_w,
                                 .jobs = {services, job}});
  const ModeOutlook& gate = sharing.outlook(SharingMode::kGate);
  advice.why_not_beside = gate.impossible;
  if (!gate.impossible.empty()) return;
  const JobOutlook& outlook = gate.jobs.back();
  advice.beside =
      BesidePlace{*calmest, *busy[*calmest], {outlook.speed, outlook.low, outlook.high}};
}

}  // namespace

std::vector<LeftoverAdvice> JobsInLeftovers(const Problem& problem, const Deployment& deployment,
                                            const std::vector<CollocatedJob>& jobs,
                                            std::optional<double> power_w) {
  std::vector<gpu::MigLayout> layouts = FreeLayouts(problem, deployment);
  const auto busy = BusyOf(problem, deployment);
  std::vector<LeftoverAdvice> advice;
  for (const CollocatedJob& job : jobs) {
    LeftoverAdvice one{.job = job.name, .demand = EstimateDemand(job.profile, power_w)};
    if (job.job_class == JobClass::kLatency) {
      one.why_not = one.why_not_beside = "somebody waits for it: it belongs into the fleet";
      advice.push_back(std::move(one));
      continue;
    }
    one.free = BestFree(*problem.gpu, layouts, job, one.demand);
    if (one.free) {
      Check(layouts[one.free->gpu].Place(one.free->instance).has_value(), "it is free");
    } else {
      one.why_not = WhyNot(*problem.gpu, layouts, job);
    }
    AdviseBesideServices(problem, busy, job, power_w, one);
    advice.push_back(std::move(one));
  }
  return advice;
}

}  // namespace divvy::planner
