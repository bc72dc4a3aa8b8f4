#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace divvy {

// A value in a YAML file, with the line it stands on. A plain value.
struct YamlNode {
  enum class Kind { kNull, kScalar, kSequence, kMapping };

  Kind kind = Kind::kNull;
  int line = 0;                        // From 1. A missing value has the line of its key.
  std::string text = {};               // Of a scalar.
  bool quoted = false;                 // The scalar stood in quotes: text, whatever it looks like.
  std::vector<std::string> keys = {};  // Of a mapping, in the file's order, all different;
  std::vector<int> key_lines = {};     // where they stand;
  std::vector<YamlNode> items = {};    // and their values. Or the items of a sequence.

  // The value of `key`, or null.
  [[nodiscard]] const YamlNode* Find(std::string_view key) const;
};

// Reads the part of YAML that configuration needs, and refuses the rest: the
// parts of YAML that make a file mean something other than it seems to. These
// are keys that appear twice, anchors and aliases, tags, keys that are no
// scalars, more than one document, nesting over 32 levels, more than 1 MiB,
// bytes that are not text, and tabs that indent.
//
// A file with nothing in it, or comments only, is a kNull node of line 0. Any
// bytes give a value or kInvalidArgument with "FILE:LINE: what is wrong"; only a
// file over 1 MiB has no line to blame.
[[nodiscard]] Result<YamlNode> ParseYaml(std::string_view text, std::string_view file_name);

}  // namespace divvy
