#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "command.h"
#include "device/journal.h"
#include "run_keeper.h"

namespace divvy::app {
namespace {

// A change that a crash cut short leaves GPUs half cut; whoever comes along
// should hear of it. A journal that this user may not read is not warned about.
void WarnOfUnfinishedChange(const Invocation& invocation) {
  const auto read = device::ReadUnfinished(invocation.state_dir);
  Error error;
  if (!read) {
    error = read.error();
    if (error.code == ErrorCode::kPermissionDenied) return;
  } else {
    const std::optional<device::JournalRecord>& record = *read;
    if (!record) return;
    error = device::UnfinishedError(*record);
  }
  std::fflush(stdout);
  std::fprintf(stderr, "divvy: warning: %s\n", error.message.c_str());
}

// CLI11 would only say that a command is missing. False when one was recognised, or
// none was given.
bool ComplainOfUnknownCommand(const CLI::App& app) {
  if (!app.get_subcommands().empty() || app.remaining_size() == 0) return false;
  const std::string word = app.remaining().front();
  if (word.starts_with('-')) return false;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  std::string hint = DidYouMean(word, views);
  if (hint.empty()) hint = "; it is one of " + OneOf(views);
  std::fprintf(stderr, "divvy: no command is called %s%s\n", Quoted(word).c_str(), hint.c_str());
  return true;
}

// CLI11 would name the word, or another that is missing for it, and no more. False when every
// option was known.
bool ComplainOfUnknownOption(const CLI::App& app, bool has_job) {
  std::vector<std::string> names;
  std::string path = "divvy";
  std::string job;         // What is to be run, where the two dashes were forgotten.
  bool takes_job = false;  // After two dashes: what is behind a word that is no option may be its.
  for (const CLI::App* next = &app; next != nullptr;) {
    const CLI::App* const command = next;
    if (command != &app) path += " " + command->get_name();
    takes_job = command->get_name() == "run" || command->get_name() == "ops";
    const CLI::Option* const stray = command->get_option_no_throw("COMMAND");
    if (stray != nullptr && stray->count() > 0) job = stray->results().front();
    for (const CLI::Option* option : command->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
    }
    const auto chosen = command->get_subcommands();
    next = chosen.empty() ? nullptr : chosen.front();
  }
  const std::vector<std::string_view> views(names.begin(), names.end());
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  const auto name_of = [](const std::string& word) { return word.substr(0, word.find('=')); };
  if (takes_job && !has_job && !job.empty() && !unknown.empty() &&
      DidYouMean(name_of(unknown.front()), views).empty()) {
    std::fprintf(stderr, "divvy: what is to be run comes after two dashes: %s -- %s ...\n",
                 path.c_str(), job.c_str());
    return true;
  }
  for (const std::string& word : unknown) {
    const std::string name = name_of(word);
    if (!name.starts_with("--") || name == "--") continue;
    std::string hint = DidYouMean(name, views);
    if (takes_job && !unknown.front().starts_with('-')) {
      hint = fmt::format("; what is to be run comes after two dashes: {} -- {} ...", path,
                         unknown.front());
    }
    std::fprintf(stderr, "divvy: %s has no option %s%s\n", path.c_str(), Quoted(name).c_str(),
                 hint.c_str());
    std::fprintf(stderr, "Run with --help for those that there are.\n");
    return true;
  }
  return false;
}

// Takes what follows "--" off the command line of `divvy run` or `divvy profile --ops` and
// returns it. It is another program's, of which CLI11 would make options, lists and commands of
// ours.
std::vector<std::string> TakeJob(int& argc, char** argv) {
  bool run = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") {
      std::vector<std::string> job(argv + i + 1, argv + argc);
      if (run) argc = i;
      return run ? job : std::vector<std::string>{};
    }
    if (run) continue;
    if (word == "--nvml" || word == "--state-dir") {
      ++i;  // Its value.
    } else if (!word.starts_with('-')) {
      const std::string_view next = i + 1 < argc ? argv[i + 1] : "";
      if (word != "run" && (word != "profile" || (next != "--ops" && next != "ops"))) return {};
      run = true;
    }
  }
  return {};
}

int Main(int argc, char** argv) {
  Invocation invocation;
  invocation.job = TakeJob(argc, argv);
  // https://no-color.org: any value but the empty one asks for plain text.
  const char* const no_color = std::getenv("NO_COLOR");
  const bool plain = no_color != nullptr && *no_color != '\0';
  invocation.ink = isatty(STDOUT_FILENO) && !plain ? gpu::Ink::kColour : gpu::Ink::kPlain;
  invocation.interactive = isatty(STDIN_FILENO);

  CLI::App app("Divvy shares NVIDIA GPUs between inference services and training jobs.", "divvy");
  app.set_version_flag("--version", "divvy " DIVVY_VERSION);
  app.set_help_all_flag("--help-all", "Help of every command");
  app.require_subcommand(1);
  app.fallthrough();
  app.add_option("--nvml", invocation.nvml, "NVML library to use, say the simulator's")
      ->envname("DIVVY_NVML")
      ->capture_default_str();
  app.add_option("--state-dir", invocation.state_dir, "Where changes are journaled")
      ->envname("DIVVY_STATE_DIR")
      ->capture_default_str();
  AddGpusCommand(app, invocation);
  AddFitCommand(app, invocation);
  AddLayoutsCommand(app, invocation);
  AddPlanCommand(app, invocation);
  AddProfileCommand(app, invocation);
  AddCollocateCommand(app, invocation);
  AddAdviseCommand(app, invocation);
  AddSimulateCommand(app, invocation);
  AddApplyCommand(app, invocation);
  AddControlCommand(app, invocation);
  AddRunCommand(app, invocation);
  AddServeCommand(app, invocation);
  AddBenchCommand(app, invocation);
  AddTopCommand(app, invocation);
  AddKeeperCommand(app, invocation);

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0 &&
        (ComplainOfUnknownCommand(app) || ComplainOfUnknownOption(app, !invocation.job.empty()))) {
      return static_cast<int>(ExitStatus::kUsage);
    }
    // CLI11 prints help and errors itself; its own codes are not ours.
    return static_cast<int>(app.exit(error) == 0 ? ExitStatus::kOk : ExitStatus::kUsage);
  }
  // An apply that failed has said so itself.
  if (!app.got_subcommand("apply") || invocation.status == ExitStatus::kOk) {
    WarnOfUnfinishedChange(invocation);
  }
  return static_cast<int>(invocation.status);
}

// A daemon may start us with standard streams closed; the next file opened, a
// journal say, would then take what is meant for them.
void OpenStandardStreams() {
  int fd = open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) close(fd);
}

}  // namespace
}  // namespace divvy::app

int main(int argc, char** argv) {
  divvy::app::OpenStandardStreams();
  const auto failed = static_cast<int>(divvy::app::ExitStatus::kFailed);
  try {
    const int status = divvy::app::Main(argc, argv);
    if (std::fflush(stdout) != 0) {
      std::perror("divvy: cannot write to standard output");
      return failed;
    }
    if (std::ferror(stdout) == 0) return status;
    std::fprintf(stderr, "divvy: cannot write to standard output\n");
  } catch (const std::exception& error) {
    // We do not throw; fmt does when standard output is full or closed.
    std::fprintf(stderr, "divvy: %s\n", error.what());
  }
  return failed;
}
