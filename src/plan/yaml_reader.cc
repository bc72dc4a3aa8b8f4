#include "plan/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/spelling.h"
#include "plan/text_safety.h"

namespace divvy::plan {
namespace {

std::string_view NameOf(YamlNode::Kind kind) {
  switch (kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kScalar:
      return "a single value";
    case YamlNode::Kind::kSequence:
      return "a list";
    case YamlNode::Kind::kMapping:
      return "a mapping";
  }
  return "";
}

}  // namespace

void YamlReader::Complain(int line, std::string_view what) {
  if (!ok_) return;
  ok_ = false;
  error_.message = fmt::format("{}:{}: {}", file_name_, line, what);
}

bool YamlReader::ExpectMapping(const YamlNode& node, std::string_view what,
                               std::span<const std::string_view> known) {
  if (node.kind != YamlNode::Kind::kMapping) {
    Complain(node.line, fmt::format("{} is a mapping with the keys {}, but here is {}", what,
                                    OneOf(known), NameOf(node.kind)));
    return false;
  }
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const std::string& key = node.keys[i];
    if (std::ranges::find(known, key) != known.end()) continue;
    std::string hint = DidYouMean(key, known);
    if (hint.empty()) hint = "; it may have " + OneOf(known);
    Complain(node.key_lines[i], fmt::format("{} has no key {}{}", what, Quoted(key), hint));
    return false;
  }
  return true;
}

const YamlNode* YamlReader::Require(const YamlNode& mapping, std::string_view key,
                                    std::string_view what) {
  const YamlNode* value = mapping.Find(key);
  if (value == nullptr) Complain(mapping.line, fmt::format("{} needs the key '{}'", what, key));
  return value;
}

std::span<const YamlNode> YamlReader::List(std::string_view key, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kSequence) return node.items;
  Complain(node.line,
           fmt::format("{}: is a list ('- ...' lines), but here is {}", key, NameOf(node.kind)));
  return {};
}

std::optional<std::string_view> YamlReader::Scalar(std::string_view key, const YamlNode& node,
                                                   std::string_view wanted) {
  if (node.kind == YamlNode::Kind::kScalar) return node.text;
  Complain(node.line, fmt::format("{}: is {}, but here is {}", key, wanted, NameOf(node.kind)));
  return std::nullopt;
}

int YamlReader::Integer(std::string_view key, const YamlNode& node, IntRange range) {
  const std::string wanted = fmt::format("a whole number from {} to {}", range.least, range.most);
  const auto text = Scalar(key, node, wanted);
  if (!text) return range.least;
  const auto number = ParseInteger(*text);
  if (number && !node.quoted && range.least <= *number && *number <= range.most) return *number;
  const std::string_view unquote = number && node.quoted ? ", without quotes" : "";
  Complain(node.line, fmt::format("{}: {} is not {}{}", key, Quoted(*text), wanted, unquote));
  return range.least;
}

int YamlReader::Percentage(std::string_view key, const YamlNode& node) {
  constexpr std::string_view kWanted =
      "a percentage, a whole number from 1 to 100 such as 50 or 50%";
  const auto text = Scalar(key, node, kWanted);
  if (!text) return 1;
  std::string_view digits = *text;
  if (digits.ends_with('%')) digits.remove_suffix(1);
  const auto number = ParseInteger(digits);
  if (number && 1 <= *number && *number <= 100) return *number;
  Complain(node.line, fmt::format("{}: {} is not {}", key, Quoted(*text), kWanted));
  return 1;
}

bool YamlReader::Boolean(std::string_view key, const YamlNode& node) {
  const auto text = Scalar(key, node, "true or false");
  if (!text) return false;
  if (!node.quoted && (*text == "true" || *text == "false")) return *text == "true";
  Complain(node.line, fmt::format("{}: {} is neither true nor false{}", key, Quoted(*text),
                                  node.quoted ? " (without quotes)" : ""));
  return false;
}

std::string YamlReader::Name(std::string_view key, const YamlNode& node) {
  const auto text = Scalar(key, node, "a name");
  if (!text) return {};
  if (!IsName(*text)) {
    Complain(node.line, fmt::format("{}: {} is not a name: 1 to 200 bytes, no control characters, "
                                    "no spaces at the ends",
                                    key, Quoted(*text)));
  }
  return std::string(*text);
}

std::optional<int> ParseInteger(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  // YAML 1.1 reads 010 as eight; nobody who writes it is sure what they mean.
  if (digits.starts_with('0') && text != "0") return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace divvy::plan
