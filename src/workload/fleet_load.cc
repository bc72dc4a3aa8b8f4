#include "workload/fleet_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text_safety.h"

namespace divvy::workload {
namespace {

constexpr RealRange kRates{1e-6, 1e9};
constexpr RealRange kAmplitudes{0, 1};
constexpr RealRange kCvs{0.01, 20};
constexpr RealRange kMedians{0.001, kLargestBatch};
constexpr RealRange kSigmas{0.001, 10};
constexpr RealRange kBatchWeights{0, 1e12};
constexpr IntRange kBatches{1, kLargestBatch};
constexpr IntRange kTokensPerItem{1, 1'000'000};
constexpr TimeRange kPeriods{std::chrono::milliseconds(1), std::chrono::hours(24 * 366)};

constexpr TimeRange kSteps{std::chrono::milliseconds(1), std::chrono::hours(24 * 366)};
constexpr RealRange kFactors{0, 1e6};
constexpr std::size_t kMaxFactors = 100'000;

constexpr std::array<std::string_view, 5> kRecipeKeys = {"rate", "arrivals", "diurnal", "shape",
                                                         "batch"};
constexpr std::array<std::string_view, 2> kTraceKeys = {"trace", "tokens_per_item"};
constexpr std::array<std::string_view, 2> kArrivalWords = {"poisson", "constant"};
constexpr std::array<std::string_view, 1> kArrivalKeys = {"gamma"};
constexpr std::array<std::string_view, 1> kGammaKeys = {"cv"};
constexpr std::array<std::string_view, 2> kDiurnalKeys = {"amplitude", "period"};
constexpr std::array<std::string_view, 2> kShapeKeys = {"step", "factors"};
constexpr std::array<std::string_view, 3> kBatchKeys = {"lognormal", "empirical", "trace"};
constexpr std::array<std::string_view, 3> kLogNormalKeys = {"median", "sigma", "max"};

// A number, or the same with "/s" after it.
double ReadRate(YamlReader& reader, const YamlNode& node) {
  YamlNode number = node;
  if (number.text.ends_with("/s")) number.text.resize(number.text.size() - 2);
  return reader.Real("rate", number, kRates);
}

Spacing ReadArrivals(YamlReader& reader, const YamlNode& node) {
  Spacing spacing;
  if (node.kind != YamlNode::Kind::kMapping) {
    const std::string word = reader.Choice("arrivals", node, kArrivalWords);
    if (word == "constant") spacing.kind = Spacing::Kind::kConstant;
    return spacing;
  }
  if (!reader.ExpectMapping(node, "arrivals", kArrivalKeys)) return spacing;
  const YamlNode* gamma = reader.Require(node, "gamma", "arrivals");
  if (gamma == nullptr || !reader.ExpectMapping(*gamma, "gamma", kGammaKeys)) return spacing;
  spacing.kind = Spacing::Kind::kGamma;
  if (const YamlNode* cv = reader.Require(*gamma, "cv", "gamma")) {
    spacing.cv = reader.Real("cv", *cv, kCvs);
  }
  return spacing;
}

Diurnal ReadDiurnal(YamlReader& reader, const YamlNode& node) {
  Diurnal diurnal;
  if (!reader.ExpectMapping(node, "diurnal", kDiurnalKeys)) return diurnal;
  if (const YamlNode* amplitude = reader.Require(node, "amplitude", "diurnal")) {
    diurnal.amplitude = reader.Real("amplitude", *amplitude, kAmplitudes);
  }
  if (const YamlNode* period = node.Find("period")) {
    diurnal.period = reader.Time("period", *period, kPeriods);
  }
  return diurnal;
}

Shape ReadShape(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "shape";
  Shape shape;
  if (!reader.ExpectMapping(node, kWhat, kShapeKeys)) return shape;
  if (const YamlNode* step = reader.Require(node, "step", kWhat)) {
    shape.step = reader.Time("step", *step, kSteps);
  }
  const YamlNode* factors = reader.Require(node, "factors", kWhat);
  if (factors == nullptr) return shape;
  const auto items = reader.List("factors", *factors);
  if (items.size() > kMaxFactors) {
    reader.Complain(factors->line,
                    fmt::format("factors: {}; at most {}", items.size(), kMaxFactors));
  }
  for (const YamlNode& item : items) {
    if (!reader.ok()) return shape;
    shape.factors.push_back(reader.Real("factors", item, kFactors));
  }
  if (std::ranges::none_of(shape.factors, [](double factor) { return factor > 0; })) {
    reader.Complain(factors->line, "factors: none is above 0; nothing would ever arrive");
  }
  return shape;
}

BatchDistribution ReadLogNormal(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "lognormal";
  BatchDistribution placeholder = BatchDistribution::Constant(1);
  if (!reader.ExpectMapping(node, kWhat, kLogNormalKeys)) return placeholder;
  const YamlNode* median = reader.Require(node, "median", kWhat);
  const YamlNode* sigma = reader.Require(node, "sigma", kWhat);
  const YamlNode* max = reader.Require(node, "max", kWhat);
  if (median == nullptr || sigma == nullptr || max == nullptr) return placeholder;
  const double median_value = reader.Real("median", *median, kMedians);
  const double sigma_value = reader.Real("sigma", *sigma, kSigmas);
  return BatchDistribution::LogNormal(median_value, sigma_value,
                                      reader.Integer("max", *max, kBatches));
}

BatchDistribution ReadEmpirical(YamlReader& reader, const YamlNode& node) {
  BatchDistribution placeholder = BatchDistribution::Constant(1);
  if (node.kind != YamlNode::Kind::kMapping) {
    reader.Complain(node.line,
                    "empirical: is a mapping of batch sizes to weights, such as "
                    "{1: 0.5, 8: 0.5}");
    return placeholder;
  }
  std::vector<double> weights;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const auto size = ParseInteger(node.keys[i]);
    if (!size || *size < kBatches.least || *size > kBatches.most) {
      reader.Complain(node.key_lines[i], fmt::format("empirical: {} is not a batch size, {}",
                                                     Quoted(node.keys[i]), Describe(kBatches)));
      return placeholder;
    }
    const auto index = static_cast<std::size_t>(*size - 1);
    if (weights.size() <= index) weights.resize(index + 1);
    weights[index] =
        reader.Real(fmt::format("empirical {}", node.keys[i]), node.items[i], kBatchWeights);
  }
  if (!reader.ok()) return placeholder;
  auto made = BatchDistribution::Empirical(weights);
  if (made) return *std::move(made);
  reader.Complain(node.line, fmt::format("empirical: {}", made.error().message));
  return placeholder;
}

void ReadBatch(YamlReader& reader, const YamlNode& node, RecipeLoad& recipe) {
  if (node.kind != YamlNode::Kind::kMapping) {
    recipe.load.batches = BatchDistribution::Constant(reader.Integer("batch", node, kBatches));
    return;
  }
  if (!reader.ExpectMapping(node, "batch", kBatchKeys)) return;
  if (node.keys.size() != 1) {
    reader.Complain(node.line, "batch: is a number, or one of lognormal, empirical and trace");
    return;
  }
  if (const YamlNode* lognormal = node.Find("lognormal")) {
    recipe.load.batches = ReadLogNormal(reader, *lognormal);
  }
  if (const YamlNode* empirical = node.Find("empirical")) {
    recipe.load.batches = ReadEmpirical(reader, *empirical);
  }
  if (const YamlNode* trace = node.Find("trace")) {
    recipe.batches_from = FileRef{reader.Path("trace", *trace), trace->line};
  }
}

TraceLoad ReadTraceLoad(YamlReader& reader, const YamlNode& node) {
  TraceLoad load;
  if (!reader.ExpectMapping(node, "a load from a trace", kTraceKeys)) return load;
  if (const YamlNode* trace = reader.Require(node, "trace", "a load from a trace")) {
    load.file = {reader.Path("trace", *trace), trace->line};
  }
  if (const YamlNode* tokens = node.Find("tokens_per_item")) {
    load.tokens_per_item = reader.Integer("tokens_per_item", *tokens, kTokensPerItem);
  }
  return load;
}

}  // namespace

std::variant<RecipeLoad, TraceLoad> ReadLoad(YamlReader& reader, const YamlNode& node) {
  if (node.Find("trace") != nullptr && node.Find("rate") != nullptr) {
    reader.Complain(node.line, "load: is made from a rate or read from a trace, not both");
  }
  if (node.Find("trace") != nullptr) return ReadTraceLoad(reader, node);
  RecipeLoad recipe;
  if (!reader.ExpectMapping(node, "load", kRecipeKeys)) return recipe;
  if (node.Find("rate") == nullptr) {
    reader.Complain(node.line, "load needs the key 'rate', requests a second, or the key 'trace'");
    return recipe;
  }
  recipe.load.rate = ReadRate(reader, *node.Find("rate"));
  if (const YamlNode* arrivals = node.Find("arrivals")) {
    recipe.load.spacing = ReadArrivals(reader, *arrivals);
  }
  if (const YamlNode* diurnal = node.Find("diurnal")) {
    recipe.load.diurnal = ReadDiurnal(reader, *diurnal);
  }
  if (const YamlNode* shape = node.Find("shape")) recipe.load.shape = ReadShape(reader, *shape);
  if (const YamlNode* batch = node.Find("batch")) ReadBatch(reader, *batch, recipe);
  return recipe;
}

}  // namespace divvy::workload
