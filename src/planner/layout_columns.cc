#include "planner/layout_columns.h"

#include <algorithm>

#include "gpu/enumerate.h"

namespace divvy::planner {
namespace {

bool OffersAtLeast(const LayoutColumn& a, const LayoutColumn& b) {
  return std::ranges::equal(a.counts, b.counts, std::ranges::greater_equal());
}

}  // namespace

std::vector<LayoutColumn> LayoutColumns(const gpu::GpuModel& model,
                                        std::span<const gpu::ProfileIndex> profiles) {
  std::vector<LayoutColumn> columns;
  for (const gpu::MigLayout& layout : gpu::EnumerateMaximalLayouts(model, profiles)) {
    LayoutColumn column{layout, std::vector<int>(model.profiles.size())};
    for (const gpu::MigInstance& instance : layout.instances()) {
      ++column.counts[static_cast<std::size_t>(instance.profile)];
    }
    // A maximal layout may still offer less than one with other places: two 1g at
    // bad starts can shut out the 2g that fits beside them elsewhere.
    const auto covers = [&](const LayoutColumn& other) { return OffersAtLeast(other, column); };
    if (std::ranges::any_of(columns, covers)) continue;
    std::erase_if(columns, [&](const LayoutColumn& other) { return OffersAtLeast(column, other); });
    columns.push_back(std::move(column));
  }
  return columns;
}

}  // namespace divvy::planner
