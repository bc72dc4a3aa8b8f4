#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/spelling.h"
#include "command.h"
#include "device/change.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "gpu/transition.h"

namespace divvy::app {
namespace {

using device::GpuState;
using gpu::Defragmentation;
using gpu::Unreachable;
using nlohmann::json;

struct FitOptions {
  std::string profile;
  bool drain = false;
  OutputFormat format = OutputFormat::kTable;
};

struct Fit {
  const GpuState* gpu;
  std::variant<Defragmentation, Unreachable> answer;
};

// One answer for each GPU in MIG mode that has the profile.
Result<std::vector<Fit>> FindFits(const device::NodeState& node, const FitOptions& options) {
  std::vector<Fit> fits;
  std::vector<std::string_view> names;
  bool any_mig = false;
  for (const GpuState& gpu : node.gpus) {
    for (const gpu::MigProfile& profile : gpu.model.profiles) names.push_back(profile.name);
    const auto profile = gpu.model.FindProfile(options.profile);
    if (!gpu.mig_enabled) continue;
    any_mig = true;
    if (!profile) continue;
    auto present = device::PresentOf(gpu);
    if (!present) return Fail(present.error());
    if (options.drain) {
      for (gpu::PresentInstance& instance : *present) instance.busy = false;
    }
    fits.push_back({&gpu, gpu::PlanDefragmentation(gpu.model, *present, *profile)});
  }
  if (!any_mig) {
    return Fail(ErrorCode::kFailedPrecondition, "no GPU of this node is in MIG mode");
  }
  if (fits.empty()) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("no GPU of this node has a profile '{}'{}", options.profile,
                            DidYouMean(options.profile, names)));
  }
  return fits;
}

std::string Sentence(const Fit& fit, const std::string& profile) {
  if (const auto* no = std::get_if<Unreachable>(&fit.answer)) {
    return fmt::format("no room for {}: {}", profile, no->why);
  }
  const auto& yes = std::get<Defragmentation>(fit.answer);
  if (yes.moves.empty()) return fmt::format("room for {} at {} now", profile, yes.start);
  std::string moves;
  for (const gpu::Move& move : yes.moves) {
    if (!moves.empty()) moves += ", ";
    moves += fmt::format("{} from {} to {}", fit.gpu->model.profile(move.profile).name, move.from,
                         move.to);
  }
  return fmt::format("room for {} at {} after moving {}", profile, yes.start, moves);
}

json ToJson(const Fit& fit, const std::string& profile) {
  json j = {{"gpu", fit.gpu->index}, {"uuid", fit.gpu->uuid}, {"profile", profile}};
  if (const auto* no = std::get_if<Unreachable>(&fit.answer)) {
    j["fits"] = false;
    j["why"] = no->why;
    return j;
  }
  const auto& yes = std::get<Defragmentation>(fit.answer);
  j["fits"] = true;
  j["start"] = yes.start;
  j["moves"] = json::array();
  for (const gpu::Move& move : yes.moves) {
    j["moves"].push_back({{"profile", fit.gpu->model.profile(move.profile).name},
                          {"from", move.from},
                          {"to", move.to}});
  }
  return j;
}

void Run(const FitOptions& options, Invocation& invocation) {
  auto nvml = device::NvmlLibrary::Open(invocation.nvml);
  if (!nvml) return Complain(invocation, nvml.error());
  const auto node = device::ReadNode(**nvml);
  if (!node) return Complain(invocation, node.error());
  const auto fits = FindFits(*node, options);
  if (!fits) return Complain(invocation, fits.error());
  json array = json::array();
  for (const Fit& fit : *fits) {
    if (options.format == OutputFormat::kJson) {
      array.push_back(ToJson(fit, options.profile));
    } else {
      fmt::print("GPU {}: {}\n", fit.gpu->index, Sentence(fit, options.profile));
    }
  }
  if (options.format == OutputFormat::kJson) fmt::print("{}\n", array.dump(2));
}

constexpr const char* kFitFooter = R"(
A move drains an instance, creates one like it elsewhere and destroys the old
one. Busy instances are not moved unless --drain says that their work may be.
Changes nothing.

Examples:
  divvy fit 4g.71gb             on which GPUs would one more 4g.71gb fit?
  divvy fit 4g.71gb --drain     and if busy instances could be drained?)";

}  // namespace

void AddFitCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "fit", "Show where one more MIG instance fits, and the fewest moves that make room");
  const auto options = std::make_shared<FitOptions>();
  command->add_option("PROFILE", options->profile, "MIG profile, e.g. 3g.71gb")->required();
  command->add_flag("--drain", options->drain, "Busy instances may be drained and moved too");
  AddOutputOption(*command, options->format);
  command->footer(kFitFooter);
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
