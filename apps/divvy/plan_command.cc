#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "command.h"
#include "plan/drawing.h"
#include "plan/plan_json.h"
#include "plan_exchange.h"
#include "plan_fleet.h"
#include "plan_input.h"
#include "text_file.h"

namespace divvy::app {
namespace {

struct ShowOptions {
  std::string file;
  OutputFormat format = OutputFormat::kTable;
};

void Show(Invocation& invocation, const ShowOptions& options) {
  const auto plan = LoadPlan(options.file);
  if (!plan) return Complain(invocation, plan.error());
  const std::string text = options.format == OutputFormat::kJson
                               ? plan::ToJson(*plan).dump(2) + "\n"
                               : plan::DrawPlan(*plan, invocation.ink);
  std::fwrite(text.data(), 1, text.size(), stdout);
}

void CheckPlan(Invocation& invocation, const std::string& file) {
  const auto plan = LoadPlan(file);
  if (!plan) {
    // Without "divvy: " before the first, so that editors find every place.
    if (plan.error().code == ErrorCode::kInvalidArgument) {
      std::fprintf(stderr, "%s\n", plan.error().message.c_str());
      invocation.status = ExitStatus::kUsage;
      return;
    }
    return Complain(invocation, plan.error());
  }
  std::size_t instances = 0;
  for (const plan::PlannedGpu& gpu : plan->gpus) instances += gpu.instances.size();
  const auto plural = [](std::size_t count) { return count == 1 ? "" : "s"; };
  std::printf("%.*s: ok, %zu GPU%s, %zu instance%s\n", static_cast<int>(NameOfInput(file).size()),
              NameOfInput(file).data(), plan->gpus.size(), plural(plan->gpus.size()), instances,
              plural(instances));
}

}  // namespace

void AddPlanCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      app.add_subcommand("plan", "Plan for a fleet; show, check and exchange plans");
  command->require_subcommand(0, 1);

  // The callbacks share the options, since they run after this function.
  auto show_options = std::make_shared<ShowOptions>();
  CLI::App* show = command->add_subcommand("show", "Draw a plan: each GPU cut into instances");
  show->add_option("FILE", show_options->file, "Plan file, - for standard input")->required();
  AddOutputOption(*show, show_options->format);
  show->callback([&invocation, show_options] { Show(invocation, *show_options); });

  auto file = std::make_shared<std::string>();
  CLI::App* check = command->add_subcommand("check", "Say whether the GPUs can be cut so");
  check->add_option("FILE", *file, "Plan file, - for standard input")->required();
  check->callback([&invocation, file] { CheckPlan(invocation, *file); });

  AddPlanExport(*command, invocation);
  AddPlanImport(*command, invocation);
  AddPlanFleet(*command, invocation);
}

}  // namespace divvy::app
