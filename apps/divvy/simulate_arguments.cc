#include "simulate_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/number.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"

namespace divvy::app {
namespace {

// A year: far beyond any simulation, and far from overflow.
constexpr double kMostSeconds = 366.0 * 24 * 3600;

constexpr RealRange kFactors{0.001, 1000};
constexpr std::size_t kMostFactors = 1000;

[[nodiscard]] tl::unexpected<Error> Wrong(std::string_view option, std::string_view text,
                                          std::string_view right) {
  return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: {} {}", option, Quoted(text), right));
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text = text.substr(end + 1);
  }
}

bool Within(const std::optional<double>& number, RealRange range) {
  return number && *number >= range.least && *number <= range.most;
}

}  // namespace

Result<Duration> ParseTimeArgument(std::string_view option, std::string_view text) {
  const auto nanoseconds = ParseTime(text);
  if (nanoseconds && *nanoseconds >= 0 && *nanoseconds <= kMostSeconds * 1e9) {
    return FromSeconds(*nanoseconds / 1e9);
  }
  return Wrong(option, text,
               "is not a time of at most a year with its unit (us, ms, s, min or h), such as 60s");
}

Result<std::vector<double>> ParseSweep(std::string_view text) {
  const auto parts = Split(text, ':');
  const auto wrong = [&] {
    return Wrong("--sweep", text,
                 fmt::format("is not FROM:TO:STEP such as 0.5:1.5:0.1, factors on all rates, FROM "
                             "at most TO and each {}, at most {} of them",
                             Describe(kFactors), kMostFactors));
  };
  if (parts.size() != 3) return wrong();
  const auto from = ParseReal(parts[0]);
  const auto to = ParseReal(parts[1]);
  const auto step = ParseReal(parts[2]);
  if (!Within(from, kFactors) || !Within(to, kFactors) || !Within(step, kFactors)) return wrong();
  // A hair more, so that 0.1 + 0.1 + .. does not miss its end by rounding.
  const double steps = std::floor((*to - *from) / *step + 1e-6);
  if (steps < 0 || steps >= static_cast<double>(kMostFactors)) return wrong();
  std::vector<double> factors;
  for (int i = 0; i <= static_cast<int>(steps); ++i) {
    // To nine digits: 0.7, not 0.7000000000000001.
    factors.push_back(std::round((*from + i * *step) * 1e9) / 1e9);
  }
  return factors;
}

Result<Spread> ParseSpread(std::string_view text) {
  if (text == "none") return Spread{};
  if (text == "measured") return Spread{.measured = true, .sigma = {}};
  const auto sigma = ParseReal(text);
  constexpr RealRange kSigmas{0, 2};
  if (!Within(sigma, kSigmas)) {
    return Wrong("--spread", text,
                 fmt::format("is not none, measured, or the deviation of the logarithm of a "
                             "batch's time, {}",
                             Describe(kSigmas)));
  }
  return Spread{.measured = false, .sigma = *sigma};
}

Result<LaterPlan> ParseLaterPlan(std::string_view text) {
  const std::size_t at = text.rfind('@');
  if (at == std::string_view::npos || at == 0) {
    return Wrong("--change", text, "is not PLAN@TIME, such as plan.yaml@20s");
  }
  const auto time = ParseTimeArgument("--change", text.substr(at + 1));
  if (!time) return Fail(time.error());
  return LaterPlan{std::string(text.substr(0, at)), *time};
}

Result<sim::ChangeCost> ParseChangeCost(std::string_view text) {
  sim::ChangeCost cost;
  struct Part {
    std::string_view name;
    Duration* time;
  };
  const std::array parts = {Part{"destroy", &cost.destroy}, Part{"create", &cost.create},
                            Part{"start", &cost.start}};
  for (const std::string_view word : Split(text, ',')) {
    const std::size_t equals = word.find('=');
    const auto* const part = std::ranges::find(parts, word.substr(0, equals), &Part::name);
    if (equals == std::string_view::npos || part == parts.end()) {
      return Wrong("--change-cost", word,
                   "is not one of destroy=TIME, create=TIME and start=TIME; several are separated "
                   "by commas");
    }
    const auto time = ParseTimeArgument("--change-cost", word.substr(equals + 1));
    if (!time) return Fail(time.error());
    *part->time = *time;
  }
  return cost;
}

}  // namespace divvy::app
