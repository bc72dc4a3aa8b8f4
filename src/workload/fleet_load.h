#pragma once

#include <variant>

#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "workload/fleet.h"

namespace divvy::workload {

// The `load` of a model: a recipe, or a trace file. After a complaint of `reader`
// the value is a placeholder.
[[nodiscard]] std::variant<RecipeLoad, TraceLoad> ReadLoad(YamlReader& reader,
                                                           const YamlNode& node);

}  // namespace divvy::workload
