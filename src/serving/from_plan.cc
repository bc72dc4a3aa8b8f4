#include "serving/from_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "gpu/catalogue.h"

namespace divvy::serving {
namespace {

// "line 7: ", or nothing for a plan that a program made.
std::string Where(const plan::SourceLine& line) {
  return line.number > 0 ? fmt::format("line {}: ", line.number) : "";
}

// For a log-normal time with this mean: ln(p95 / mean) = 1.645 sigma - sigma^2 / 2.
double SigmaOf(const workload::ProfileCurve& curve) {
  constexpr double kZ95 = 1.6449;
  double sum = 0;
  int measured = 0;
  for (const workload::ProfilePoint& point : curve.points) {
    if (!point.p95_ms || *point.p95_ms <= point.latency_ms) continue;
    const double log_ratio = std::min(std::log(*point.p95_ms / point.latency_ms), 1.35);
    sum += kZ95 - std::sqrt(std::max(0.0, kZ95 * kZ95 - 2 * log_ratio));
    ++measured;
  }
  return measured == 0 ? 0 : sum / measured;
}

class Builder {
 public:
  Builder(const plan::Plan& plan, std::span<const ServedModel> models)
      : plan_(plan), models_(models) {
    for (const ServedModel& model : models) built_.setup.models.push_back(model.name);
  }

  Result<PlannedSetup> Build() {
    for (std::size_t i = 0; i < plan_.gpus.size(); ++i) {
      if (auto added = AddGpu(i); !added) return Fail(added.error());
    }
    return std::move(built_);
  }

 private:
  [[nodiscard]] Result<void> AddGpu(std::size_t index) {
    const plan::PlannedGpu& gpu = plan_.gpus[index];
    const auto model = gpu::FindGpuModel(gpu.kind);
    if (!model) return Fail(model.error());
    const bool serves_whole = std::ranges::any_of(gpu.runs, [](const plan::Assignment& run) {
      return run.kind == plan::Assignment::Kind::kModel;
    });
    if (serves_whole) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}{} serves models without MIG; profiles are of MIG instances, so "
                              "cut it, even if into one",
                              Where(gpu.line), plan::Describe(gpu.gpu)));
    }
    for (std::size_t i = 0; i < gpu.instances.size(); ++i) {
      const plan::PlannedInstance& instance = gpu.instances[i];
      const auto profile = (*model)->FindProfile(instance.profile);
      if (!profile) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}{} has no profile {}", Where(instance.line), gpu.kind,
                                instance.profile));
      }
      const auto models = std::ranges::count(instance.runs, plan::Assignment::Kind::kModel,
                                             &plan::Assignment::kind);
      if (models > 1) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}{} models share one {}; profiles are of a model alone on its "
                                "instance, so give each its own",
                                Where(instance.line), models, instance.profile));
      }
      for (const plan::Assignment& run : instance.runs) {
        if (run.kind != plan::Assignment::Kind::kModel) continue;
        auto added = AddReplica({index, i, instance.profile}, (*model)->profile(*profile), run);
        if (!added) return added;
      }
    }
    return {};
  }

  [[nodiscard]] Result<void> AddReplica(ReplicaPlace place, const gpu::MigProfile& profile,
                                        const plan::Assignment& run) {
    const auto model = std::ranges::find(models_, run.name, &ServedModel::name);
    if (model == models_.end()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}the plan runs model '{}', which the fleet does not have",
                              Where(run.line), run.name));
    }
    const workload::ProfileCurve* curve = model->profile->Find(profile, run.processes);
    if (curve == nullptr) {
      return Fail(
          ErrorCode::kInvalidArgument,
          fmt::format("{}'{}' was not measured on {} with {} process{}", Where(run.line), run.name,
                      profile.name, run.processes, run.processes == 1 ? "" : "es"));
    }
    const int batch = run.batch.value_or(curve->largest_batch());
    if (batch > curve->largest_batch()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}batch {} of '{}' on {}: measured up to {} only", Where(run.line),
                              batch, run.name, profile.name, curve->largest_batch()));
    }
    const auto memory = curve->MemoryMib(batch);
    if (memory && profile.memory_mib && *memory > *profile.memory_mib) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}batch {} of '{}' takes {:.0f} MiB, and {} has {}", Where(run.line),
                              batch, run.name, *memory, profile.name, *profile.memory_mib));
    }
    const auto id = static_cast<std::size_t>(model - models_.begin());
    built_.setup.replicas.push_back({.model = static_cast<ModelId>(id),
                                     .size = profile.sms.value_or(profile.compute_slices),
                                     .lanes = run.processes,
                                     .table = TableFor(*curve, batch)});
    built_.places.push_back(std::move(place));
    return {};
  }

  std::size_t TableFor(const workload::ProfileCurve& curve, int batch) {
    const auto [entry, is_new] = tables_.try_emplace({&curve, batch}, built_.setup.tables.size());
    if (is_new) {
      std::vector<Duration> times;
      for (int items = 1; items <= batch; ++items) {
        times.push_back(std::max(Duration(1), FromMilliseconds(*curve.LatencyMs(items))));
      }
      built_.setup.tables.emplace_back(std::move(times));
      built_.spread.push_back(SigmaOf(curve));
    }
    return entry->second;
  }

  const plan::Plan& plan_;
  std::span<const ServedModel> models_;
  std::map<std::pair<const workload::ProfileCurve*, int>, std::size_t> tables_;
  PlannedSetup built_;
};

}  // namespace

Result<PlannedSetup> SetupFromPlan(const plan::Plan& plan, std::span<const ServedModel> models) {
  return Builder(plan, models).Build();
}

}  // namespace divvy::serving
