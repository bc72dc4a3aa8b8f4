#pragma once

#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "workload/fleet.h"

namespace divvy::workload {

// A model's `serve`. After a complaint of `reader` it is a placeholder.
[[nodiscard]] FleetServe ReadServe(YamlReader& reader, const YamlNode& node);

}  // namespace divvy::workload
