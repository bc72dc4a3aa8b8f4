#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "gpu/catalogue.h"
#include "gpu/enumerate.h"

namespace divvy::app {
namespace {

using gpu::GpuModel;
using gpu::MigInstance;
using gpu::MigLayout;
using gpu::MigProfile;
// Keys in the order they are written here: start before size reads as a place.
using Json = nlohmann::ordered_json;

struct LayoutsOptions {
  std::optional<std::string> gpu;  // None: list the catalogue.
  bool all = false;
  bool maximal = false;
  std::optional<std::string> profiles;  // A key of ProfileSets().
  OutputFormat format = OutputFormat::kTable;
};

const std::map<std::string, gpu::ProfileSet>& ProfileSets() {
  static const std::map<std::string, gpu::ProfileSet> sets = {{"base", gpu::ProfileSet::kBase},
                                                              {"double", gpu::ProfileSet::kDouble},
                                                              {"all", gpu::ProfileSet::kAll}};
  return sets;
}

constexpr const char* kExamples =
    "Without GPU, lists the GPUs that Divvy knows.\n"
    "\n"
    "Examples:\n"
    "  divvy layouts                           every GPU in the catalogue\n"
    "  divvy layouts h200                      NVIDIA's 19 layouts of an H200\n"
    "  divvy layouts h200 --profiles double    with the 1g profile of twice the memory\n"
    "  divvy layouts a100-80gb --all -o json   all 298, partly filled ones included\n";

void PrintJson(const Json& json) { fmt::print("{}\n", json.dump(2)); }

Json OrNull(std::optional<int> figure) { return figure ? Json(*figure) : Json(nullptr); }

Json ToJson(const MigProfile& profile) {
  return {{"name", profile.name},
          {"id", profile.nvml_id},
          {"compute_slices", profile.compute_slices},
          {"memory_slices", profile.memory_slices},
          {"max_instances", profile.max_instances},
          {"sms", OrNull(profile.sms)},
          {"memory_mib", OrNull(profile.memory_mib)},
          {"starts", profile.starts}};
}

Json ToJson(const GpuModel& model) {
  Json profiles = Json::array();
  for (const MigProfile& profile : model.profiles) profiles.push_back(ToJson(profile));
  return {{"name", model.name},
          {"architecture", model.architecture},
          {"compute_slices", model.compute_slices},
          {"memory_slices", model.memory_slices},
          {"sms", OrNull(model.sms)},
          {"provenance", gpu::Describe(model.provenance)},
          {"note", model.note},
          {"profiles", std::move(profiles)}};
}

Json ToJson(const MigLayout& layout) {
  Json instances = Json::array();
  for (const MigInstance& instance : layout.instances()) {
    const MigProfile& profile = layout.model().profile(instance.profile);
    instances.push_back(
        {{"profile", profile.name}, {"start", instance.start}, {"size", profile.memory_slices}});
  }
  return {{"instances", std::move(instances)}};
}

template <typename Range>
Json ToJsonArray(const Range& range) {
  Json array = Json::array();
  for (const auto& each : range) array.push_back(ToJson(each));
  return array;
}

void PrintCatalogue() {
  std::size_t widest = 0;
  for (const GpuModel& model : gpu::Catalogue()) widest = std::max(widest, model.name.size());
  const auto print = [&](auto name, auto architecture, auto compute, auto memory, auto source,
                         auto profiles) {
    fmt::print("{:<{}}  {:<15}  {:>7}  {:>6}  {:<23}  {}\n", name, widest, architecture, compute,
               memory, source, profiles);
  };
  print("GPU", "ARCHITECTURE", "COMPUTE", "MEMORY", "FIGURES", "PROFILES");
  for (const GpuModel& model : gpu::Catalogue()) {
    std::vector<std::string_view> names;
    for (const MigProfile& profile : model.profiles) names.push_back(profile.name);
    print(model.name, model.architecture, model.compute_slices, model.memory_slices,
          gpu::Describe(model.provenance), fmt::format("{}", fmt::join(names, " ")));
  }
  fmt::print("\nCOMPUTE and MEMORY are slices. `divvy layouts GPU` draws how one can be cut.\n");
}

void PrintHeader(const GpuModel& model) {
  fmt::print("{} ({}): {} compute slices, {} memory slices, {} SMs\n", model.name,
             model.architecture, model.compute_slices, model.memory_slices,
             model.sms ? std::to_string(*model.sms) : "unknown");
  fmt::print("Figures: {}.{}{}\n\n", gpu::Describe(model.provenance), model.note.empty() ? "" : " ",
             model.note);
}

void PrintStrips(const GpuModel& model, std::span<const MigLayout> layouts, gpu::Ink ink) {
  std::vector<std::vector<gpu::StripCell>> strips;
  int scale = 0;
  for (const MigLayout& layout : layouts) {
    auto& cells = strips.emplace_back();
    for (const MigInstance& instance : layout.instances()) cells.push_back({instance, ""});
    scale = std::max(scale, gpu::StripScale(model, cells));
  }
  const auto digits = std::to_string(strips.size()).size();
  for (std::size_t i = 0; i < strips.size(); ++i) {
    fmt::print("{:>{}}  {}\n", i + 1, digits, gpu::DrawStrip(model, strips[i], scale, ink));
  }
}

void PrintLayouts(const GpuModel& model, const LayoutsOptions& options, gpu::Ink ink) {
  const auto profiles = model.Select(ProfileSets().at(options.profiles.value_or("base")));
  const auto layouts = options.all ? gpu::EnumerateLayouts(model, profiles)
                                   : gpu::EnumerateMaximalLayouts(model, profiles);
  if (options.format == OutputFormat::kJson) return PrintJson(ToJsonArray(layouts));
  PrintHeader(model);
  PrintStrips(model, layouts, ink);
  fmt::print("\n{} layouts, {} distinct {}sets\n", layouts.size(),
             gpu::DistinctMultisets(layouts).size(), options.all ? "non-empty " : "");
}

void Run(const LayoutsOptions& options, Invocation& invocation) {
  if (!options.gpu) {
    if (options.all || options.maximal || options.profiles) {
      return Complain(invocation, {ErrorCode::kInvalidArgument,
                                   "--all, --maximal and --profiles need a GPU to be about"});
    }
    if (options.format == OutputFormat::kJson) return PrintJson(ToJsonArray(gpu::Catalogue()));
    return PrintCatalogue();
  }
  const auto model = gpu::FindGpuModel(*options.gpu);
  if (!model) return Complain(invocation, model.error());
  PrintLayouts(**model, options, invocation.ink);
}

}  // namespace

void AddLayoutsCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand("layouts", "Draw the ways in which MIG can cut a GPU");
  // Shared by the options, which fill it, and the callback, which reads it.
  auto options = std::make_shared<LayoutsOptions>();
  command->add_option("GPU", options->gpu, "Its name, or as much of it as names only one")
      ->type_name("");
  CLI::Option* maximal = command->add_flag("--maximal", options->maximal,
                                           "Layouts to which nothing can be added (default)");
  command->add_flag("--all", options->all, "Partly filled layouts and the empty one too")
      ->excludes(maximal);
  command
      ->add_option("--profiles", options->profiles,
                   "One profile a size (default), or with the 1g of twice the memory, or all")
      ->transform(CLI::IsMember(&ProfileSets(), CLI::ignore_case).description(""))
      ->type_name("base|double|all");
  AddOutputOption(*command, options->format);
  command->footer(kExamples);
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
