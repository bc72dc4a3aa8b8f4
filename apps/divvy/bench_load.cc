#include "bench_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/number.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "sim/latency_bounded.h"
#include "simulate_arguments.h"
#include "simulate_trace.h"
#include "text_file.h"
#include "workload/fleet_load.h"

namespace divvy::app {
namespace {

constexpr double kSearchFrom = 100;  // Requests a second.
constexpr Duration kUsualLength = std::chrono::seconds(10);
constexpr std::uint64_t kWarmUpSeed = 0x9e3779b97f4a7c15;

using Trace = std::span<const workload::Arrival>;

[[nodiscard]] tl::unexpected<Error> Wrong(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// "lognormal:6,0.9,32" is short for what fleets write as a mapping.
std::string BatchYaml(const std::string& text) {
  constexpr std::string_view kShort = "lognormal:";
  if (!text.starts_with(kShort)) return text.empty() ? "1" : text;
  const std::string_view rest = std::string_view(text).substr(kShort.size());
  const std::size_t first = rest.find(',');
  const std::size_t second = rest.rfind(',');
  if (first == std::string_view::npos || first == second) return text;
  return fmt::format("{{lognormal: {{median: {}, sigma: {}, max: {}}}}}", rest.substr(0, first),
                     rest.substr(first + 1, second - first - 1), rest.substr(second + 1));
}

std::string ArrivalsYaml(const std::string& text) {
  constexpr std::string_view kShort = "gamma:";
  if (!text.starts_with(kShort)) return text.empty() ? "poisson" : text;
  return fmt::format("{{gamma: {{cv: {}}}}}", text.substr(kShort.size()));
}

// Read as a fleet's `load` is, so that both know the same words.
[[nodiscard]] Result<workload::Load> ReadRecipe(const BenchLoadOptions& options) {
  const std::string name = "--arrivals and --batch";
  // There is but one line, which nobody has written.
  const auto refused = [&](Error error) {
    const std::string where = name + ":1: ";
    if (error.message.starts_with(where)) error.message.erase(name.size(), 2);
    return Fail(std::move(error));
  };
  const std::string text =
      fmt::format("{{rate: {}, arrivals: {}, batch: {}}}", options.rate.value_or(kSearchFrom),
                  ArrivalsYaml(options.arrivals), BatchYaml(options.batch));
  const auto tree = ParseYaml(text, name);
  if (!tree) return refused(tree.error());
  YamlReader reader(name);
  const auto read = workload::ReadLoad(reader, *tree);
  if (!reader.ok()) return refused(reader.error());
  const auto* recipe = std::get_if<workload::RecipeLoad>(&read);
  if (recipe == nullptr || recipe->batches_from) {
    return Wrong("--batch: is a number, lognormal:MEDIAN,SIGMA,MAX or {empirical: {1: 3, 8: 1}}");
  }
  return recipe->load;
}

[[nodiscard]] Result<void> RefuseContradictions(const BenchLoadOptions& options) {
  const bool given = options.fleet.has_value();
  const struct {
    bool wrong;
    const char* option;
    const char* with;
  } kRefused[] = {
      {given && options.model, "--model", "--fleet, which names its models"},
      {given && options.rate, "--rate", "--fleet, which has its own load"},
      {given && !options.arrivals.empty(), "--arrivals", "--fleet, which has its own load"},
      {given && !options.batch.empty(), "--batch", "--fleet, which has its own load"},
      {options.trace && options.rate, "--rate", "--trace, which has its own times"},
      {options.trace && !options.arrivals.empty(), "--arrivals",
       "--trace, which has its own times"},
      {options.trace && !options.batch.empty(), "--batch", "--trace, which has its own sizes"},
  };
  for (const auto& [wrong, option, with] : kRefused) {
    if (wrong) return Wrong(fmt::format("{} does not go with {}", option, with));
  }
  if (!given && !options.trace && !options.rate && !options.search) {
    return Wrong("how much to send? Give --rate, --trace or --fleet, or --search");
  }
  return {};
}

[[nodiscard]] Result<void> ReadFleet(const BenchLoadOptions& options, BenchLoad& load) {
  auto fleet = LoadFleet(*options.fleet);
  if (!fleet) return Fail(fleet.error());
  load.fleet = std::move(*fleet);
  if (options.trace) {
    if (auto replaced = ReplaceLoad(*load.fleet, *options.trace); !replaced) return replaced;
  }
  load.seed = load.fleet->problem.seed;
  load.sources = load.fleet->sources;
  for (const workload::FleetModel& model : load.fleet->fleet.models) {
    load.names.push_back(model.name);
    load.slos.emplace_back(model.slo);
  }
  load.description = NameOfInput(*options.fleet);
  return {};
}

[[nodiscard]] Result<void> ReadTrace(const BenchLoadOptions& options, BenchLoad& load) {
  const std::string_view file = NameOfInput(*options.trace);
  const auto text = ReadText(*options.trace);
  if (!text) return Fail(text.error());
  auto parsed = workload::ParseTrace(*text, file);
  if (!parsed) return Fail(parsed.error());
  for (const workload::ModelTrace& part : load.traces.emplace_back(std::move(*parsed)).models) {
    if (options.model && !part.model.empty() && part.model != *options.model) continue;
    load.names.push_back(part.model.empty() ? options.model.value_or("") : part.model);
    load.slos.emplace_back();
    sim::Source source;
    source.arrivals = Trace(part.arrivals);
    load.sources.push_back(std::move(source));
  }
  if (load.sources.empty()) {
    return Wrong(fmt::format("{} has no arrivals of model {}", file, Quoted(*options.model)));
  }
  load.description = file;
  return {};
}

[[nodiscard]] Result<void> ReadOne(const BenchLoadOptions& options, BenchLoad& load) {
  auto recipe = ReadRecipe(options);
  if (!recipe) return Fail(recipe.error());
  load.names.push_back(options.model.value_or(""));
  load.slos.emplace_back();
  load.description = fmt::format("{:.6g}/s, {}, {}", recipe->rate,
                                 options.arrivals.empty() ? "poisson" : options.arrivals,
                                 recipe->batches.description());
  sim::Source source;
  source.arrivals = std::move(*recipe);
  load.sources.push_back(std::move(source));
  return {};
}

int LargestOf(const sim::Source& source) {
  if (const auto* recipe = std::get_if<workload::Load>(&source.arrivals)) {
    return recipe->batches.largest();
  }
  int largest = 1;
  for (const workload::Arrival& arrival : std::get<Trace>(source.arrivals)) {
    largest = std::max(largest, arrival.batch);
  }
  return largest;
}

// That of the traces; nothing if there is none.
std::optional<Duration> LengthOfTraces(const std::vector<sim::Source>& sources) {
  std::optional<Duration> length;
  for (const sim::Source& source : sources) {
    const auto* trace = std::get_if<Trace>(&source.arrivals);
    // The last arrival belongs to it.
    if (trace != nullptr) {
      length = std::max(length.value_or(Duration(0)), trace->back().at + Duration(1));
    }
  }
  return length;
}

[[nodiscard]] Result<Duration> LengthOf(const BenchLoadOptions& options, const BenchLoad& load) {
  const std::optional<Duration> traces = LengthOfTraces(load.sources);
  if (!options.duration) return traces.value_or(kUsualLength);
  const auto asked = ParseTimeArgument("--duration", *options.duration);
  if (!asked) return asked;
  if (*asked <= Duration(0)) return Wrong("--duration: a run must last longer than nothing");
  return traces ? std::min(*asked, *traces) : *asked;
}

}  // namespace

double BenchLoad::Rate() const {
  double rate = 0;
  for (const sim::Source& source : sources) {
    if (const auto* recipe = std::get_if<workload::Load>(&source.arrivals)) {
      rate += workload::MeanRate(*recipe);
    } else {
      const Trace trace = std::get<Trace>(source.arrivals);
      const double seconds = Seconds(trace.back().at);
      if (seconds > 0) rate += static_cast<double>(trace.size()) / seconds;
    }
  }
  return rate;
}

Result<std::unique_ptr<BenchLoad>> ReadBenchLoad(const BenchLoadOptions& options) {
  if (auto sound = RefuseContradictions(options); !sound) return Fail(sound.error());
  auto load = std::make_unique<BenchLoad>();
  auto read = options.fleet   ? ReadFleet(options, *load)
              : options.trace ? ReadTrace(options, *load)
                              : ReadOne(options, *load);
  if (!read) return Fail(read.error());
  if (options.seed) load->seed = *options.seed;
  if (options.slo) {
    const auto slo = ParseTimeArgument("--slo", *options.slo);
    if (!slo) return Fail(slo.error());
    if (*slo <= Duration(0)) return Wrong("--slo: must be longer than nothing");
    load->sent_slo = *slo;
    std::ranges::fill(load->slos, *slo);
  }
  for (const sim::Source& source : load->sources) load->largest.push_back(LargestOf(source));
  const auto length = LengthOf(options, *load);
  if (!length) return Fail(length.error());
  load->length = *length;
  return load;
}

client::Schedule ScheduleOf(const BenchLoad& load, double factor, Duration length, Duration warm_up,
                            std::vector<std::vector<workload::Arrival>>& storage) {
  std::vector<sim::Source> sources = load.sources;
  if (factor != 1) sources = sim::Scaled(load.sources, factor, storage);
  // A trace that is sent faster is over sooner.
  if (const auto traces = LengthOfTraces(sources)) length = std::min(length, *traces);
  // Other arrivals warm the server up: those that are measured begin at their beginning.
  return client::Schedule(sim::StreamsOf(sources, load.seed), length,
                          sim::StreamsOf(sources, load.seed ^ kWarmUpSeed), warm_up);
}

}  // namespace divvy::app
