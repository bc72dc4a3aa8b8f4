#include "device/simulator/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "base/spelling.h"
#include "device/simulator/function_names.h"
#include "device/simulator/return_names.h"

namespace divvy::device::simulator {
namespace {

constexpr std::string_view kAny = "*";

std::string_view Trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

std::optional<long> ParsePositive(std::string_view text) {
  long number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 1) return std::nullopt;
  return number;
}

auto Wrong(std::string problem) { return Fail(ErrorCode::kInvalidArgument, std::move(problem)); }

}  // namespace

Result<FaultRules::Rule> FaultRules::ParseAction(Rule rule, std::string_view text) {
  constexpr std::string_view kDelayPrefix = "delay:";
  constexpr std::string_view kActivationPrefix = "activation:";
  if (text == "kill" || text == "kill-after") {
    rule.action = text == "kill" ? Action::kKill : Action::kKillAfter;
    return rule;
  }
  if (text.starts_with(kDelayPrefix)) {
    std::string_view amount = text.substr(kDelayPrefix.size());
    if (!amount.ends_with("ms")) return Wrong("a delay is written delay:50ms");
    amount.remove_suffix(2);
    const auto milliseconds = ParsePositive(amount);
    if (!milliseconds) return Wrong("a delay is written delay:50ms");
    rule.action = Action::kDelay;
    rule.delay = std::chrono::milliseconds(*milliseconds);
    return rule;
  }
  rule.action = Action::kError;
  if (text.starts_with(kActivationPrefix)) {
    rule.action = Action::kActivation;
    text.remove_prefix(kActivationPrefix.size());
    if (rule.function != "nvmlDeviceSetMigMode") {
      return Wrong("only nvmlDeviceSetMigMode has an activation status");
    }
  }
  const auto code = ParseReturn(text);
  if (!code || *code == nvml::kSuccess) {
    return Wrong(
        fmt::format("'{}' is no NVML error, nor kill, kill-after, delay:50ms or "
                    "activation:ERROR",
                    text));
  }
  rule.code = *code;
  return rule;
}

Result<FaultRules::Rule> FaultRules::ParseRule(std::string_view text) {
  const std::size_t equals = text.find('=');
  const std::size_t at = text.substr(0, equals).rfind('@');
  if (equals == std::string_view::npos || at == std::string_view::npos) {
    return Wrong("it must have the form FUNCTION@N=ACTION");
  }
  Rule rule;
  rule.function = Trim(text.substr(0, at));
  const auto functions = FunctionNames();
  if (rule.function != kAny && std::ranges::find(functions, rule.function) == functions.end()) {
    return Wrong(fmt::format("'{}' is not a simulated function{}", rule.function,
                             DidYouMean(rule.function, functions)));
  }
  const std::string_view count = Trim(text.substr(at + 1, equals - at - 1));
  if (count != kAny) {
    rule.count = ParsePositive(count);
    if (!rule.count) return Wrong(fmt::format("'{}' is neither a call number nor *", count));
  }
  return ParseAction(std::move(rule), Trim(text.substr(equals + 1)));
}

Result<FaultRules> FaultRules::Parse(std::string_view text) {
  FaultRules rules;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(';'), text.size());
    const std::string_view item = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (item.empty()) continue;
    auto rule = ParseRule(item);
    if (!rule) return Wrong(fmt::format("fault rule '{}': {}", item, rule.error().message));
    rules.rules_.push_back(std::move(*rule));
  }
  return rules;
}

FaultEffect FaultRules::Apply(std::string_view function) {
  FaultEffect effect;
  for (Rule& rule : rules_) {
    if (rule.function != kAny && rule.function != function) continue;
    ++rule.seen;
    if (rule.count && *rule.count != rule.seen) continue;
    switch (rule.action) {
      case Action::kError:
        if (!effect.error) effect.error = rule.code;
        break;
      case Action::kActivation:
        if (!effect.activation) effect.activation = rule.code;
        break;
      case Action::kKill:
        effect.kill = true;
        break;
      case Action::kKillAfter:
        effect.kill_after = true;
        break;
      case Action::kDelay:
        effect.delay += rule.delay;
        break;
    }
  }
  return effect;
}

void FaultRules::ResetCounts() {
  for (Rule& rule : rules_) rule.seen = 0;
}

}  // namespace divvy::device::simulator
