#pragma once

#include <string>
#include <string_view>

#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "workload/fleet.h"

namespace divvy::workload {

// A file that tells of models, and one model's name there.
struct ModelInFile {
  FileRef file;
  std::string model;
};

// The value of `key`: a path alone, which leaves the model `name`, or
// {file: path, model: name}. After a complaint of `reader` it is a placeholder.
[[nodiscard]] ModelInFile ReadModelInFile(YamlReader& reader, std::string_view key,
                                          const YamlNode& node, const std::string& name);

}  // namespace divvy::workload
