#include "plan_exchange.h"

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>

#include "plan/mig_parted.h"
#include "plan/plan_file.h"
#include "plan_input.h"
#include "text_file.h"

namespace divvy::app {
namespace {

struct ExportOptions {
  std::string file;
  std::string format;
  std::string name = "divvy";
  std::string save;
};

struct ImportOptions {
  std::string file;
  plan::MigPartedSelection selection;
  std::string save;
};

// Saves `text` where the user asked, or prints it.
void Deliver(Invocation& invocation, std::string_view text, const std::string& save) {
  if (save.empty() || save == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  if (const auto saved = SaveText(save, text); !saved) return Complain(invocation, saved.error());
  std::printf("wrote %s\n", save.c_str());
}

void Export(Invocation& invocation, const ExportOptions& options) {
  const auto plan = LoadPlan(options.file);
  if (!plan) return Complain(invocation, plan.error());
  const auto text = plan::ExportMigParted(*plan, options.name);
  if (!text) return Complain(invocation, text.error());
  Deliver(invocation, *text, options.save);
}

void Import(Invocation& invocation, const ImportOptions& options) {
  const auto text = ReadText(options.file);
  if (!text) return Complain(invocation, text.error());
  const std::string_view name = NameOfInput(options.file);
  auto read = plan::ImportMigParted(*text, name, options.selection);
  if (!read) return Complain(invocation, read.error());
  const auto plan = Validated(std::move(*read), name);
  if (!plan) return Complain(invocation, plan.error());
  Deliver(invocation, plan::FormatPlan(*plan), options.save);
}

}  // namespace

void AddPlanExport(CLI::App& plan, Invocation& invocation) {
  auto options = std::make_shared<ExportOptions>();  // Shared with the callback, which outlives us.
  CLI::App* command = plan.add_subcommand("export", "Write a plan in another tool's format");
  command->add_option("FILE", options->file, "Plan file, - for standard input")->required();
  command->add_option("--format", options->format, "The format to write")
      ->required()
      ->check(CLI::IsMember({"mig-parted"}).description(""))
      ->type_name("mig-parted");
  command->add_option("--name", options->name, "Name of the config (default divvy)")
      ->type_name("NAME");
  command->add_option("--save", options->save, "File to write; standard output without it")
      ->type_name("OUT");
  command->callback([&invocation, options] { Export(invocation, *options); });
}

void AddPlanImport(CLI::App& plan, Invocation& invocation) {
  auto options = std::make_shared<ImportOptions>();  // Shared with the callback, which outlives us.
  CLI::App* command = plan.add_subcommand("import", "Make a plan of a mig-parted config");
  command->add_option("CONFIG", options->file, "mig-parted file, - for standard input")->required();
  command->add_option("--config", options->selection.config, "Which of its configs")
      ->required()
      ->type_name("NAME");
  command->add_option("--kind", options->selection.kind, "Kind of the GPUs, e.g. H200-141GB")
      ->type_name("KIND");
  command->add_option("--gpus", options->selection.gpus, "How many GPUs the node has")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  command->add_option("--save", options->save, "File to write; standard output without it")
      ->type_name("OUT");
  command->callback([&invocation, options] { Import(invocation, *options); });
}

}  // namespace divvy::app
