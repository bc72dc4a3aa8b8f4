#include "device/cuda_simulator/faults.h"

#include <algorithm>
#include <utility>

#include "device/cuda_simulator/words.h"

namespace divvy::device::cuda_simulator {
namespace {

auto Wrong(std::string_view problem) {
  return Fail(ErrorCode::kInvalidArgument, std::string(problem));
}

std::optional<Nanos> ToDelay(std::string_view text) {
  Nanos unit = 0;
  if (text.ends_with("ms")) unit = kMillisecond;
  if (text.ends_with("us")) unit = kMicrosecond;
  if (unit == 0) return std::nullopt;
  text.remove_suffix(2);
  const auto number = ToNumber<Nanos>(text);
  if (!number || *number < 0 || *number > 1'000'000) return std::nullopt;
  return *number * unit;
}

}  // namespace

Result<FaultRules::Rule> FaultRules::ParseRule(std::string_view text) {
  static constexpr std::pair<std::string_view, Action> kPrefixes[] = {{"sticky:", Action::kSticky},
                                                                      {"delay:", Action::kDelay},
                                                                      {"kill:", Action::kKill},
                                                                      {"no:", Action::kMissing}};
  Rule rule;
  for (const auto& [prefix, action] : kPrefixes) {
    if (!text.starts_with(prefix)) continue;
    rule.action = action;
    text.remove_prefix(prefix.size());
  }
  const auto [call, value] = SplitKey(text);
  const std::size_t at = call.find('@');
  rule.function = call.substr(0, at);
  if (rule.function.empty()) return Wrong("it names no function");
  if (rule.action == Action::kMissing) {
    if (at != std::string_view::npos || value) return Wrong("write no:FUNCTION");
    return rule;
  }
  if (at == std::string_view::npos) return Wrong("write FUNCTION@N, with N a number or *");
  if (const std::string_view count = call.substr(at + 1); count != "*") {
    rule.count = ToNumber<long>(count);
    if (!rule.count || *rule.count < 1) return Wrong("N is the number of a call from 1, or *");
  }
  if (rule.action == Action::kKill) {
    if (value) return Wrong("write kill:FUNCTION@N");
    return rule;
  }
  if (rule.action == Action::kDelay) {
    const auto delay = ToDelay(value.value_or(""));
    if (!delay) return Wrong("a delay is written delay:FUNCTION@N=5ms, or us");
    rule.delay = *delay;
    return rule;
  }
  const auto code = ToNumber<int>(value.value_or(""));
  if (!code || *code < 1 || *code > 999) return Wrong("an error is a number from 1 to 999");
  rule.code = static_cast<cuda::Result>(*code);
  return rule;
}

Result<FaultRules> FaultRules::Parse(std::string_view text) {
  FaultRules rules;
  for (auto item = TakeWord(text, ", \n"); !item.empty(); item = TakeWord(text, ", \n")) {
    auto rule = ParseRule(item);
    if (!rule) return Wrong("fault rule '" + std::string(item) + "': " + rule.error().message);
    rules.rules_.push_back(std::move(*rule));
  }
  return rules;
}

FaultEffect FaultRules::Apply(std::string_view function) {
  FaultEffect effect;
  for (Rule& rule : rules_) {
    if (rule.function != function) continue;
    ++rule.seen;
    if (rule.count && *rule.count != rule.seen) continue;
    switch (rule.action) {
      case Action::kSticky:
        effect.sticky = true;
        [[fallthrough]];
      case Action::kError:
        if (!effect.error) effect.error = rule.code;
        break;
      case Action::kDelay:
        effect.delay += rule.delay;
        break;
      case Action::kKill:
        effect.kill = true;
        break;
      case Action::kMissing:
        effect.error = cuda::kNotSupported;
        break;
    }
  }
  return effect;
}

bool FaultRules::IsMissing(std::string_view function) const {
  return std::ranges::any_of(rules_, [&](const Rule& rule) {
    return rule.action == Action::kMissing && rule.function == function;
  });
}

std::vector<std::string> FaultRules::Functions() const {
  std::vector<std::string> names;
  for (const Rule& rule : rules_) names.push_back(rule.function);
  return names;
}

}  // namespace divvy::device::cuda_simulator
