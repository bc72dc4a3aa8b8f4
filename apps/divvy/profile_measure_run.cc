#include "profile_measure_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/number.h"
#include "base/text_safety.h"
#include "client/requests.h"
#include "control_stop.h"
#include "measure/closed_loop.h"
#include "measure/journal.h"
#include "measure/sampling.h"
#include "measure/worker_group.h"
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
constexpr Duration kAskPatience = std::chrono::seconds(30);

// A figure is known within a percent or so: more digits would only be long.
double FewDigits(double value) {
  constexpr int kDigits = 5;
  if (!(value > 0)) return 0;
  const double scale = std::pow(10, kDigits - 1 - std::floor(std::log10(value)));
  return std::round(value * scale) / scale;
}

std::optional<double> FewDigits(std::optional<double> value) {
  if (!value) return value;
  return FewDigits(*value);
}

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

  [[nodiscard]] Result<void> MeasureCurve(const Partition& partition, int processes) {
    const measure::Curve known = CurveOf(partition, processes);
    const auto wanted = measure::BatchesUpTo(options_.max_batch);
    // A run before this one may have been through with it.
    if (!measure::NextBatch(wanted, known, options_.all_points)) return {};
    if (source_.url) return MeasureUrl(partition, processes);

    const std::string mark = fmt::format("{}/{}", sockets_, curves_++);
    auto use = place_.Use(partition, processes, mark);
    if (!use) return Fail(use.error());
    const std::unique_ptr<measure::Meter> meter = place_.MeterFor(partition, mark);
    std::vector<server::WorkerSpec> specs;
    for (int i = 0; i < processes; ++i) specs.push_back(SpecFor(partition, processes, *use, i));
    const std::string first_socket = specs.front().socket;
    measure::WorkerGroup workers(loop_, std::move(specs));
    const TimePoint start = loop_.Clock();
    {
      const OnCores cores(place_.CoresOf(partition));
      if (auto up = workers.Start([this] { return CheckStop(); }, kStartPatience); !up) return up;
    }
    starting_ += loop_.Clock() - start;
    ++starts_;
    auto address = net::Address::Parse("unix:" + first_socket);
    if (!address) return Fail(address.error());
    measure::ClosedLoop loop(loop_, workers.backends(), meter.get(), [this, &workers] {
      auto fine = workers.Check();
      return fine ? CheckStop() : fine;
    });
    auto measured = MeasureBatches(partition, processes, loop, *address, "localhost");
    workers.Finish();
    return measured;
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
    return MeasureBatches(partition, processes, loop, *address, source_.url->host);
  }

  [[nodiscard]] server::WorkerSpec SpecFor(const Partition& partition, int processes,
                                           const PartitionUse& use, int index) const {
    server::WorkerSpec spec;
    spec.name = CurveName(partition.size, processes);
    spec.model = source_.model;
    spec.command = source_.command;
    spec.environment = use.environment;
    spec.socket = fmt::format("{}/{}-{}.sock", sockets_, curves_, index);
    if (source_.places_itself) {
      const int cores = place_.CoresOf(partition);
      spec.environment.emplace_back("DIVVY_LISTEN", "unix:" + spec.socket);
      spec.environment.emplace_back("DIVVY_MODEL", source_.model);
      spec.environment.emplace_back("DIVVY_MAX_BATCH", std::to_string(options_.max_batch));
      spec.environment.emplace_back("DIVVY_THREADS",
                                    std::to_string(std::max(cores / processes, cores > 0 ? 1 : 0)));
    } else {
      std::ranges::copy(place_.WorkerWords(partition, processes), std::back_inserter(spec.command));
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

  [[nodiscard]] Result<void> MeasureBatches(const Partition& partition, int processes,
                                            measure::ClosedLoop& loop, const net::Address& address,
                                            const std::string& host) {
    auto facts = AskFacts(address, host);
    if (!facts) return Fail(facts.error());
    int most = facts->batched ? options_.max_batch : 1;
    if (facts->max_batch > 0) most = std::min(most, facts->max_batch);
    auto shapes = Shapes();
    if (!shapes) return Fail(shapes.error());
    auto requests = client::Requests::Make({}, *facts, most, {.shapes = std::move(*shapes)});
    if (!requests) return Fail(requests.error());
    std::vector<int> wanted = measure::BatchesUpTo(most);
    measure::Curve curve = CurveOf(partition, processes);
    while (const auto batch = measure::NextBatch(wanted, curve, options_.all_points)) {
      const TimePoint start = loop_.Clock();
      auto measured = loop.Run(requests->Of(*batch), pace_);
      if (!measured) {
        const ErrorCode code = measured.error().code;
        const bool too_large =
            (code == ErrorCode::kFailedPrecondition || code == ErrorCode::kInvalidArgument) &&
            *batch > wanted.front();
        const std::string what =
            fmt::format("{}, batch {}: {}", CurveName(partition.size, processes), *batch,
                        measured.error().message);
        if (!too_large) return Fail(code, what);
        fmt::print(stderr, "divvy: {}; going on with smaller ones\n", what);
        std::erase_if(wanted, [&](int other) { return other >= *batch; });
        continue;
      }
      Point point = ToPoint(partition, processes, *batch, *measured);
      curve[*batch] = point.figures.latency_ms;
      if (journal_) {
        if (auto kept = journal_->Append(point); !kept) return kept;
      }
      measuring_ += loop_.Clock() - start;
      ++measured_;
      points_.push_back(std::move(point));
      Tell(points_.back(), wanted, curve);
    }
    return {};
  }

  // Of inputs, as --input says them, where a server leaves sizes open.
  [[nodiscard]] Result<std::map<std::string, kserve::Shape>> Shapes() const {
    std::map<std::string, kserve::Shape> shapes;
    if (!source_.url && !source_.places_itself) return shapes;  // The worker has them from us.
    for (const std::string& input : options_.inputs) {
      const std::size_t last = input.rfind(':');
      const std::size_t middle = last == 0 ? std::string::npos : input.rfind(':', last - 1);
      if (last == std::string::npos || middle == std::string::npos) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("--input: {} is not NAME:TYPE:DIMS, such as x:FP32:3,224,224",
                                Quoted(input)));
      }
      kserve::Shape& shape = shapes[input.substr(0, middle)];
      std::string_view dims = std::string_view(input).substr(last + 1);
      while (!dims.empty()) {
        const std::size_t comma = std::min(dims.find(','), dims.size());
        const auto dim = ParseInteger(dims.substr(0, comma));
        if (!dim || *dim < 1) {
          return Fail(
              ErrorCode::kInvalidArgument,
              fmt::format("--input: {}: dimensions are whole numbers from 1", Quoted(input)));
        }
        shape.push_back(*dim);
        dims.remove_prefix(std::min(comma + 1, dims.size()));
      }
    }
    return shapes;
  }

  [[nodiscard]] static Point ToPoint(const Partition& partition, int processes, int batch,
                                     const measure::Measured& measured) {
    const measure::Samples& samples = measured.samples;
    Point point{.size = partition.size,
                .processes = processes,
                .figures = {.batch = batch, .latency_ms = FewDigits(samples.mean())},
                .error = FewDigits(samples.Error()),
                .batches = static_cast<int>(samples.count())};
    workload::ProfilePoint& figures = point.figures;
    figures.p50_ms = FewDigits(samples.Quantile(0.5));
    if (samples.count() >= measure::kLeastForP95)
      figures.p95_ms = FewDigits(samples.Quantile(0.95));
    if (samples.count() >= measure::kLeastForP99)
      figures.p99_ms = FewDigits(samples.Quantile(0.99));
    figures.utilization = FewDigits(measured.usage.utilization);
    figures.memory_mib = FewDigits(measured.usage.memory_mib);
    figures.power_w = FewDigits(measured.usage.power_w);
    return point;
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
        fmt::format("{}, {}", place_.where(), kHow[static_cast<std::size_t>(place_.on())]);
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
