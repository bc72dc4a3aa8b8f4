#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "serving/policy.h"

namespace divvy::serving {
namespace {

struct Extra {
  std::string_view name;
  bool RouteOptions::* option;
};

constexpr std::array kExtras = {
    Extra{"merge", &RouteOptions::merge},
    Extra{"shed", &RouteOptions::shed},
    Extra{"learn", &RouteOptions::learn},
};

RouteOptions DefaultsOf(std::string_view name) {
  const bool ours = name == "divvy";
  return {
      .name = std::string(name), .merge = ours, .shed = ours, .learn = ours, .by_deadline = ours};
}

}  // namespace

Result<RouteOptions> ParseRoute(std::string_view text) {
  const auto wrong = [&](const std::string& what) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("route {}: {}", Quoted(text), what));
  };
  std::vector<std::string_view> names;
  for (const PolicyName& policy : PolicyNames()) names.push_back(policy.name);

  // A longer name first: "shortest-queue" has a dash of its own.
  std::string_view name;
  for (const std::string_view known : names) {
    if (text.starts_with(known) && known.size() > name.size()) name = known;
  }
  std::string_view rest = text.substr(name.size());
  if (name.empty() || (!rest.empty() && rest[0] != '+' && rest[0] != '-')) {
    const std::string hint = DidYouMean(text.substr(0, text.find('+')), names);
    return wrong(
        fmt::format("no such policy{} There are {}", hint.empty() ? "." : hint, OneOf(names)));
  }

  RouteOptions options = DefaultsOf(name);
  while (!rest.empty()) {
    const bool add = rest[0] == '+';
    const std::size_t end = std::min(rest.find_first_of("+-", 1), rest.size());
    const std::string_view word = rest.substr(1, end - 1);
    rest = rest.substr(end);
    const auto* const extra = std::ranges::find(kExtras, word, &Extra::name);
    if (extra == kExtras.end()) {
      return wrong(fmt::format("no extra {}; there are +merge, +shed and +learn", Quoted(word)));
    }
    if (name == "divvy" && word == "shed" && !add) {
      return wrong(
          "divvy orders by deadline, which needs shedding: a late request would hold up "
          "those in time");
    }
    options.*extra->option = add;
  }
  return options;
}

std::string Describe(const RouteOptions& options) {
  const RouteOptions defaults = DefaultsOf(options.name);
  std::string text = options.name;
  for (const Extra& extra : kExtras) {
    if (options.*extra.option == defaults.*extra.option) continue;
    text += fmt::format("{}{}", options.*extra.option ? '+' : '-', extra.name);
  }
  return text;
}

}  // namespace divvy::serving
