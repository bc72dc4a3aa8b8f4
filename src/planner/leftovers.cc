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

// What the models and jobs of a GPU take of it.
struct Taken {
  double busy = 0;        // Of a job nobody knows when it rests.
  double memory_gib = 0;  // Of models as far as it was measured, of jobs all of their instances'.
};

double MemoryOf(const Problem& problem, const Replica& replica) {
  const gpu::MigProfile& instance = problem.gpu->profile(replica.instance.profile);
  if (replica.kind == Replica::Kind::kJob) return instance.memory_mib.value_or(0) / 1024.0;
  const workload::ModelProfile& measured = *problem.models[replica.index].profile;
  const workload::ProfileCurve* const curve = measured.Find(instance, replica.processes);
  return curve == nullptr ? 0 : curve->MemoryMib(replica.max_batch).value_or(0) / 1024.0;
}

// By GPU; nothing for one without a model.
std::vector<std::optional<Taken>> TakenOf(const Problem& problem, const Deployment& deployment) {
  const std::vector<ModelFigures> figures = Assess(problem, deployment);
  std::vector<std::optional<Taken>> taken(deployment.gpus.size());
  for (std::size_t i = 0; i < deployment.gpus.size(); ++i) {
    Taken all;
    for (const Replica& replica : deployment.gpus[i]) {
      if (replica.kind == Replica::Kind::kIdle) continue;
      double load = 1;
      if (replica.kind == Replica::Kind::kModel) {
        const ModelFigures& model = figures[replica.index];
        if (model.capacity > 0) load = std::min(1.0, model.demand / model.capacity);
        taken[i].emplace();
      }
      all.busy += load * PartOf(*problem.gpu, replica.instance.profile);
      all.memory_gib += MemoryOf(problem, replica);
    }
    if (taken[i]) taken[i] = all;
  }
  return taken;
}

// GiB of the largest instance: about all that there is.
std::optional<double> MostMemory(const gpu::GpuModel& gpu) {
  std::optional<double> most;
  for (const gpu::ProfileIndex profile : gpu.Select(gpu::ProfileSet::kBase)) {
    const auto& mib = gpu.profile(profile).memory_mib;
    if (mib) most = std::max(most.value_or(0), *mib / 1024.0);
  }
  return most;
}

// The outlook of a job under the gate beside what a GPU has.
Advice AdviceBeside(const Problem& problem, const Taken& taken, const CollocatedJob& job,
                    std::optional<double> power_w) {
  CollocatedJob services{.name = job.name + " and services"};
  services.job_class = JobClass::kLatency;
  services.profile.utilisation = std::min(1.0, taken.busy);
  services.profile.memory_gib = taken.memory_gib;
  return Advise({.gpu_name = problem.gpu->name,
                 .gpu = problem.gpu,
                 .memory_gib = MostMemory(*problem.gpu),
                 .power_w = power_w,
                 .jobs = {services, job}});
}

// Of the GPUs with services that hold it too, the calmest.
void AdviseBesideServices(const Problem& problem, const std::vector<std::optional<Taken>>& taken,
                          const CollocatedJob& job, std::optional<double> power_w,
                          LeftoverAdvice& advice) {
  std::vector<std::size_t> calmest_first;
  for (std::size_t i = 0; i < taken.size(); ++i) {
    if (taken[i]) calmest_first.push_back(i);
  }
  std::ranges::stable_sort(calmest_first, {}, [&](std::size_t i) { return taken[i]->busy; });
  advice.why_not_beside = "no GPU has a service";
  for (const std::size_t i : calmest_first) {
    const Advice sharing = AdviceBeside(problem, *taken[i], job, power_w);
    const ModeOutlook& gate = sharing.outlook(SharingMode::kGate);
    if (i == calmest_first.front()) advice.why_not_beside = gate.impossible;
    if (!gate.impossible.empty()) continue;
    const JobOutlook& outlook = gate.jobs.back();
    advice.beside = BesidePlace{i, taken[i]->busy, {outlook.speed, outlook.low, outlook.high}};
    advice.why_not_beside.clear();
    return;
  }
}

}  // namespace

std::vector<LeftoverAdvice> JobsInLeftovers(const Problem& problem, const Deployment& deployment,
                                            const std::vector<CollocatedJob>& jobs,
                                            std::optional<double> power_w) {
  std::vector<gpu::MigLayout> layouts = FreeLayouts(problem, deployment);
  const auto taken = TakenOf(problem, deployment);
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
    AdviseBesideServices(problem, taken, job, power_w, one);
    advice.push_back(std::move(one));
  }
  return advice;
}

}  // namespace divvy::planner
