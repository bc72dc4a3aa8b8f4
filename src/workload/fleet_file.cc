#include "workload/fleet_file.h"

#include <array>

namespace divvy::workload {

ModelInFile ReadModelInFile(YamlReader& reader, std::string_view key, const YamlNode& node,
                            const std::string& name) {
  constexpr std::array<std::string_view, 2> kKeys = {"file", "model"};
  ModelInFile read{.file = {{}, node.line}, .model = name};
  if (node.kind == YamlNode::Kind::kScalar) {
    read.file.path = reader.Path(key, node);
    return read;
  }
  if (!reader.ExpectMapping(node, key, kKeys)) return read;
  if (const YamlNode* file = reader.Require(node, "file", key)) {
    read.file = {reader.Path("file", *file), file->line};
  }
  if (const YamlNode* model = node.Find("model")) read.model = reader.Name("model", *model);
  return read;
}

}  // namespace divvy::workload
