#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "control/static_cut.h"
#include "planner/deployment.h"
#include "planner/paris.h"

// PARIS plans for serving alone. Its planner reserves what is to be set aside as if it
// were for a training job, and cuts what is left.

namespace divvy::control {
namespace {

using planner::Replica;
using planner::Work;

// Retraining pays off in later windows too.
constexpr int kWindows = 3;

FixedCut CutOf(const Estate& estate, const planner::Deployment& deployment) {
  FixedCut cut;
  for (std::size_t g = 0; g < deployment.gpus.size(); ++g) {
    const int gpu = static_cast<int>(g);
    for (const Replica& replica : deployment.gpus[g]) {
      const Cell cell{gpu, replica.instance, {Work::Kind::kServe, replica.index, 0}};
      // PARIS may give a model an instance on which its SLO does not hold.
      const bool serves =
          replica.kind == Replica::Kind::kModel && OfferAt(estate, cell).capacity > 0;
      if (serves) {
        cut.serving.push_back(cell);
      } else {
        cut.retraining.push_back({gpu, replica.instance});
      }
    }
  }
  return cut;
}

}  // namespace

Result<FixedCut> PlanParisCut(const Estate& estate, planner::Problem problem) {
  problem.gpus = estate.gpus;
  std::vector<std::vector<planner::JobDemand>> reserves = {{}};
  for (const gpu::ProfileIndex profile : estate.gpu->Select(gpu::ProfileSet::kBase)) {
    for (int count = 1; count <= std::min(estate.gpus, 2); ++count) {
      reserves.push_back({{"retraining", profile, count}});
    }
  }
  std::vector<std::vector<double>> loads;
  for (const EstateTenant& tenant : estate.tenants) {
    loads.emplace_back(static_cast<std::size_t>(kWindows * estate.window), tenant.mean_load);
  }
  std::optional<FixedCut> best;
  double most = 0;
  std::string why;
  for (const auto& reserve : reserves) {
    problem.jobs = reserve;
    const planner::Outcome outcome = planner::PlanParis(problem);
    const auto* planned = std::get_if<planner::Planned>(&outcome);
    if (planned == nullptr) {
      if (reserve.empty()) why = std::get<planner::Infeasible>(outcome).why;
      continue;
    }
    FixedCut cut = CutOf(estate, planned->deployment);
    const double goodput = FollowCut(estate, cut, loads).goodput;
    if (best && goodput <= most) continue;
    best = std::move(cut);
    most = goodput;
  }
  if (!best) return Fail(ErrorCode::kInvalidArgument, "no static cut: " + why);
  return *std::move(best);
}

Result<std::unique_ptr<Policy>> ParisCut(const Estate& estate, const planner::Problem& problem) {
  Result<FixedCut> cut = PlanParisCut(estate, problem);
  if (!cut) return Fail(cut.error().code, cut.error().message);
  return std::make_unique<StaticCut>(estate, *std::move(cut), "static");
}

}  // namespace divvy::control
