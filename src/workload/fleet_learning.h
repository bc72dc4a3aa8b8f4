#pragma once

#include <string>

#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "workload/fleet.h"

namespace divvy::workload {

// The `learning` of the model called `model`. After a complaint of `reader` the value
// is a placeholder.
[[nodiscard]] FleetLearning ReadLearning(YamlReader& reader, const YamlNode& node,
                                         const std::string& model);

}  // namespace divvy::workload
