#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/number.h"
#include "base/result.h"
#include "base/time.h"
#include "base/yaml_tree.h"

namespace divvy {

// A range of times, both ends included.
struct TimeRange {
  Duration least;
  Duration most;
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

  // From 0 to 2^64 - 1.
  std::uint64_t Unsigned(std::string_view key, const YamlNode& node);

  double Real(std::string_view key, const YamlNode& node, RealRange range);

  // A number with its unit: 250us, 20ms, 1.5s, 10min, 24h.
  Duration Time(std::string_view key, const YamlNode& node, TimeRange range);

  // A percentage from 1 to 100: 50, "50" or 50%.
  int Percentage(std::string_view key, const YamlNode& node);

  bool Boolean(std::string_view key, const YamlNode& node);

  // One of `choices`.
  std::string Choice(std::string_view key, const YamlNode& node,
                     std::span<const std::string_view> choices);

  // The path of a file: 1 to 4096 bytes.
  std::string Path(std::string_view key, const YamlNode& node);

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

// A time as YamlReader::Time reads it, in the largest unit that needs no fraction:
// "20ms", "1h".
[[nodiscard]] std::string Describe(Duration time);

// The time that `text` is, a number with its unit ("20ms"; us, ms, s, min or h), in
// nanoseconds; nothing for anything else. A double, since the text may name more than
// a Duration holds.
[[nodiscard]] std::optional<double> ParseTime(std::string_view text);

}  // namespace divvy
