#pragma once

#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "workload/fleet.h"

namespace divvy::workload {

// The `control` of a fleet. After a complaint of `reader` the value is a placeholder.
[[nodiscard]] FleetControl ReadControl(YamlReader& reader, const YamlNode& node);

}  // namespace divvy::workload
