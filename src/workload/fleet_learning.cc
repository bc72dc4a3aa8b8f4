#include "workload/fleet_learning.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text_safety.h"
#include "workload/fleet_file.h"

namespace divvy::workload {
namespace {

constexpr RealRange kAccuracies{0, 1};
constexpr RealRange kDrifts{0, 100};
constexpr RealRange kSamples{1, 1e15};
constexpr RealRange kUncertainties{0, 1};
constexpr std::size_t kMaxOptions = 1'000;

constexpr std::array<std::string_view, 7> kLearningKeys = {
    "accuracy", "drift", "floor", "speed", "options", "curve", "uncertainty"};
constexpr std::array<std::string_view, 3> kOptionKeys = {"name", "samples", "accuracy"};
constexpr std::array<std::string_view, 4> kCurveKeys = {"start", "limit", "scale", "at"};

void CheckCount(YamlReader& reader, std::string_view key, const YamlNode& node, std::size_t count) {
  if (1 <= count && count <= kMaxOptions) return;
  reader.Complain(node.line, fmt::format("{}: {}; there is 1 at least and at most {}", key, count,
                                         kMaxOptions));
}

RetrainingOption ReadOption(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "an option of retraining";
  RetrainingOption option;
  if (!reader.ExpectMapping(node, kWhat, kOptionKeys)) return option;
  if (const YamlNode* name = reader.Require(node, "name", kWhat)) {
    option.name = reader.Name("name", *name);
  }
  if (const YamlNode* samples = reader.Require(node, "samples", kWhat)) {
    option.samples = reader.Real("samples", *samples, kSamples);
  }
  if (const YamlNode* accuracy = reader.Require(node, "accuracy", kWhat)) {
    option.accuracy = reader.Real("accuracy", *accuracy, kAccuracies);
  }
  return option;
}

std::vector<RetrainingOption> ReadOptions(YamlReader& reader, const YamlNode& node) {
  std::vector<RetrainingOption> options;
  std::map<std::string, int> first_lines;
  const auto items = reader.List("options", node);
  CheckCount(reader, "options", node, items.size());
  for (const YamlNode& item : items) {
    if (!reader.ok()) return options;
    options.push_back(ReadOption(reader, item));
    const auto [first, is_new] = first_lines.emplace(options.back().name, item.line);
    if (is_new) continue;
    reader.Complain(item.line,
                    fmt::format("the option {} appears twice; it stands on line {} already",
                                Quoted(options.back().name), first->second));
  }
  return options;
}

std::vector<double> ReadNumbersOfSamples(YamlReader& reader, const YamlNode& node) {
  std::vector<double> samples;
  const auto items = reader.List("at", node);
  CheckCount(reader, "at", node, items.size());
  for (const YamlNode& item : items) {
    if (!reader.ok()) return samples;
    const double before = samples.empty() ? 0 : samples.back();
    samples.push_back(reader.Real("at", item, kSamples));
    if (samples.back() > before) continue;
    reader.Complain(item.line, fmt::format("at: {} does not exceed {}, the one before; numbers of "
                                           "samples ascend",
                                           Quoted(item.text), before));
  }
  return samples;
}

std::vector<RetrainingOption> ReadCurve(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "curve";
  LearningCurve curve;
  if (!reader.ExpectMapping(node, kWhat, kCurveKeys)) return {};
  if (const YamlNode* start = reader.Require(node, "start", kWhat)) {
    curve.start = reader.Real("start", *start, kAccuracies);
  }
  if (const YamlNode* limit = reader.Require(node, "limit", kWhat)) {
    curve.limit = reader.Real("limit", *limit, kAccuracies);
    if (curve.limit < curve.start) {
      reader.Complain(limit->line, fmt::format("limit: {} is below start, {}; training does not "
                                               "make a model worse",
                                               Quoted(limit->text), curve.start));
    }
  }
  if (const YamlNode* scale = reader.Require(node, "scale", kWhat)) {
    curve.scale = reader.Real("scale", *scale, kSamples);
  }
  const YamlNode* at = reader.Require(node, "at", kWhat);
  if (at == nullptr) return {};
  const std::vector<double> samples = ReadNumbersOfSamples(reader, *at);
  return OptionsOf(curve, samples);
}

}  // namespace

FleetLearning ReadLearning(YamlReader& reader, const YamlNode& node, const std::string& model) {
  constexpr std::string_view kWhat = "learning";
  FleetLearning read{.learning = {}, .speed = {}, .speed_model = model, .line = node.line};
  Learning& learning = read.learning;
  if (!reader.ExpectMapping(node, kWhat, kLearningKeys)) return read;
  if (const YamlNode* accuracy = reader.Require(node, "accuracy", kWhat)) {
    learning.accuracy = reader.Real("accuracy", *accuracy, kAccuracies);
  }
  if (const YamlNode* drift = reader.Require(node, "drift", kWhat)) {
    learning.drift_per_minute = reader.Real("drift", *drift, kDrifts);
  }
  if (const YamlNode* floor = node.Find("floor")) {
    learning.floor = reader.Real("floor", *floor, kAccuracies);
    if (learning.floor > learning.accuracy) {
      reader.Complain(floor->line, fmt::format("floor: {} is above accuracy, {}",
                                               Quoted(floor->text), learning.accuracy));
    }
  }
  if (const YamlNode* speed = reader.Require(node, "speed", kWhat)) {
    auto [file, name] = ReadModelInFile(reader, "speed", *speed, model);
    read.speed = std::move(file);
    read.speed_model = std::move(name);
  }
  const YamlNode* options = node.Find("options");
  const YamlNode* curve = node.Find("curve");
  if ((options == nullptr) == (curve == nullptr)) {
    reader.Complain(node.line, "learning needs one of the keys 'options' and 'curve'");
  }
  if (options != nullptr) learning.options = ReadOptions(reader, *options);
  if (curve != nullptr) learning.options = ReadCurve(reader, *curve);
  if (const YamlNode* uncertainty = node.Find("uncertainty")) {
    learning.uncertainty = reader.Real("uncertainty", *uncertainty, kUncertainties);
  }
  return read;
}

}  // namespace divvy::workload
