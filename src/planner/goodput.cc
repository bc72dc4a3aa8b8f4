#include "planner/goodput.h"

#include <algorithm>

#include "planner/goodput_bound.h"
#include "planner/goodput_search.h"

namespace divvy::planner {

GoodputAnswer PlanGoodput(const GoodputProblem& problem, const GoodputOptions& options) {
  GoodputSearch search(problem);
  GoodputAnswer answer;
  answer.stay = search.value();
  using Effort = GoodputSearch::Effort;
  const std::size_t gpus = problem.present.size();
  for (int round = 0; round < options.rounds; ++round) {
    bool better = false;
    for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
      better = search.ImproveGpu(gpu, Effort::kQuick) || better;
    }
    if (round == 0) search.AddRetrainings();
    better = search.ImproveRetrainings() || better;
    if (!better) break;
  }
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) search.ImproveGpu(gpu, Effort::kThorough);
  answer.schedule = search.schedule();
  answer.value = Value(problem, answer.schedule);
  answer.bound =
      std::max(answer.value, GoodputBound(problem, answer.schedule, options.bound_steps));
  return answer;
}

}  // namespace divvy::planner
