#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "measure/closed_loop.h"
#include "measure/journal.h"
#include "measure/partitions.h"
#include "workload/profile.h"

namespace divvy::app {

// What was measured of one batch on one partition, in no more digits than are known.
[[nodiscard]] measure::Point ToPoint(const workload::PartitionSize& size, int processes, int batch,
                                     const measure::Measured& measured);

// The profile that the points make; those of a partition with `same` sizes hold for each of them.
[[nodiscard]] workload::ModelProfile ToProfile(const std::string& model, const std::string& gpu,
                                               const std::string& source,
                                               const std::vector<measure::Partition>& partitions,
                                               const std::vector<measure::Point>& points);

// "measured 2026-11-16, WHERE, divvy 0.1.0 (abc1234), COMMAND", cut to what a profile's source
// may be.
[[nodiscard]] std::string SourceText(std::string_view date, std::string_view where,
                                     std::string_view command);

// For people, and for programs.
[[nodiscard]] std::string PointsTable(const std::vector<measure::Point>& points);
[[nodiscard]] std::string PointsJson(const workload::ModelProfile& profile,
                                     const std::vector<measure::Point>& points);

// "about 40 s", "about 3 min".
[[nodiscard]] std::string AboutTime(Duration time);

// "16sm", "16sm with 2 processes".
[[nodiscard]] std::string CurveName(const workload::PartitionSize& size, int processes);

}  // namespace divvy::app
