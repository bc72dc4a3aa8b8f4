#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "advise_input.h"
#include "advise_report.h"
#include "command.h"
#include "planner/advice.h"
#include "text_file.h"
#include "workload/collocations.h"
#include "workload/jobs_file.h"

namespace divvy::app {
namespace {

struct AdviseOptions {
  std::string jobs;
  std::string history;  // Empty: the user's own, if there is one; "none": what ships alone.
  double keep = 0.85;
  bool isolate = false;
  OutputFormat format = OutputFormat::kTable;
};

Result<planner::InterferenceModels> LoadModels(const std::string& named) {
  const std::string path = named.empty() ? OwnHistory() : named;
  if (path.empty() || named == "none") return planner::InterferenceModels::Shipped();
  const auto text = ReadText(path);
  if (!text) {
    // Nobody need have measured anything.
    if (named.empty() && text.error().code == ErrorCode::kNotFound) {
      return planner::InterferenceModels::Shipped();
    }
    return Fail(text.error());
  }
  const auto sets = workload::ParseCollocations(*text, NameOfInput(path));
  if (!sets) return Fail(sets.error());
  return planner::InterferenceModels::LearnedFrom(*sets);
}

void RunAdvise(const AdviseOptions& options, Invocation& invocation) {
  const auto text = ReadText(options.jobs);
  if (!text) return Complain(invocation, text.error());
  auto file = workload::ParseJobs(*text, NameOfInput(options.jobs));
  if (!file) return Complain(invocation, file.error());
  auto models = LoadModels(options.history);
  if (!models) return Complain(invocation, models.error());

  planner::AdviceRequest request = RequestFor(*std::move(file), *std::move(models));
  request.keep = options.keep;
  request.isolate = options.isolate;
  const planner::Advice advice = planner::Advise(request);
  if (options.format == OutputFormat::kJson) {
    fmt::print("{}\n", AdviceJson(request, advice).dump(2));
  } else {
    PrintAdvice(request, advice);
  }
}

constexpr const char* kAdviseFooter = R"(
Predicts from what is known of each job alone. "needs" is the share of a job's
time that grows when it has less of the GPU; "work" is the sum of all speeds, 1
being one job at a time. Reads no GPU, and runs nothing. What `divvy collocate`
has measured on this machine is learned from.

Examples:
  divvy advise jobs.yaml                should these share a GPU, and how?
  divvy advise jobs.yaml --isolate      and if they must be kept apart?
  divvy advise jobs.yaml --history measured.csv -o json)";

}  // namespace

void AddAdviseCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "advise", "Say whether jobs should share a GPU, and how, from what each does alone");
  const auto options = std::make_shared<AdviseOptions>();
  command->add_option("JOBS", options->jobs, "Jobs file (docs/formats/jobs.md), or - for stdin")
      ->required();
  command->add_option("--history", options->history,
                      "Measured collocations to learn from; else "
                      "~/.local/state/divvy/collocations.csv, if there is one; none: from nothing");
  command->add_option("--keep", options->keep, "Share of its speed that each job should keep")
      ->check(NumberIn({0.01, 0.99}))
      ->capture_default_str();
  command->add_flag("--isolate", options->isolate, "Jobs must not see each other: MIG or nothing");
  AddOutputOption(*command, options->format);
  command->footer(kAdviseFooter);
  command->callback([options, &invocation] { RunAdvise(*options, invocation); });
}

}  // namespace divvy::app
