#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace divvy::workload {

// Kinds of models whose training was measured on slices of a GPU by others, for jobs
// of which nothing else is known. The figures are our fits to MISO's measurements
// (A100-40GB, SoCC'22), not the measurements.

[[nodiscard]] std::vector<std::string_view> KnownFamilies();

// Share of a training step's time that grows when the job has less of an A100, from 0
// to 1: in a slice with a share f of the GPU a step takes 1 - d + d / f times as long.
// Between the batch sizes that were fitted it goes with their logarithm; beyond them,
// and without a batch, it is that of the nearest, and of the largest. Nothing for a
// family that is not known.
[[nodiscard]] std::optional<double> FamilyDemand(std::string_view family, std::optional<int> batch);

}  // namespace divvy::workload
