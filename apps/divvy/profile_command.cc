#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "command.h"
#include "profile_measure.h"
#include "profile_ops.h"
#include "profile_report.h"
#include "table.h"
#include "text_file.h"
#include "workload/profile_import.h"

namespace divvy::app {
namespace {

using workload::ForeignTable;
using workload::ModelProfile;

struct ImportOptions {
  std::string file;
  std::string from;  // A key of ForeignTables().
  std::string save;
  bool all = false;
};

struct CheckOptions {
  std::string file;
  bool all = false;
  OutputFormat format = OutputFormat::kTable;
};

struct ShowOptions {
  std::string file;
  std::optional<std::string> model;
};

const std::map<std::string, ForeignTable>& ForeignTables() {
  static const std::map<std::string, ForeignTable> tables = {{"parvagpu", ForeignTable::kParvaGpu},
                                                             {"migperf", ForeignTable::kMigPerf}};
  return tables;
}

void Print(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

Result<workload::ProfileFile> LoadProfiles(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return Fail(text.error());
  return workload::ParseProfiles(*text, NameOfInput(path));
}

// To standard error, since the profiles may go to standard output.
void PrintNotes(std::string_view file, const std::vector<std::string>& notes, bool all) {
  constexpr std::size_t kShown = 20;
  const std::size_t shown = all ? notes.size() : std::min(notes.size(), kShown);
  for (std::size_t i = 0; i < shown; ++i) {
    std::fprintf(stderr, "%.*s: %s\n", static_cast<int>(file.size()), file.data(),
                 notes[i].c_str());
  }
  if (shown < notes.size()) {
    std::fprintf(stderr, "%.*s: and %s; --all lists them\n", static_cast<int>(file.size()),
                 file.data(), Count(notes.size() - shown, "more note").c_str());
  }
}

void Import(Invocation& invocation, const ImportOptions& options) {
  const auto text = ReadText(options.file);
  if (!text) return Complain(invocation, text.error());
  const std::string_view name = NameOfInput(options.file);
  const auto imported = workload::ImportProfiles(ForeignTables().at(options.from), *text, name);
  if (!imported) return Complain(invocation, imported.error());
  PrintNotes(name, imported->notes, options.all);
  const std::string profiles = workload::FormatProfiles(imported->models);
  if (options.save.empty() || options.save == "-") return Print(profiles);
  if (const auto saved = SaveText(options.save, profiles); !saved) {
    return Complain(invocation, saved.error());
  }
  std::size_t points = 0;
  for (const ModelProfile& model : imported->models) {
    for (const auto& curve : model.curves) points += curve.points.size();
  }
  fmt::print("wrote {}: {}, {}\n", options.save, Count(imported->models.size(), "profile"),
             Count(points, "point"));
}

void Check(Invocation& invocation, const CheckOptions& options) {
  const auto file = LoadProfiles(options.file);
  if (!file) return Complain(invocation, file.error());
  const std::string_view name = NameOfInput(options.file);
  Print(options.format == OutputFormat::kJson ? CheckToJson(*file, name)
                                              : DescribeCheck(*file, name, options.all));
}

void Show(Invocation& invocation, const ShowOptions& options) {
  const auto file = LoadProfiles(options.file);
  if (!file) return Complain(invocation, file.error());
  std::string text;
  std::vector<std::string_view> names;
  for (const ModelProfile& model : file->models) {
    names.push_back(model.model);
    if (options.model && model.model != *options.model) continue;
    text += (text.empty() ? "" : "\n") + DescribeCurves(model);
  }
  if (!text.empty()) return Print(text);
  std::string hint = DidYouMean(*options.model, names);
  if (hint.empty()) hint = "; it has " + OneOf(names);
  Complain(invocation,
           {ErrorCode::kNotFound, fmt::format("{} has no model {}{}", NameOfInput(options.file),
                                              Quoted(*options.model), hint)});
}

void AddImport(CLI::App& profile, Invocation& invocation) {
  auto options = std::make_shared<ImportOptions>();  // Shared with the callback, which outlives us.
  CLI::App* command = profile.add_subcommand("import", "Make profiles of a table of others");
  command->add_option("FILE", options->file, "The table, - for standard input")->required();
  command->add_option("--from", options->from, "Whose table it is")
      ->required()
      ->check(CLI::IsMember(&ForeignTables()).description(""))
      ->type_name("parvagpu|migperf");
  command->add_option("--save", options->save, "File to write; standard output without it")
      ->type_name("OUT");
  command->add_flag("--all", options->all, "Every note on what was left out, not the first 20");
  command->callback([&invocation, options] { Import(invocation, *options); });
}

void AddCheck(CLI::App& profile, Invocation& invocation) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command =
      profile.add_subcommand("check", "List what a profile file has, and what is odd about it");
  command->add_option("FILE", options->file, "Profile file, - for standard input")->required();
  command->add_flag("--all", options->all, "Every finding, not the first 20 of a kind");
  AddOutputOption(*command, options->format);
  command->callback([&invocation, options] { Check(invocation, *options); });
}

void AddShow(CLI::App& profile, Invocation& invocation) {
  auto options = std::make_shared<ShowOptions>();
  CLI::App* command = profile.add_subcommand("show", "Print the latencies of models");
  command->add_option("FILE", options->file, "Profile file, - for standard input")->required();
  command->add_option("--model", options->model, "Of this model alone")->type_name("NAME");
  command->callback([&invocation, options] { Show(invocation, *options); });
}

}  // namespace

void AddProfileCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* command = app.add_subcommand(
      "profile", "Measure a model on parts of a GPU; import, check and show measured profiles");
  command->require_subcommand(0, 1);
  AddImport(*command, invocation);
  AddCheck(*command, invocation);
  AddShow(*command, invocation);
  AddOps(*command, invocation);
  // The options of a measurement are of `profile` itself and would do for a slip in its commands.
  for (CLI::App* const one : command->get_subcommands({})) one->fallthrough(false);
  AddMeasure(*command, invocation);
}

}  // namespace divvy::app
