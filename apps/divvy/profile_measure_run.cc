#include "profile_measure_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "client/requests.h"
#include "control_stop.h"
#include "measure/closed_loop.h"
#include "measure/journal.h"
#include "measure/sampling.h"
#include "measure/worker_group.h"
#include "net/large_blocks.h"
#include "net/stream.h"
#include "profile_measure_report.h"
#include "serve_sockets.h"
#include "table.h"
#include "text_file.h"
#include "workload/profile_file.h"

namespace divvy::app {
namespace {

using measure::Partition;
using measure::Point;

constexpr Duration kStartPatience = std::chrono::minutes(10);
constexpr Duration kQuietStart = std::chrono::seconds(5);  // Then it is said what is waited for.
constexpr Duration kAskPatience = std::chrono::seconds(30);
// Before what failed is tried again.
constexpr Duration kBadMoment = std::chrono::milliseconds(200);
constexpr Duration kMostDying = std::chrono::seconds(2);
constexpr Duration kLookAtDying = std::chrono::milliseconds(20);

std::string Today() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  localtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

// As it was typed, words with blanks in quotes.
std::string CommandLine() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line;
  for (std::string word; std::getline(file, word, '\0');) {
    const bool first = line.empty();
    if (first) word = "divvy";
    const bool plain = word.find_first_of(" \t\n\"'$") == std::string::npos;
    line += fmt::format("{}{}", first ? "" : " ", plain ? word : "'" + word + "'");
  }
  return line;
}

// Processes started while one of these lives run on the first `cores` of ours; 0: on all.
class OnCores {
 public:
  explicit OnCores(int cores) {
    if (cores == 0 || sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t few;
    CPU_ZERO(&few);
    for (int cpu = 0, taken = 0; cpu < CPU_SETSIZE && taken < cores; ++cpu) {
      if (!CPU_ISSET(cpu, &before_)) continue;
      CPU_SET(cpu, &few);
      ++taken;
    }
    changed_ = sched_setaffinity(0, sizeof few, &few) == 0;
  }
  ~OnCores() {
    if (changed_) sched_setaffinity(0, sizeof before_, &before_);
  }
  OnCores(const OnCores&) = delete;
  OnCores& operator=(const OnCores&) = delete;

 private:
  cpu_set_t before_{};
  bool changed_ = false;
};

class Measurement {
 public:
  Measurement(const MeasureOptions& options, MeasureSource source, MeasurePlace place,
              std::string sockets)
      : options_(options),
        source_(std::move(source)),
        place_(std::move(place)),
        sockets_(std::move(sockets)) {
    pace_.precision = options.precision_percent / 100;
    pace_.limit = FromSeconds(options.point_limit_s);
    pace_.least_time = std::min(pace_.least_time, pace_.limit);
  }

  [[nodiscard]] Result<void> Run() {
    for (const std::string& note : place_.notes()) fmt::print(stderr, "divvy: {}\n", note);
    if (!options_.save.empty()) {
      auto journal = measure::Journal::Open(options_.save + ".partial", Asked(), options_.restart);
      if (!journal) return Fail(journal.error());
      points_ = journal->points();
      if (!points_.empty()) {
        fmt::print(stderr, "divvy: going on after {} of {}.partial\n",
                   Count(points_.size(), "point"), options_.save);
      }
      journal_.emplace(std::move(*journal));
    }
    curves_left_ = static_cast<int>(place_.partitions().size() * options_.processes.size());
    begun_ = loop_.Clock();
    for (const Partition& partition : place_.partitions()) {
      for (const int processes : options_.processes) {
        --curves_left_;
        if (auto done = MeasureCurve(partition, processes); !done) return Explain(done.error());
      }
    }
    return Finish();
  }

 private:
  // What must be the same for points of two runs to stand in one profile.
  [[nodiscard]] std::string Asked() const {
    std::string sizes;
    for (const Partition& partition : place_.partitions()) sizes += " " + Describe(partition.size);
    std::string text = fmt::format(
        "{} {}; {} on {};{} x {} processes; inputs {}; options {}; batches to {}{}; {} %, {} s",
        source_.model, source_.identity, options_.place.on, place_.where(), sizes,
        fmt::join(options_.processes, ","), fmt::join(options_.inputs, " "),
        fmt::join(options_.engine_options, " "), options_.max_batch,
        options_.all_points ? ", all" : "", options_.precision_percent, options_.point_limit_s);
    if (options_.place.crowded) text += ", crowded";
    std::ranges::replace(text, '\n', ' ');
    return text;
  }

  // With what there is to say about the points that were measured before it went wrong.
  [[nodiscard]] Result<void> Explain(Error error) {
    if (journal_ && points_.empty()) journal_->Remove();
    if (journal_ && !points_.empty()) {
      error.message += fmt::format("; {}.partial has {}: the same command goes on from there",
                                   options_.save, Count(points_.size(), "point"));
    }
    return Fail(std::move(error));
  }

  [[nodiscard]] Result<void> CheckStop() {
    if (!stop_.Heard()) return {};
    return Fail(ErrorCode::kAborted, "stopped by a signal");
  }

  [[nodiscard]] measure::Curve CurveOf(const Partition& partition, int processes) const {
    measure::Curve curve;
    for (const Point& point : points_) {
      if (point.size == partition.size && point.processes == processes) {
        curve[point.figures.batch] = point.figures.latency_ms;
      }
    }
    return curve;
  }

  // One go at a curve: what answers, and how large batches may be.
  struct Go {
    const Partition& partition;
    int processes;
    int most;
    measure::ClosedLoop& loop;
    const net::Address& address;
    const std::string& host;
    measure::WorkerGroup* workers;  // Null: a server of somebody else's.
  };
  // Workers have died; what is to be tried with others is batches up to this one.
  using Rest = std::optional<int>;

  [[nodiscard]] Result<void> MeasureCurve(const Partition& partition, int processes) {
    const measure::Curve known = CurveOf(partition, processes);
    const auto wanted = measure::BatchesUpTo(options_.max_batch);
    // A run before this one may have been through with it.
    if (!measure::NextBatch(wanted, known, options_.all_points)) return {};
    if (source_.url) return MeasureUrl(partition, processes);

    const std::string mark = fmt::format("{}/{}", sockets_, curves_++);
    auto use = place_.Use(partition, processes, mark);
    if (!use) return Fail(use.error());
    Rest most = options_.max_batch;
    while (most) {
      auto rest = MeasureWithWorkers(partition, processes, *use, mark, *most);
      if (!rest) return Fail(rest.error());
      most = *rest;
    }
    return {};
  }

  [[nodiscard]] Result<Rest> MeasureWithWorkers(const Partition& partition, int processes,
                                                const PartitionUse& use, const std::string& mark,
                                                int most) {
    const std::unique_ptr<measure::Meter> meter = place_.MeterFor(partition, mark);
    auto workers =
        std::make_unique<measure::WorkerGroup>(loop_, SpecsFor(partition, processes, use, most));
    const TimePoint start = loop_.Clock();
    if (auto up = StartWorkers(*workers, partition); !up) {
      if (workers->Check() || most == 1) return Fail(up.error());
      workers->Finish();
      workers.reset();  // With its sockets, which the next ones need.
      return AfterDeathAtStart(partition, processes, use, most, up.error());
    }
    starting_ += loop_.Clock() - start;
    ++starts_;
    auto address = net::Address::Parse("unix:" + SocketOf(0));
    if (!address) return Fail(address.error());
    measure::ClosedLoop loop(loop_, workers->backends(), meter.get(), [this, &workers] {
      auto fine = workers->Check();
      return fine ? CheckStop() : fine;
    });
    auto rest = MeasureBatches({.partition = partition,
                                .processes = processes,
                                .most = most,
                                .loop = loop,
                                .address = *address,
                                .host = "localhost",
                                .workers = workers.get()});
    workers->Finish();
    return rest;
  }

  [[nodiscard]] Result<void> StartWorkers(measure::WorkerGroup& workers,
                                          const Partition& partition) {
    const OnCores cores(place_.CoresOf(partition));
    TimePoint patient_until = loop_.Clock() + kQuietStart;
    const auto look = [&] {
      if (loop_.Clock() > patient_until) {
        fmt::print(stderr, "  {}: waiting for {} to be ready, for at most {:.0f} min\n",
                   CurveName(partition.size, 1),
                   options_.command.empty() ? "the worker" : "the program",
                   Seconds(kStartPatience) / 60);
        patient_until = TimePoint::max();
      }
      return CheckStop();
    };
    return workers.Start(look, kStartPatience);
  }

  // Engines warm up with the largest batch, so one that is too large ends them at the start.
  // Whether it was that, and no reason of another kind, workers tell that take single items.
  [[nodiscard]] Result<Rest> AfterDeathAtStart(const Partition& partition, int processes,
                                               const PartitionUse& use, int most,
                                               const Error& death) {
    measure::WorkerGroup probe(loop_, SpecsFor(partition, processes, use, 1));
    const auto up = StartWorkers(probe, partition);
    if (!up && probe.Check()) return Fail(up.error());  // A signal, or no patience left.
    if (!up) return Fail(death);
    probe.Finish();
    const int smaller = measure::BatchesUpTo(most).rbegin()[1];
    fmt::print(stderr, "divvy: {}, batches up to {}: {}; starting it again for those up to {}\n",
               CurveName(partition.size, processes), most, death.message, smaller);
    return smaller;
  }

  [[nodiscard]] Result<void> MeasureUrl(const Partition& partition, int processes) {
    auto address = net::Address::Parse(source_.url->address);
    if (!address) return Fail(address.error());
    std::vector<std::unique_ptr<server::Backend>> backends;
    std::vector<server::Backend*> pointers;
    for (int i = 0; i < processes; ++i) {
      backends.push_back(std::make_unique<server::Backend>(loop_, *address, source_.url->host,
                                                           server::Backend::Kind::kForeign));
      pointers.push_back(backends.back().get());
    }
    measure::ClosedLoop loop(loop_, pointers, nullptr, [this] { return CheckStop(); });
    auto rest = MeasureBatches({.partition = partition,
                                .processes = processes,
                                .most = options_.max_batch,
                                .loop = loop,
                                .address = *address,
                                .host = source_.url->host,
                                .workers = nullptr});
    if (!rest) return Fail(rest.error());
    return {};
  }

  [[nodiscard]] std::string SocketOf(int index) const {
    return fmt::format("{}/{}-{}.sock", sockets_, curves_, index);
  }

  [[nodiscard]] std::vector<server::WorkerSpec> SpecsFor(const Partition& partition, int processes,
                                                         const PartitionUse& use, int most) const {
    std::vector<server::WorkerSpec> specs;
    for (int i = 0; i < processes * place_.CopiesOf(partition); ++i) {
      specs.push_back(SpecFor(partition, processes, use, most));
      specs.back().socket = SocketOf(i);
      if (source_.places_itself) {
        specs.back().environment.emplace_back("DIVVY_LISTEN", "unix:" + SocketOf(i));
      }
    }
    return specs;
  }

  [[nodiscard]] server::WorkerSpec SpecFor(const Partition& partition, int processes,
                                           const PartitionUse& use, int most) const {
    server::WorkerSpec spec;
    spec.name = CurveName(partition.size, processes);
    spec.model = source_.model;
    spec.command = source_.command;
    spec.environment = use.environment;
    if (source_.places_itself) {
      const int cores = place_.CoresOf(partition);
      spec.environment.emplace_back("DIVVY_MODEL", source_.model);
      spec.environment.emplace_back("DIVVY_MAX_BATCH", std::to_string(most));
      spec.environment.emplace_back("DIVVY_THREADS",
                                    std::to_string(std::max(cores / processes, cores > 0 ? 1 : 0)));
    } else {
      std::ranges::copy(place_.WorkerWords(partition, processes), std::back_inserter(spec.command));
      spec.command.insert(spec.command.end(), {"--max-batch", std::to_string(most)});
    }
    return spec;
  }

  [[nodiscard]] Result<client::ModelFacts> AskFacts(const net::Address& address,
                                                    const std::string& host) {
    const auto transport = client::MakeHttpTransport(
        loop_, {.address = address, .host = host, .streams = &streams_, .connections = 1});
    auto facts = client::AskForModel(loop_, *transport, {}, source_.model, kAskPatience);
    transport->Drop();
    return facts;
  }

  [[nodiscard]] Result<Rest> MeasureBatches(const Go& go) {
    auto facts = AskFacts(go.address, go.host);
    if (!facts) return Fail(facts.error());
    int most = facts->batched ? go.most : 1;
    if (facts->max_batch > 0) most = std::min(most, facts->max_batch);
    // The worker has them from us.
    const bool ours = !source_.url && !source_.places_itself;
    auto shapes = InputShapes(ours ? std::vector<std::string>{} : options_.inputs);
    if (!shapes) return Fail(shapes.error());
    auto requests = client::Requests::Make({}, *facts, most, {.shapes = std::move(*shapes)});
    if (!requests) return Fail(requests.error());
    std::vector<int> wanted = measure::BatchesUpTo(most);
    measure::Curve curve = CurveOf(go.partition, go.processes);
    while (const auto batch = measure::NextBatch(wanted, curve, options_.all_points)) {
      const TimePoint start = loop_.Clock();
      auto measured = MeasureBatch(go, *batch, requests->Of(*batch));
      if (!measured) {
        const bool died = HaveDied(go, measured.error().code);
        if (auto left = LeaveOut(go, *batch, wanted, died, measured.error()); !left) {
          return Fail(left.error());
        }
        if (died) return wanted.back();
        curve = CurveOf(go.partition, go.processes);
        continue;
      }
      Point point = ToPoint(go.partition.size, go.processes, *batch, *measured);
      curve[*batch] = point.figures.latency_ms;
      if (journal_) {
        if (auto kept = journal_->Append(point); !kept) return Fail(kept.error());
      }
      measuring_ += loop_.Clock() - start;
      ++measured_;
      points_.push_back(std::move(point));
      Tell(points_.back(), wanted, curve);
    }
    return Rest{};
  }

  // A server may have a bad moment: what fails once tells nothing of the batch.
  [[nodiscard]] Result<measure::Measured> MeasureBatch(const Go& go, int batch,
                                                       const client::Call& call) {
    auto measured = go.loop.Run(call, pace_);
    if (measured || measured.error().code == ErrorCode::kAborted) return measured;
    if (HaveDied(go, measured.error().code)) return measured;
    fmt::print(stderr, "divvy: {}, batch {}: {}; trying it once more\n",
               CurveName(go.partition.size, go.processes), batch, measured.error().message);
    const TimePoint end = loop_.Clock() + kBadMoment;
    while (loop_.Clock() < end) loop_.Round(end - loop_.Clock());
    return go.loop.Run(call, pace_);
  }

  // The end of a connection is seen before that of the process that had it.
  [[nodiscard]] bool HaveDied(const Go& go, ErrorCode code) {
    if (go.workers == nullptr) return false;
    const TimePoint end = loop_.Clock() + kMostDying;
    while (code == ErrorCode::kUnavailable && go.workers->Check() && loop_.Clock() < end) {
      loop_.Round(kLookAtDying);
    }
    return !go.workers->Check();
  }

  // Takes the batch and larger ones from what is wanted; fails where that leaves nothing, or where
  // what happened has nothing to do with the batch.
  [[nodiscard]] Result<void> LeaveOut(const Go& go, int batch, std::vector<int>& wanted, bool died,
                                      const Error& error) {
    const bool too_large = died || error.code == ErrorCode::kFailedPrecondition ||
                           error.code == ErrorCode::kInvalidArgument;
    const std::string what =
        fmt::format("{}, batch {}: {}", CurveName(go.partition.size, go.processes), batch,
                    died ? go.workers->Check().error().message : error.message);
    if (!too_large || batch == wanted.front()) return Fail(error.code, what);
    fmt::print(stderr, "divvy: {}; {}going on with smaller ones\n", what,
               died ? "starting it again and " : "");
    std::erase_if(wanted, [&](int other) { return other >= batch; });
    // Larger ones may have been measured before: with them a profile would answer for this one.
    std::erase_if(points_, [&](const Point& point) {
      return point.size == go.partition.size && point.processes == go.processes &&
             point.figures.batch > batch;
    });
    return {};
  }

  void Tell(const Point& point, const std::vector<int>& wanted, const measure::Curve& curve) {
    // Curves to come take as many points as those before did on average, and as many starts.
    const auto open = std::ranges::count_if(wanted, [&](int batch) {
      return !curve.contains(batch) && (options_.all_points || !measure::IsKnown(curve, batch));
    });
    const double per_curve = static_cast<double>(measured_ + open) / std::max(1, starts_);
    const double points = static_cast<double>(open) + curves_left_ * per_curve;
    const Duration left = FromSeconds(points * Seconds(measuring_) / measured_ +
                                      curves_left_ * Seconds(starting_) / std::max(1, starts_));
    const bool last = open == 0 && curves_left_ == 0;
    fmt::print(stderr, "  {}, batch {}: {} ms +-{}{}\n", CurveName(point.size, point.processes),
               point.figures.batch, FourDigits(point.figures.latency_ms), Percent(point.error),
               last ? "" : fmt::format(", {} left", AboutTime(left)));
  }

  [[nodiscard]] Result<void> Finish() {
    std::ranges::sort(points_, {}, [](const Point& point) {
      return std::tuple(point.size, point.processes, point.figures.batch);
    });
    static constexpr std::array<std::string_view, 5> kHow = {"CPU", "MPS", "MIG", "whole GPU",
                                                             "by URL"};
    const std::string where =
        fmt::format("{}, {}", place_.where(), kHow[static_cast<std::size_t>(place_.on())]) +
        (options_.place.crowded ? ", all shares at work" : "");
    const workload::ModelProfile profile =
        ToProfile(source_.model, place_.gpu(), SourceText(Today(), where, CommandLine()),
                  place_.partitions(), points_);
    const std::string text = workload::FormatProfiles({profile});
    fmt::print("{}", options_.format == "csv"    ? text
                     : options_.format == "json" ? PointsJson(profile, points_)
                                                 : PointsTable(points_));
    if (options_.save.empty()) return {};
    if (auto saved = SaveText(options_.save, text); !saved) return saved;
    journal_->Remove();
    fmt::print(stderr, "divvy: wrote {}: {} in {:.0f} s\n", options_.save,
               Count(points_.size(), "point"), Seconds(loop_.Clock() - begun_));
    return {};
  }

  const MeasureOptions& options_;
  MeasureSource source_;
  MeasurePlace place_;
  std::string sockets_;
  measure::Pace pace_;
  StopSignal stop_;
  net::Loop loop_;
  net::PlainStreams streams_;
  std::optional<measure::Journal> journal_;
  std::vector<Point> points_;
  // For the time left: what points and starts took in this run.
  TimePoint begun_{};
  Duration measuring_{};
  Duration starting_{};
  int measured_ = 0;
  int starts_ = 0;
  int curves_ = 0;
  int curves_left_ = 0;
};

}  // namespace

Result<void> RunMeasurement(const MeasureOptions& options) {
  net::KeepLargeBlocks();
  if (!options.save.empty()) {
    if (auto writable = CheckWritable("--save", options.save); !writable) return writable;
  }
  auto source = FindSource(options);
  if (!source) return Fail(source.error());
  const auto folder = SocketFolder::Make();
  if (!folder) return Fail(folder.error());
  auto place = source->url ? MeasurePlace::OfUrl(options.place) : MeasurePlace::Find(options.place);
  if (!place) return Fail(place.error());
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD,
              SIG_DFL);  // Ignored, as some parents leave it, workers could not be waited for.
  return Measurement(options, std::move(*source), std::move(*place), folder->path()).Run();
}

}  // namespace divvy::app
