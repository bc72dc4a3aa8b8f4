#include "control/metrics_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/text_safety.h"

namespace divvy::control {
namespace {

constexpr std::string_view kBlanks = " \t";

bool IsNameByte(char c, bool first, bool colons) {
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  return letter || (colons && c == ':') || (!first && c >= '0' && c <= '9');
}

// A number as the format writes it: Go's ParseFloat without hexadecimal forms.
std::optional<double> ParseValue(std::string_view word) {
  if (word.starts_with('+')) {
    word.remove_prefix(1);
    if (word.starts_with('-')) return std::nullopt;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc{} || end != word.data() + word.size()) return std::nullopt;
  return value;
}

// Reads one line from left to right. The first complaint stays.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  const std::string& complaint() const { return complaint_; }
  bool ok() const { return complaint_.empty(); }

  void SkipBlanks() {
    const std::size_t at = rest_.find_first_not_of(kBlanks);
    rest_.remove_prefix(at == std::string_view::npos ? rest_.size() : at);
  }

  bool AtEnd() {
    SkipBlanks();
    return rest_.empty();
  }

  // Takes `c` if it comes next.
  bool Take(char c) {
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  // What stands before the next blank.
  std::string_view Word() {
    SkipBlanks();
    const std::string_view word = rest_.substr(0, rest_.find_first_of(kBlanks));
    rest_.remove_prefix(word.size());
    return word;
  }

  std::string Name(std::string_view what, bool colons) {
    std::size_t size = 0;
    while (size < rest_.size() && IsNameByte(rest_[size], size == 0, colons)) ++size;
    if (size == 0) Complain(fmt::format("{} is no {}", Quoted(rest_), what));
    const std::string name(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return name;
  }

  // A label's value, in quotes.
  std::string QuotedValue() {
    std::string value;
    if (!Take('"')) Complain("a label's value stands in double quotes");
    while (ok() && !Take('"')) {
      if (rest_.empty()) {
        Complain("a label's value has no closing quote");
      } else if (Take('\\')) {
        value += Escaped();
      } else {
        value += rest_.front();
        rest_.remove_prefix(1);
      }
    }
    return value;
  }

  double Number(std::string_view what) {
    const std::string_view word = Word();
    const auto value = ParseValue(word);
    if (!value) Complain(fmt::format("{}: {} is not a number", what, Quoted(word)));
    return value.value_or(0);
  }

  void Complain(std::string what) {
    if (ok()) complaint_ = std::move(what);
  }

 private:
  char Escaped() {
    if (Take('\\')) return '\\';
    if (Take('"')) return '"';
    if (Take('n')) return '\n';
    Complain("in a label's value only \\\\, \\\" and \\n are escapes");
    return ' ';
  }

  std::string_view rest_;
  std::string complaint_;
};

void ReadLabels(LineReader& line, MetricSample& sample) {
  line.SkipBlanks();
  while (line.ok() && !line.Take('}')) {
    std::string name = line.Name("name of a label", false);
    line.SkipBlanks();
    if (!line.Take('=')) line.Complain(fmt::format("label {} has no '='", Quoted(name)));
    line.SkipBlanks();
    std::string value = line.QuotedValue();
    for (const auto& [other, unused] : sample.labels) {
      if (other == name) line.Complain(fmt::format("label {} stands there twice", Quoted(name)));
    }
    sample.labels.emplace_back(std::move(name), std::move(value));
    line.SkipBlanks();
    // A comma may follow the last one, too.
    if (line.Take(',')) {
      line.SkipBlanks();
    } else if (line.ok() && !line.Take('}')) {
      line.Complain("after a label comes ',' or '}'");
    } else {
      return;
    }
  }
}

MetricSample ReadSample(LineReader& line) {
  MetricSample sample;
  sample.name = line.Name("name of a metric", true);
  line.SkipBlanks();
  if (line.ok() && line.Take('{')) ReadLabels(line, sample);
  if (line.ok()) sample.value = line.Number(sample.name);
  if (line.ok() && !line.AtEnd()) static_cast<void>(line.Number("timestamp"));
  if (line.ok() && !line.AtEnd()) line.Complain("something follows the timestamp");
  return sample;
}

// The line after its '#'. Only what gives a type is looked at.
void ReadComment(LineReader& line, MetricsText& metrics) {
  constexpr std::array<std::string_view, 5> kTypes = {"counter", "gauge", "histogram", "summary",
                                                      "untyped"};
  if (line.Word() != "TYPE") return;
  const std::string name(line.Word());
  const std::string_view type = line.Word();
  if (std::ranges::find(kTypes, type) == kTypes.end()) {
    return line.Complain(fmt::format("{} is no type of a metric", Quoted(type)));
  }
  metrics.types[name] = type;
}

}  // namespace

std::string_view MetricSample::Label(std::string_view label) const {
  for (const auto& [each, text] : labels) {
    if (each == label) return text;
  }
  return {};
}

Result<MetricsText> ParseMetrics(std::string_view text, std::string_view file_name) {
  MetricsText metrics;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t size = std::min(text.find('\n'), text.size());
    std::string_view row = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    if (row.ends_with('\r')) row.remove_suffix(1);
    LineReader line(row);
    if (line.AtEnd()) continue;
    if (line.Take('#')) {
      ReadComment(line, metrics);
    } else {
      metrics.samples.push_back(ReadSample(line));
      metrics.samples.back().line = number;
    }
    if (!line.ok()) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {}", file_name, number, line.complaint()));
    }
  }
  return metrics;
}

}  // namespace divvy::control
