#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "collocate_jobs.h"

namespace divvy::app {

// What the GPU did over a run, kept beside what its jobs printed: a table that is gone on with has
// the timelines of what was run before.
[[nodiscard]] Result<void> SaveTimeline(const std::string& path,
                                        const std::vector<GpuMoment>& moments);
// Empty where there is none, or none that can be read: it only decorates.
[[nodiscard]] std::vector<GpuMoment> LoadTimeline(const std::string& path);

}  // namespace divvy::app
