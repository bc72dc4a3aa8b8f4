#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "advise_input.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "collocate_advice.h"
#include "collocate_exports.h"
#include "collocate_jobs.h"
#include "collocate_meters.h"
#include "collocate_report.h"
#include "collocate_timeline.h"
#include "collocate_ways.h"
#include "command.h"
#include "device/node.h"
#include "gpu/catalogue.h"
#include "measure/runs_plan.h"
#include "planner/advice_modes.h"
#include "run_gpu.h"
#include "run_watch.h"
#include "text_file.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;
using measure::RunRow;
using measure::RunState;
using workload::CollocatedJob;
using workload::SharingMode;

struct CollocateOptions {
  std::string jobs;
  std::string runs;  // Empty: the jobs file's name with .runs.csv.
  std::vector<std::string> modes;
  bool retry = false;
  bool restart = false;
  std::string gpu;
  std::string library;
  std::string logs;
  std::string history;  // Empty: the user's own; "none": no file.
  ExportPaths exports;
  OutputFormat format = OutputFormat::kTable;
};

// A lock beside a file, released with the process. It stays where it is: whoever has opened it and
// waits must not end up with another than the next one.
class HeldRuns {
 public:
  [[nodiscard]] static Result<HeldRuns> Take(const std::string& path) {
    const std::string lock = path + ".lock";
    const int fd = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      return Fail(ErrorCode::kPermissionDenied, fmt::format("{}: {}", lock, strerror(errno)));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      close(fd);
      return Fail(ErrorCode::kResourceExhausted,
                  fmt::format("{} is being worked on by another divvy collocate", path));
    }
    return HeldRuns(fd);
  }
  HeldRuns(HeldRuns&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  HeldRuns& operator=(HeldRuns&&) = delete;
  ~HeldRuns() {
    if (fd_ >= 0) close(fd_);
  }

 private:
  explicit HeldRuns(int fd) : fd_(fd) {}
  int fd_;
};

// One invocation's work.
class Collocation {
 public:
  Collocation(const CollocateOptions& options, workload::JobsFile file, const std::string& nvml)
      : options_(options), file_(std::move(file)), nvml_(nvml) {}

  [[nodiscard]] Result<void> Prepare() {
    if (auto checked = CheckJobs(file_.jobs, NameOfInput(options_.jobs)); !checked) return checked;
    path_ = options_.runs;
    if (path_.empty()) path_ = fs::path(options_.jobs).replace_extension(".runs.csv");
    logs_ =
        options_.logs.empty() ? fs::path(path_).replace_extension(".logs").string() : options_.logs;
    if (auto writable = CheckOutputs(); !writable) return writable;
    if (auto found = FindGpu(); !found) return found;
    auto held = HeldRuns::Take(path_);
    if (!held) return Fail(held.error());
    held_.emplace(*std::move(held));
    return LoadRuns();
  }

  // Every run that is open; what fails is noted, and the others go on.
  [[nodiscard]] Result<void> Run(const std::string& run_id) {
    const std::vector<std::string> open = OpenWorkloads();
    if (!open.empty()) {
      if (auto kind = CheckKind(); !kind) return kind;
      if (auto same = CheckSamePlace(); !same) return same;
    }
    auto& watch = meters_->watch;
    if (!watch) {
      std::fprintf(stderr, "divvy: no utilisation, memory or power of the GPU: %s\n",
                   meters_->why_none.c_str());
    }
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::string title = fmt::format("[{}/{}] {}", i + 1, open.size(), open[i]);
      auto done = RunWorkload(open[i], title, run_id, watch ? &*watch : nullptr);
      if (!done) return done;
      Remember();
    }
    return {};
  }

  CollocateFindings Findings() {
    findings_.title = NameOfInput(options_.jobs);
    findings_.rows = rows_;
    findings_.sets = measure::CompareRuns(rows_, measure::CopiesAmong(file_.jobs));
    for (const RunRow& row : rows_) {
      if (!row.on.empty()) findings_.on.insert(row.on);
    }
    findings_.advice = AdviseSets(file_, rows_, findings_.sets);
    return findings_;
  }

  const std::string& path() const { return path_; }
  const std::string& logs() const { return logs_; }
  bool failed() const {
    return std::ranges::any_of(rows_, [](const RunRow& r) { return r.state == RunState::kFailed; });
  }

 private:
  // All that is written at the end, or by and by: hours later is too late to hear of it.
  [[nodiscard]] Result<void> CheckOutputs() const {
    if (auto writable = CheckWritable("--runs", path_); !writable) return writable;
    if (auto writable = MakeWritableFolder("--logs", logs_); !writable) return writable;
    // The user's own need not be there to be had: then nothing is learned, and that is said.
    if (!options_.history.empty() && options_.history != "none") {
      std::error_code error;
      const fs::path folder = fs::absolute(options_.history, error).parent_path();
      if (auto made = MakeWritableFolder("--history", folder); !made) return made;
      if (auto writable = CheckWritable("--history", options_.history); !writable) return writable;
    }
    return CheckExports(options_.exports);
  }

  // Before anything is written: which GPU it is.
  [[nodiscard]] Result<void> FindGpu() {
    const Meters& meters = meters_.emplace(FindMeters(options_.gpu, nvml_));
    findings_.gpu = meters.gpu.empty() ? file_.gpu : meters.gpu;
    findings_.driver = meters.driver;
    if (!meters.uuid.empty()) {
      here_ = fmt::format("{} {}, driver {}", meters.gpu, meters.uuid, meters.driver);
      return {};
    }
    if (options_.gpu.empty()) return {};
    // One that is cut by MIG was found, though no choice for a single job.
    const auto choice = ChooseGpu(options_.gpu, nullptr, nvml_);
    if (!choice) return Fail(choice.error());
    return {};
  }

  // Before anything is run on it: that it is the one the jobs file speaks of.
  [[nodiscard]] Result<void> CheckKind() const {
    const std::string& here = meters_->gpu;
    if (here.empty() || !gpu::FindGpuModel(file_.gpu) || file_.gpu == here) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: kind: the GPU here is {}, not {}, whose memory and power would be "
                            "taken for its own; say what is here, or choose another with --gpu",
                            NameOfInput(options_.jobs), here, file_.gpu));
  }

  [[nodiscard]] Result<void> LoadRuns() {
    const auto text = ReadText(path_);
    if (!text && text.error().code != ErrorCode::kNotFound) return Fail(text.error());
    if (!text) {
      const auto modes = ModesOf(options_.modes);
      if (!modes) return Fail(modes.error());
      if (auto kind = CheckKind(); !kind) return kind;
      rows_ = measure::PlanRuns(file_.jobs, *modes, Shares());
      return Save();
    }
    auto rows = measure::ParseRuns(*text, NameOfInput(path_));
    if (!rows) return Fail(rows.error());
    rows_ = *std::move(rows);
    if (auto same = CheckModes(); !same) return same;
    std::vector<std::string_view> names;
    for (const CollocatedJob& job : file_.jobs) names.push_back(job.name);
    for (RunRow& row : rows_) {
      if (std::ranges::find(names, row.job) == names.end()) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}: {} is no job of {}{}", path_, Quoted(row.job),
                                NameOfInput(options_.jobs), DidYouMean(row.job, names)));
      }
      const bool again = options_.retry && row.state != RunState::kDone;
      if (options_.restart || again) {
        row = {.workload = row.workload, .mode = row.mode, .job = row.job, .share = row.share};
      }
      if (auto same = CheckUnchanged(row); !same) return same;
      if (row.state != RunState::kDone) continue;
      findings_.timelines.try_emplace(row.workload, LoadTimeline(TimelineOf(row.workload)));
    }
    return {};
  }

  std::string TimelineOf(const std::string& workload) const {
    return fmt::format("{}/{}.timeline.csv", logs_, PlainName(workload));
  }

  // The table says what is to be run. The command that made it may be given again; another is not
  // what one would get.
  [[nodiscard]] Result<void> CheckModes() const {
    if (options_.modes.empty()) return {};
    const auto asked = ModesOf(options_.modes);
    if (!asked) return Fail(asked.error());
    std::set<SharingMode> there;
    for (const RunRow& row : rows_) {
      if (row.mode) there.insert(*row.mode);
    }
    if (there == std::set<SharingMode>(asked->begin(), asked->end())) return {};
    std::string names;
    for (const SharingMode mode : there) {
      names += fmt::format("{}{}", names.empty() ? "" : ",", NameOf(mode));
    }
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("--modes: {} says already what is to be run, and has {}: leave --modes "
                            "out to go on with it, or make another table with --runs FILE",
                            path_, names.empty() ? "none" : names));
  }

  // Runs of what the jobs file said before do not stand beside those of what it says now.
  [[nodiscard]] Result<void> CheckUnchanged(const RunRow& row) const {
    if (row.state != RunState::kDone) return {};
    const CollocatedJob& job = JobOf(row);
    const std::string changes =
        measure::WhatChanged(row.made_with, measure::MadeWith(job, file_.run));
    if (changes.empty()) return {};
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: workload {} is done, but {}:{} has another {} for its job {} now: "
                            "run all anew with --restart, make another table with --runs FILE, or "
                            "change it back",
                            path_, Quoted(row.workload), NameOfInput(options_.jobs), job.line,
                            changes, Quoted(row.job)));
  }

  // Nor do those of another GPU, be it of the same kind: what feeds it is another machine then. One
  // that is not known now, or was not then, may be the same.
  [[nodiscard]] Result<void> CheckSamePlace() const {
    for (const RunRow& row : rows_) {
      if (row.on.empty() || here_.empty() || row.on == here_) continue;
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: workload {} was run on {}, and this is {}: run all anew with "
                              "--restart, or make another table with --runs FILE",
                              path_, Quoted(row.workload), row.on, here_));
    }
    return {};
  }

  [[nodiscard]] Result<void> Save() {
    const std::string text = measure::FormatRuns(rows_);
    // What is shown now is what a second run will show: the figures as the file has them.
    auto rows = measure::ParseRuns(text, path_);
    if (!rows) return Fail(rows.error());
    if (auto saved = SaveText(path_, text); !saved) return saved;
    rows_ = *std::move(rows);
    return {};
  }

  // As advice would give them: equal ones where nothing is known of the jobs. A table of runs of
  // one's own may say others.
  std::vector<int> Shares() const {
    std::vector<planner::Demand> demands;
    for (const CollocatedJob& job : file_.jobs) {
      demands.push_back(planner::EstimateDemand(job.profile, file_.gpu_power_w));
    }
    return planner::SharesByDemand(demands);
  }

  std::vector<std::string> OpenWorkloads() const {
    std::vector<std::string> open;
    for (const RunRow& row : rows_) {
      if (row.state == RunState::kOpen && std::ranges::find(open, row.workload) == open.end()) {
        open.push_back(row.workload);
      }
    }
    return open;
  }

  const CollocatedJob& JobOf(const RunRow& row) const {
    return *std::ranges::find(file_.jobs, row.job, &CollocatedJob::name);
  }

  [[nodiscard]] Result<void> RunWorkload(const std::string& name, const std::string& title,
                                         const std::string& run_id, device::UsageWatch* watch) {
    std::vector<RunRow> rows;
    std::vector<CollocatedJob> jobs;
    for (const RunRow& row : rows_) {
      if (row.workload != name) continue;
      rows.push_back(row);
      jobs.push_back(JobOf(row));
    }
    const SharedGpu gpu{.wanted = options_.gpu, .nvml = nvml_, .library = options_.library};
    auto way = PrepareWay(rows, jobs, gpu, logs_, run_id);
    if (!way) return Fail(way.error());
    if (!way->impossible.empty()) {
      std::fprintf(stderr, "%s: cannot be done here: %s\n", title.c_str(), way->impossible.c_str());
      return Close(name, RunState::kSkipped, way->impossible);
    }
    const bool terminal = isatty(STDERR_FILENO) != 0;
    std::fprintf(stderr, "%s%s\n", title.c_str(), NoteOnWay(rows.front().mode).c_str());
    const auto outcome =
        RunTogether(way->jobs, {file_.run.warmup, file_.run.limit}, watch, [&](const auto& far) {
          if (terminal) std::fprintf(stderr, "\r\033[K  %s", far.c_str());
        });
    if (terminal) std::fprintf(stderr, "\r\033[K");
    // What has left its job's session would run beside the next ones. Behind the gate it may be the
    // MPS daemon, which ends by itself.
    if (rows.front().mode != SharingMode::kGate) KillProcessesOf(run_id);
    if (!outcome && outcome.error().code == ErrorCode::kAborted) return Fail(outcome.error());
    if (!outcome) {
      std::fprintf(stderr, "  failed: %s\n", outcome.error().message.c_str());
      return Close(name, RunState::kFailed, outcome.error().message);
    }
    findings_.timelines[name] = outcome->timeline;
    if (auto saved = SaveTimeline(TimelineOf(name), outcome->timeline); !saved) return saved;
    std::size_t next = 0;
    for (RunRow& row : rows_) {
      if (row.workload != name) continue;
      row.state = RunState::kDone;
      row.figures = outcome->jobs[next++];
      row.gpu = outcome->gpu;
      row.why.clear();
      row.on = here_;
      row.made_with = measure::MadeWith(JobOf(row), file_.run);
    }
    ran_.insert(name);
    return Save();
  }

  [[nodiscard]] Result<void> Close(const std::string& name, RunState state,
                                   const std::string& why) {
    for (RunRow& row : rows_) {
      if (row.workload != name) continue;
      row.state = state;
      // On one line, as the file has it.
      row.why = why;
      std::ranges::replace(row.why, '\n', ' ');
    }
    return Save();
  }

  // What was measured becomes part of what advice is learned from, once its jobs' runs alone are
  // there too: the last of these was made now.
  void Remember() {
    if (options_.history == "none") return;
    const measure::AloneOf copies = measure::CopiesAmong(file_.jobs);
    for (const measure::SetTogether& set : measure::CompareRuns(rows_, copies)) {
      if (!set.aggregate || set.jobs.size() < 2) continue;
      const bool fresh =
          ran_.contains(set.workload) || std::ranges::any_of(set.jobs, [&](const auto& job) {
            return ran_.contains(measure::FindAlone(rows_, copies, job.job)->workload);
          });
      if (!fresh || !seen_.insert(set.workload).second) continue;
      const auto kept = Learn(set);
      // The runs themselves are safe; what is odd about one is no reason not to make the others.
      if (!kept && std::exchange(not_learned_, kept.error().message) != kept.error().message) {
        std::fprintf(stderr, "divvy: not learned from: %s\n", kept.error().message.c_str());
      }
    }
  }

  [[nodiscard]] Result<void> Learn(const measure::SetTogether& set) const {
    if (findings_.driver.empty()) {
      return Fail(ErrorCode::kFailedPrecondition, "NVML says of no GPU that it was there");
    }
    if (device::IsSimulated(findings_.driver) && options_.history.empty()) {
      return Fail(ErrorCode::kFailedPrecondition,
                  "the GPU is a simulated one; --history FILE keeps it all the same");
    }
    auto measured = LessonOf(set, file_, rows_, NameOfInput(options_.jobs));
    if (!measured) return Fail(measured.error());
    const auto now = std::chrono::floor<std::chrono::milliseconds>(
        std::chrono::system_clock::now().time_since_epoch());
    measured->id = fmt::format("{} {}", now.count(), set.workload);
    measured->gpu = findings_.gpu;
    return AppendHistory(options_.history.empty() ? OwnHistory() : options_.history, *measured);
  }

  const CollocateOptions& options_;
  workload::JobsFile file_;
  std::string nvml_;
  std::string path_;
  std::string logs_;
  std::optional<HeldRuns> held_;
  std::vector<RunRow> rows_;
  std::optional<Meters> meters_;  // Once it is prepared.
  std::string here_;              // GPU and driver; empty when nobody tells.
  CollocateFindings findings_;
  std::set<std::string> ran_;   // Workloads, by this invocation.
  std::set<std::string> seen_;  // Sets that were learned from, or not for a reason.
  std::string not_learned_;     // The reason; said once.
};

void RunCollocate(const CollocateOptions& options, Invocation& invocation) {
  const auto text = ReadText(options.jobs);
  if (!text) return Complain(invocation, text.error());
  auto file = workload::ParseJobs(*text, NameOfInput(options.jobs));
  if (!file) return Complain(invocation, file.error());
  Collocation collocation(options, *std::move(file), invocation.nvml);
  // Before anything is started: whatever becomes of us, no job is left behind.
  const std::string run_id = MakeRunId();
  RunWatch watch(run_id, [] {});
  HoldSignals();
  const auto done = [&]() -> Result<void> {
    if (auto prepared = collocation.Prepare(); !prepared) return prepared;
    return collocation.Run(run_id);
  }();
  watch.Dismiss();
  if (!done && done.error().code != ErrorCode::kAborted) return Complain(invocation, done.error());
  const CollocateFindings findings = collocation.Findings();
  const std::string shown = options.format == OutputFormat::kJson
                                ? FindingsJson(findings).dump(2) + "\n"
                                : DescribeFindings(findings);
  std::fwrite(shown.data(), 1, shown.size(), stdout);
  std::fprintf(stderr, "divvy: all runs are in %s, what the jobs printed in %s\n",
               collocation.path().c_str(), collocation.logs().c_str());
  if (auto exported = Export(options.exports, findings); !exported) {
    return Complain(invocation, exported.error());
  }
  if (!done) return Complain(invocation, done.error());
  if (collocation.failed()) invocation.status = ExitStatus::kFailed;
}

constexpr const char* kCollocateFooter = R"(
Runs each job alone, then all together: taking turns on the GPU (time-slicing), by MPS, by
MPS with a share of the SMs each (mps-shares), on MIG instances where the GPU is cut, and
behind Divvy's gate. Jobs are programs as they are; the jobs file says how to tell from
what they print how far they are (docs/formats/jobs.md).

What is to be run, and what was found, stands in a CSV file (JOBS.runs.csv). Rows of one
workload run together; rows with a state are done. So a run that was broken off goes on
where it was, and a table of one's own, say of pairs and triples, is run as it is written.
A jobs file that was changed since, or another GPU, is refused; --restart runs all anew.

Examples:
  divvy collocate jobs.yaml
  divvy collocate jobs.yaml --modes mps,gate --html report.html
  divvy collocate jobs.yaml --runs pairs.csv -o json
  divvy collocate jobs.yaml --retry             what failed or could not be done, again)";

}  // namespace

void AddCollocateCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "collocate", "Run jobs alone and together on one GPU, and say what sharing brought");
  const auto options = std::make_shared<CollocateOptions>();
  command->add_option("JOBS", options->jobs, "Jobs file (docs/formats/jobs.md)")->required();
  command->add_option("--runs", options->runs,
                      "Table of runs to make or to go on with (default: JOBS.runs.csv)");
  command
      ->add_option("--modes", options->modes,
                   "Ways to share, separated by commas: time-slicing, mps, mps-shares, mig, gate "
                   "(default: all but mps-shares)")
      ->delimiter(',');
  command->add_flag("--retry", options->retry, "Run again what failed or could not be done");
  command->add_flag("--restart", options->restart, "Run all of the table anew, also what is done");
  command->add_option("--gpu", options->gpu, "GPU to share: index, or UUID or its beginning");
  command->add_option("--library", options->library, "libdivvy_gate.so, if it is elsewhere");
  command->add_option("--logs", options->logs,
                      "Folder for what jobs print (default: beside the table of runs)");
  command->add_option("--history", options->history,
                      "File that advice learns from, to add to; none: do not (default: "
                      "~/.local/state/divvy/collocations.csv)");
  command->add_option("--html", options->exports.html,
                      "Write a page with timelines, which needs no network");
  command->add_option("--prometheus", options->exports.prometheus,
                      "Write the figures for Prometheus' textfile collector");
  command->add_option("--mlflow", options->exports.mlflow,
                      "Add the runs to this MLflow file store");
  AddOutputOption(*command, options->format);
  command->footer(kCollocateFooter);
  command->callback([options, &invocation] { RunCollocate(*options, invocation); });
}

}  // namespace divvy::app
