#include "plan_input.h"

#include <utility>

#include "plan/plan_file.h"
#include "plan/validate.h"
#include "text_file.h"

namespace divvy::app {

Result<plan::Plan> LoadPlan(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return Fail(text.error());
  auto plan = plan::ParsePlan(*text, NameOfInput(path));
  if (!plan) return Fail(plan.error());
  return Validated(std::move(*plan), NameOfInput(path));
}

Result<plan::Plan> Validated(plan::Plan plan, std::string_view file_name) {
  std::string problems;
  for (const plan::Problem& problem : plan::Validate(plan)) {
    if (!problems.empty()) problems += '\n';
    problems += Describe(problem, file_name);
  }
  if (!problems.empty()) return Fail(ErrorCode::kInvalidArgument, problems);
  return plan;
}

}  // namespace divvy::app
