#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "plan/yaml_tree.h"

namespace divvy::plan {

// A range of whole numbers, both ends included.
struct IntRange {
  int least;
  int most;
};

// Takes typed values out of YAML nodes and remembers the first thing that is
// wrong. From then on its answers are placeholders, so a reading function can
// run to its end and look at ok() once. `key` is for the message.
//
// Every error is kInvalidArgument with "FILE:LINE: key: value, and what would be
// right". Not thread-safe.
class YamlReader {
 public:
  // `file_name` must outlive the reader.
  explicit YamlReader(std::string_view file_name) : file_name_(file_name) {}

  bool ok() const { return ok_; }

  // The first error. REQUIRES: !ok().
  const Error& error() const { return error_; }

  // Remembers an error, unless there is one.
  void Complain(int line, std::string_view what);

  // Complains unless `node` is a mapping whose keys are all `known`. `what`
  // names the mapping in messages: "a GPU".
  bool ExpectMapping(const YamlNode& node, std::string_view what,
                     std::span<const std::string_view> known);

  // The value of a key that must be there, or null after a complaint.
  const YamlNode* Require(const YamlNode& mapping, std::string_view key, std::string_view what);

  // The items of a list; none after a complaint.
  std::span<const YamlNode> List(std::string_view key, const YamlNode& node);

  int Integer(std::string_view key, const YamlNode& node, IntRange range);

  // A percentage from 1 to 100: 50, "50" or 50%.
  int Percentage(std::string_view key, const YamlNode& node);

  bool Boolean(std::string_view key, const YamlNode& node);

  // A name that IsName allows; a number counts as one.
  std::string Name(std::string_view key, const YamlNode& node);

 private:
  // The text of a scalar, or nothing after a complaint; `wanted` for the message.
  std::optional<std::string_view> Scalar(std::string_view key, const YamlNode& node,
                                         std::string_view wanted);

  std::string_view file_name_;
  bool ok_ = true;
  Error error_{ErrorCode::kInvalidArgument, {}};
};

// The whole decimal number that `text` is, without leading zeros or plus sign;
// nothing for anything else or for what an int cannot hold.
[[nodiscard]] std::optional<int> ParseInteger(std::string_view text);

}  // namespace divvy::plan
