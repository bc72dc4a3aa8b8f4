#include "base/yaml_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/spelling.h"
#include "base/text_safety.h"

namespace divvy {
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

struct TimeUnit {
  std::string_view name;
  std::int64_t nanoseconds;
};

// Largest first.
constexpr TimeUnit kTimeUnits[] = {{"h", 3'600'000'000'000},
                                   {"min", 60'000'000'000},
                                   {"s", 1'000'000'000},
                                   {"ms", 1'000'000},
                                   {"us", 1'000}};

}  // namespace

std::optional<double> ParseTime(std::string_view text) {
  const std::size_t digits = text.find_last_of("0123456789.") + 1;  // 0 when there is none.
  const auto number = ParseReal(text.substr(0, digits));
  const std::string_view name = text.substr(digits);
  for (const TimeUnit& unit : kTimeUnits) {
    if (number && name == unit.name) return *number * static_cast<double>(unit.nanoseconds);
  }
  return std::nullopt;
}

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
  const std::string wanted = Describe(range);
  const auto text = Scalar(key, node, wanted);
  if (!text) return range.least;
  const auto number = ParseInteger(*text);
  if (number && !node.quoted && range.least <= *number && *number <= range.most) return *number;
  const std::string_view unquote = number && node.quoted ? ", without quotes" : "";
  Complain(node.line, fmt::format("{}: {} is not {}{}", key, Quoted(*text), wanted, unquote));
  return range.least;
}

std::uint64_t YamlReader::Unsigned(std::string_view key, const YamlNode& node) {
  constexpr std::string_view kWanted = "a whole number from 0 to 18446744073709551615";
  const auto text = Scalar(key, node, kWanted);
  if (!text) return 0;
  const auto number = ParseUnsigned(*text);
  if (number && !node.quoted) return *number;
  const std::string_view unquote = number ? ", without quotes" : "";
  Complain(node.line, fmt::format("{}: {} is not {}{}", key, Quoted(*text), kWanted, unquote));
  return 0;
}

double YamlReader::Real(std::string_view key, const YamlNode& node, RealRange range) {
  const std::string wanted = Describe(range);
  const auto text = Scalar(key, node, wanted);
  if (!text) return range.least;
  const auto number = ParseReal(*text);
  if (number && !node.quoted && range.least <= *number && *number <= range.most) return *number;
  const std::string_view unquote = number && node.quoted ? ", without quotes" : "";
  Complain(node.line, fmt::format("{}: {} is not {}{}", key, Quoted(*text), wanted, unquote));
  return range.least;
}

Duration YamlReader::Time(std::string_view key, const YamlNode& node, TimeRange range) {
  const std::string wanted =
      fmt::format("a time from {} to {} with its unit (us, ms, s, min or h), such as 20ms",
                  Describe(range.least), Describe(range.most));
  const auto text = Scalar(key, node, wanted);
  if (!text) return range.least;
  const auto nanoseconds = ParseTime(*text);
  // Compared before the conversion, which a number too large would not survive.
  if (nanoseconds && static_cast<double>(range.least.count()) <= *nanoseconds &&
      *nanoseconds <= static_cast<double>(range.most.count())) {
    return FromMilliseconds(*nanoseconds / 1e6);
  }
  Complain(node.line, fmt::format("{}: {} is not {}", key, Quoted(*text), wanted));
  return range.least;
}

std::string YamlReader::Choice(std::string_view key, const YamlNode& node,
                               std::span<const std::string_view> choices) {
  const auto text = Scalar(key, node, OneOf(choices));
  if (!text) return {};
  if (std::ranges::find(choices, *text) == choices.end()) {
    Complain(node.line, fmt::format("{}: {} is not {}{}", key, Quoted(*text), OneOf(choices),
                                    DidYouMean(*text, choices)));
  }
  return std::string(*text);
}

std::string YamlReader::Path(std::string_view key, const YamlNode& node) {
  constexpr std::size_t kLongest = 4096;
  const auto text = Scalar(key, node, "the path of a file");
  if (!text) return {};
  if (text->empty() || text->size() > kLongest) {
    Complain(node.line, fmt::format("{}: {} is not the path of a file, 1 to {} bytes", key,
                                    Quoted(*text), kLongest));
  }
  return std::string(*text);
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

std::string Describe(Duration time) {
  for (const TimeUnit& unit : kTimeUnits) {
    if (time.count() % unit.nanoseconds == 0) {
      return fmt::format("{}{}", time.count() / unit.nanoseconds, unit.name);
    }
  }
  return fmt::format("{}us", static_cast<double>(time.count()) / 1e3);
}

}  // namespace divvy
