#include "workload/fleet_control.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "base/number.h"

namespace divvy::workload {
namespace {

constexpr TimeRange kSlots{std::chrono::milliseconds(10), std::chrono::hours(1)};
constexpr int kMostSlots = 10'000;
constexpr TimeRange kWindows{kSlots.least, kSlots.most* kMostSlots};
constexpr TimeRange kSeasons{Duration(0), kSlots.most* kMostSlots};
constexpr TimeRange kRestarts{Duration(0), std::chrono::hours(1)};
constexpr RealRange kQuantiles{0.001, 0.999};
constexpr RealRange kShares{0, 1};

constexpr std::array<std::string_view, 9> kControlKeys = {
    "policy", "slot", "window", "every", "forecast", "quantile", "season", "restart", "hysteresis"};
constexpr std::array<std::string_view, 3> kRestartKeys = {"change", "start", "prepared"};

RestartCost ReadRestart(YamlReader& reader, const YamlNode& node) {
  RestartCost restart;
  if (!reader.ExpectMapping(node, "restart", kRestartKeys)) return restart;
  if (const YamlNode* change = node.Find("change")) {
    restart.change = reader.Time("change", *change, kRestarts);
  }
  if (const YamlNode* start = node.Find("start")) {
    restart.start = reader.Time("start", *start, kRestarts);
  }
  if (const YamlNode* prepared = node.Find("prepared")) {
    restart.prepared = reader.Real("prepared", *prepared, kShares);
  }
  return restart;
}

// Complains unless `time` is a whole number of slots, and not too many.
void CheckSlots(YamlReader& reader, const YamlNode& control, std::string_view key, Duration time,
                Duration slot) {
  if (time % slot == Duration(0) && time <= slot * kMostSlots) return;
  const YamlNode* node = control.Find(key);
  reader.Complain(
      node != nullptr ? node->line : control.line,
      fmt::format("{}: {}{} is not a whole number of slots of {}, at most {}", key, Describe(time),
                  node != nullptr ? "" : ", the default,", Describe(slot), kMostSlots));
}

}  // namespace

FleetControl ReadControl(YamlReader& reader, const YamlNode& node) {
  FleetControl control;
  control.policy_line = control.forecast_line = node.line;
  if (!reader.ExpectMapping(node, "control", kControlKeys)) return control;
  if (const YamlNode* policy = node.Find("policy")) {
    control.policy = reader.Name("policy", *policy);
    control.policy_line = policy->line;
  }
  if (const YamlNode* slot = node.Find("slot")) control.slot = reader.Time("slot", *slot, kSlots);
  if (const YamlNode* window = node.Find("window")) {
    control.window = reader.Time("window", *window, kWindows);
  }
  if (const YamlNode* every = node.Find("every")) {
    control.every = reader.Time("every", *every, kWindows);
  }
  if (const YamlNode* forecast = node.Find("forecast")) {
    control.forecast = reader.Name("forecast", *forecast);
    control.forecast_line = forecast->line;
  }
  if (const YamlNode* quantile = node.Find("quantile")) {
    control.quantile = reader.Real("quantile", *quantile, kQuantiles);
  }
  if (const YamlNode* season = node.Find("season")) {
    control.season = reader.Time("season", *season, kSeasons);
  }
  if (const YamlNode* restart = node.Find("restart")) {
    control.restart = ReadRestart(reader, *restart);
  }
  if (const YamlNode* hysteresis = node.Find("hysteresis")) {
    control.hysteresis = reader.Real("hysteresis", *hysteresis, kShares);
  }
  CheckSlots(reader, node, "window", control.window, control.slot);
  CheckSlots(reader, node, "every", control.every, control.slot);
  CheckSlots(reader, node, "season", control.season, control.slot);
  return control;
}

}  // namespace divvy::workload
