#include "measure/job_output.h"

#include <fmt/format.h>
#include <regex.h>

#include <array>
#include <charconv>
#include <cmath>

#include "base/text_safety.h"

namespace divvy::measure {
namespace {

constexpr std::size_t kLongestLine = 64 << 10;
constexpr std::size_t kLongestMessage = 256;

}  // namespace

struct LinePattern::Compiled {
  regex_t regex{};
  bool good = false;
  Compiled() = default;
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() {
    if (good) regfree(&regex);
  }
};

Result<LinePattern> LinePattern::Parse(const std::string& text, bool numbers) {
  auto compiled = std::make_shared<Compiled>();
  const int error = regcomp(&compiled->regex, text.c_str(), REG_EXTENDED);
  if (error != 0) {
    std::array<char, kLongestMessage> message{};
    regerror(error, &compiled->regex, message.data(), message.size());
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{} is no regular expression: {}", Quoted(text), message.data()));
  }
  compiled->good = true;
  if (numbers && compiled->regex.re_nsub == 0) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("{} has no group for the number, as 'step ([0-9]+)' has", Quoted(text)));
  }
  return LinePattern(std::move(compiled));
}

bool LinePattern::Matches(std::string_view line) const {
  return regexec(&compiled_->regex, std::string(line).c_str(), 0, nullptr, 0) == 0;
}

std::optional<double> LinePattern::Number(std::string_view line) const {
  const std::string text(line);
  std::array<regmatch_t, 2> matches{};
  if (regexec(&compiled_->regex, text.c_str(), matches.size(), matches.data(), 0) != 0) return {};
  if (matches[1].rm_so < 0) return {};
  double value = 0;
  const char* const end = text.data() + matches[1].rm_eo;
  const auto parsed = std::from_chars(text.data() + matches[1].rm_so, end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end || !std::isfinite(value) || value < 0)
    return {};
  return value;
}

void StepCount::Said(TimePoint when, double steps) {
  if (steps < last_) before_ += last_;
  last_ = steps;
  if (!marks_.empty() && marks_.back().when == when) marks_.pop_back();
  marks_.push_back({when, before_ + steps});
}

std::optional<double> StepCount::Rate(TimePoint from, TimePoint to) const {
  const Mark* first = nullptr;
  const Mark* last = nullptr;
  for (const Mark& mark : marks_) {
    if (mark.when < from || mark.when > to) continue;
    if (first == nullptr) first = &mark;
    last = &mark;
  }
  if (first == nullptr || last->total <= first->total) return {};
  if (last->when <= first->when || 3 * (last->when - first->when) < to - from) return {};
  return (last->total - first->total) / Seconds(last->when - first->when);
}

std::vector<std::string> LineSplitter::Take(std::string_view bytes) {
  std::vector<std::string> lines;
  while (true) {
    // Whoever draws a progress bar ends its lines with \r.
    const std::size_t end = bytes.find_first_of("\n\r");
    const bool too_long = rest_.size() + std::min(end, bytes.size()) > kLongestLine;
    if (end == std::string_view::npos && !too_long) break;
    if (too_long) {
      const std::size_t room = kLongestLine - std::min(rest_.size(), kLongestLine);
      rest_ += bytes.substr(0, room);
      bytes.remove_prefix(room);
    } else {
      rest_ += bytes.substr(0, end);
      bytes.remove_prefix(end + 1);
    }
    if (!rest_.empty()) lines.push_back(std::move(rest_));
    rest_.clear();
  }
  rest_ += bytes;
  return lines;
}

}  // namespace divvy::measure
