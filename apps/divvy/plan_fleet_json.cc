#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "plan/plan_json.h"
#include "plan_fleet_report.h"

namespace divvy::app {
namespace {

// Keys in the order they are written here.
using Json = nlohmann::ordered_json;

// JSON knows no infinity.
Json OrNull(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json ModelsToJson(const PlanReport& report) {
  Json models = Json::array();
  for (std::size_t i = 0; i < report.chosen.figures.size(); ++i) {
    const planner::ModelDemand& model = report.fleet.problem.models[i];
    const planner::ModelFigures& figures = report.chosen.figures[i];
    models.push_back({{"name", model.name},
                      {"rate_rps", model.rate},
                      {"slo_ms", Milliseconds(model.slo)},
                      {"demand_items_per_s", figures.demand},
                      {"capacity_items_per_s", figures.capacity},
                      {"utilization", OrNull(figures.load)},
                      {"headroom", OrNull(1 / figures.load)},
                      {"instances", figures.instances}});
  }
  return models;
}

Json ReplicaToJson(const planner::Problem& problem, std::size_t gpu,
                   const planner::Replica& replica) {
  Json json = {{"gpu", gpu},
               {"start", replica.instance.start},
               {"profile", problem.gpu->profile(replica.instance.profile).name},
               {"model", nullptr},
               {"job", nullptr},
               {"processes", nullptr},
               {"batch", nullptr},
               {"why", replica.why}};
  switch (replica.kind) {
    case planner::Replica::Kind::kModel:
      json["model"] = problem.models[replica.index].name;
      json["processes"] = replica.processes;
      json["batch"] = replica.max_batch;
      break;
    case planner::Replica::Kind::kJob:
      json["job"] = problem.jobs[replica.index].name;
      break;
    case planner::Replica::Kind::kIdle:
      break;
  }
  return json;
}

Json PartitionsToJson(const PlanReport& report) {
  Json partitions = Json::array();
  const auto& gpus = report.chosen.deployment->gpus;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (const planner::Replica& replica : gpus[i]) {
      partitions.push_back(ReplicaToJson(report.fleet.problem, i, replica));
    }
  }
  return partitions;
}

Json RivalToJson(const Rival& rival) {
  const Attempt& attempt = rival.attempt;
  return {{"policy", attempt.policy},
          {"feasible", attempt.carries},
          {"gpus", attempt.carries ? Json(attempt.gpus()) : Json(nullptr)},
          {"gpus_needed", OrNull(rival.gpus_needed)},
          {"max_utilization", OrNull(attempt.fullest)}};
}

Json SpeedToJson(const planner::ExpectedSpeed& speed) {
  return {{"expected", speed.speed}, {"low", speed.low}, {"high", speed.high}};
}

Json LeftoverToJson(const gpu::GpuModel& gpu, const planner::LeftoverAdvice& job) {
  Json json = {{"job", job.job}, {"free", nullptr}, {"beside", nullptr}};
  if (job.free) {
    json["free"] = {{"gpu", job.free->gpu},
                    {"profile", gpu.profile(job.free->instance.profile).name},
                    {"start", job.free->instance.start},
                    {"speed", SpeedToJson(job.free->speed)}};
  } else {
    json["why_not"] = job.why_not;
  }
  if (job.beside) {
    json["beside"] = {{"gpu", job.beside->gpu},
                      {"busy", job.beside->busy},
                      {"speed", SpeedToJson(job.beside->speed)}};
  } else {
    json["why_not_beside"] = job.why_not_beside;
  }
  return json;
}

}  // namespace

std::string PlanToJson(const PlanReport& report) {
  const planner::Problem& problem = report.fleet.problem;
  const Attempt& chosen = report.chosen;
  Json json = {{"feasible", chosen.carries}, {"policy", chosen.policy}};
  json["kind"] = problem.gpu->name;
  json["gpus"] = chosen.deployment ? Json(chosen.gpus()) : OrNull(problem.gpus);
  if (!chosen.carries) {
    const planner::Infeasible& failure = chosen.failure;
    json["why"] = failure.why;
    json["model"] = failure.model ? Json(problem.models[*failure.model].name) : Json(nullptr);
    json["gpus_needed"] = OrNull(failure.gpus_needed);
    json["slo_needed_ms"] =
        failure.slo_needed ? Json(Milliseconds(*failure.slo_needed)) : Json(nullptr);
  }
  if (chosen.deployment) {
    json["proof"] = chosen.proof;
    json["plan"] = plan::ToJson(planner::ToPlan(problem, *chosen.deployment));
    json["models"] = ModelsToJson(report);
    json["partitions"] = PartitionsToJson(report);
  }
  json["baselines"] = Json::array();
  for (const Rival& rival : report.rivals) json["baselines"].push_back(RivalToJson(rival));
  if (!report.leftovers.empty()) {
    json["jobs"] = Json::array();
    for (const planner::LeftoverAdvice& job : report.leftovers) {
      json["jobs"].push_back(LeftoverToJson(*problem.gpu, job));
    }
  }
  json["notes"] = report.fleet.notes;
  return json.dump(2) + "\n";
}

}  // namespace divvy::app
