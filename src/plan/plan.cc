#include "plan/plan.h"

#include <fmt/format.h>

namespace divvy::plan {

std::string Describe(const GpuRef& ref) {
  if (const int* index = std::get_if<int>(&ref)) return fmt::format("GPU {}", *index);
  return std::get<std::string>(ref);
}

}  // namespace divvy::plan
