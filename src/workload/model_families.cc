#include "workload/model_families.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace divvy::workload {
namespace {

struct Family {
  std::string_view name;
  int small_batch;
  double small_demand;
  int large_batch;
  double large_demand;
};

// `advice_bench` prints these: least squares over the slices, relative errors.
constexpr std::array<Family, 8> kFamilies = {{
    {"bert", 2, 0.56, 8, 0.80},
    {"cyclegan", 1, 0.45, 4, 0.83},
    {"deepspeech2", 2, 0.34, 16, 0.74},
    {"embedding", 64, 0.09, 512, 0.53},
    {"gnn", 64, 0.27, 512, 0.59},
    {"mobilenet", 64, 0.04, 512, 0.19},
    {"resnet", 64, 0.07, 512, 0.52},
    {"transformer", 16, 0.74, 128, 0.82},
}};

}  // namespace

std::vector<std::string_view> KnownFamilies() {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) names.push_back(family.name);
  return names;
}

std::optional<double> FamilyDemand(std::string_view family, std::optional<int> batch) {
  const auto found = std::ranges::find(kFamilies, family, &Family::name);
  if (found == kFamilies.end()) return std::nullopt;
  if (!batch) return found->large_demand;
  const double width = std::log(static_cast<double>(found->large_batch) / found->small_batch);
  const double at = std::log(static_cast<double>(*batch) / found->small_batch) / width;
  return std::lerp(found->small_demand, found->large_demand, std::clamp(at, 0.0, 1.0));
}

}  // namespace divvy::workload
