#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/number.h"
#include "bench_load.h"
#include "bench_report.h"
#include "bench_server.h"
#include "client/search.h"
#include "command.h"
#include "net/large_blocks.h"
#include "simulate_arguments.h"
#include "text_file.h"

namespace divvy::app {
namespace {

// As they stand on the command line.
struct BenchOptions {
  BenchLoadOptions load;
  BenchServerOptions server;
  std::string warm_up = "1s";
  std::string patience = "30s";
  bool precise = false;
  double percentile = 99;
  double resolution = 2;
  std::optional<std::string> html;
  std::optional<std::string> save;
  OutputFormat format = OutputFormat::kTable;
};

constexpr double kHundred = 100;
constexpr double kHighestRate = 1e6;  // Far beyond what one thread can send.

void Print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

// What the search is about must be there.
[[nodiscard]] Result<void> CheckSearch(const BenchOptions& options, const BenchLoad& load) {
  const auto wrong = [](const char* message) { return Fail(ErrorCode::kInvalidArgument, message); };
  if (options.html || options.save) {
    return wrong("--html and --save are of one run; they do not go with --search");
  }
  if (std::ranges::any_of(load.slos, [](const auto& slo) { return !slo; })) {
    return wrong("--search looks for the highest rate within an SLO: give --slo, or a --fleet");
  }
  if (load.Rate() <= 0) return wrong("--search: the trace ends where it begins and has no rate");
  return {};
}

// Whether we were too slow for the probe to say anything about the server: late by a tenth of the
// shortest SLO.
bool GeneratorLimits(const client::Summary& summary, const BenchLoad& load) {
  Duration shortest = Duration::max();
  for (const auto& slo : load.slos) shortest = std::min(shortest, *slo);
  constexpr int kTolerable = 10;
  return summary.lateness && summary.lateness->value > shortest / kTolerable;
}

// Whether more requests waited for a connection than may be late.
bool RanOut(const client::Summary& summary, double percentile) {
  return static_cast<double>(summary.waited) >
         (1 - percentile) * static_cast<double>(summary.all.sent);
}

[[nodiscard]] BenchSearch Search(const BenchOptions& options, const BenchLoad& load,
                                 BenchServer& server, BenchRunOptions run) {
  BenchSearch search;
  search.percentile = options.percentile / kHundred;
  search.resolution = options.resolution / kHundred;
  const double unit = load.Rate();
  client::RateSearch state(1, search.resolution, std::max(1.0, kHighestRate / unit));
  run.give_up_below = search.percentile;
  while (const auto factor = state.Next()) {
    run.factor = *factor;
    const BenchRun probe = server.Run(load, run, fmt::format("{:.4g}/s:", unit * *factor));
    if (server.interrupted()) {
      search.cut_short = true;
      break;
    }
    const bool held = !probe.log.gave_up && client::Holds(probe.summary, search.percentile);
    search.probes.push_back({.factor = *factor,
                             .rate = unit * *factor,
                             .held = held,
                             .generator = !held && GeneratorLimits(probe.summary, load),
                             .connections = !held && RanOut(probe.summary, search.percentile),
                             .ended_early = probe.log.gave_up,
                             .summary = probe.summary});
    state.Tell(held);
  }
  if (state.held()) search.held = *state.held() * unit;
  if (state.missed()) search.missed = *state.missed() * unit;
  return search;
}

[[nodiscard]] Result<ExitStatus> Measure(const BenchOptions& options, const BenchContext& context,
                                         BenchServer& server, const BenchRunOptions& run_options) {
  const BenchRun run = server.Run(context.load, run_options, "");
  if (options.save) {
    if (auto saved = SaveText(*options.save, BenchCsv(context, run)); !saved) {
      return Fail(saved.error());
    }
  }
  if (options.html) {
    if (auto saved = SaveText(*options.html, BenchPage(context, run)); !saved) {
      return Fail(saved.error());
    }
  }
  Print(options.format == OutputFormat::kJson ? BenchJson(context, run) : BenchTable(context, run));
  const client::Figures& all = run.summary.all;
  return all.answered + all.refused > 0 ? ExitStatus::kOk : ExitStatus::kFailed;
}

[[nodiscard]] Result<ExitStatus> Bench(const BenchOptions& options) {
  net::KeepLargeBlocks();
  const auto warm_up = ParseTimeArgument("--warmup", options.warm_up);
  if (!warm_up) return Fail(warm_up.error());
  const auto patience = ParseTimeArgument("--timeout", options.patience);
  if (!patience) return Fail(patience.error());
  auto load = ReadBenchLoad(options.load);
  if (!load) return Fail(load.error());
  if (options.load.search) {
    if (auto sound = CheckSearch(options, **load); !sound) return Fail(sound.error());
  }
  auto server = BenchServer::Open(options.server, **load);
  if (!server) return Fail(server.error());
  const BenchContext context{.url = (*server)->url().text,
                             .connections = (*server)->connections(),
                             .warm_up = *warm_up,
                             .load = **load};
  const BenchRunOptions run{.warm_up = *warm_up, .precise = options.precise, .patience = *patience};
  if (!options.load.search) return Measure(options, context, **server, run);
  const BenchSearch search = Search(options, **load, **server, run);
  Print(options.format == OutputFormat::kJson ? SearchJson(context, search)
                                              : SearchTable(context, search));
  return search.probes.empty() ? ExitStatus::kFailed : ExitStatus::kOk;
}

void Run(const BenchOptions& options, Invocation& invocation) {
  const auto status = Bench(options);
  if (!status) return Complain(invocation, status.error());
  invocation.status = *status;
}

void AddLoadOptions(CLI::App& command, BenchOptions& options) {
  BenchLoadOptions& load = options.load;
  command.add_option("--model", load.model, "Model to ask (default: the only one of the server)")
      ->type_name("NAME");
  command.add_option("--rate", load.rate, "Requests a second")
      ->check(NumberIn({1e-3, kHighestRate}))
      ->type_name("N");
  command
      .add_option("--arrivals", load.arrivals,
                  "How requests follow each other: poisson (default), constant or gamma:CV")
      ->type_name("KIND");
  command
      .add_option("--batch", load.batch,
                  "Items of a request: a number, lognormal:MEDIAN,SIGMA,MAX, or as in a fleet, "
                  "'{empirical: {1: 3, 8: 1}}' (default: 1)")
      ->type_name("SIZE");
  command.add_option("--trace", load.trace, "Times and sizes from a trace file")->type_name("FILE");
  command
      .add_option("--fleet", load.fleet,
                  "All models of a fleet at once, with its loads, SLOs and seed")
      ->type_name("FLEET");
  command.add_option("--duration", load.duration, "How long to send (default: 10s, or the trace)")
      ->type_name("TIME");
  command.add_option("--warmup", options.warm_up, "Sent before that and not counted")
      ->type_name("TIME")
      ->capture_default_str();
  command
      .add_option("--slo", load.slo,
                  "What is in time; sent along as slo_ms (default: the fleet's, not sent)")
      ->type_name("TIME");
  command.add_option("--seed", load.seed, "Of arrivals and contents (default: 1, or the fleet's)")
      ->check([](const std::string& text) {
        return ParseUnsigned(text) ? "" : text + " is not a whole number from 0 to 2^64 - 1";
      })
      ->type_name("N");
}

void AddServerOptions(CLI::App& command, BenchOptions& options) {
  BenchServerOptions& server = options.server;
  command.add_option("URL", server.url, "http://, https://, grpc:// or grpcs://HOST:PORT")
      ->required();
  command
      .add_option("--connections", server.connections,
                  "At most (default: 64 for HTTP, one request each; 4 for gRPC)")
      ->check(CLI::Range(1, 10'000).description(""))
      ->type_name("N");
  command
      .add_option("--shape", server.shapes,
                  "Of an input with open dimensions, without the batch (default: 16 each); may be "
                  "repeated")
      ->type_name("NAME:N,N,..")
      ->allow_extra_args(false);
  command.add_option("--token-file", server.token_file, "Send the bearer token in this file")
      ->type_name("FILE");
  command
      .add_option("--tls-ca", server.tls_ca, "Certificates to trust (PEM; default: the system's)")
      ->type_name("FILE");
  command.add_flag("--precise", options.precise, "Busy-wait before a request is due");
  command
      .add_option("--timeout", options.patience, "How long to wait for answers when all is sent")
      ->type_name("TIME")
      ->capture_default_str();
}

void AddReportOptions(CLI::App& command, BenchOptions& options) {
  command.add_flag("--search", options.load.search,
                   "Find the highest rate that is held within the SLO; --duration is a probe's");
  command
      .add_option("--percentile", options.percentile,
                  "Of requests that must be in time for a rate to be held")
      ->check(NumberIn({1.0, 99.999}))
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--resolution", options.resolution, "Of the search, in percent")
      ->check(NumberIn({0.1, 100.0}))
      ->type_name("P")
      ->capture_default_str();
  command.add_option("--html", options.html, "Write a page with plots, which needs no network")
      ->type_name("FILE");
  command.add_option("--save", options.save, "Write a line a request (CSV)")->type_name("FILE");
  AddOutputOption(command, options.format);
}

constexpr const char* kFooter = R"(
Sends requests when they are due, whatever is still under way, and counts each latency from when
its request was due: a server that falls behind is not let off. Inputs are made up to fit what the
server says of its models. IN TIME is answered within the SLO; REFUSED is HTTP 429 and 503 and
gRPC's RESOURCE_EXHAUSTED. SIGINT ends early and reports what there is.

Examples:
  divvy bench http://127.0.0.1:8000 --rate 200 --duration 10s
  divvy bench grpc://127.0.0.1:8001 --model bert --rate 500 --arrivals gamma:2 --slo 20ms
  divvy bench http://127.0.0.1:8000 --fleet fleet.yaml --duration 60s --html report.html
  divvy bench http://127.0.0.1:8000 --model bert --search --slo 20ms --percentile 99
  divvy bench https://gpu-1:8000 --tls-ca ca.pem --token-file token --trace requests.csv)";

}  // namespace

void AddBenchCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command =
      app.add_subcommand("bench", "Measure an inference server under load that does not wait");
  // Shared by the options, which fill it, and the callback, which reads it.
  const auto options = std::make_shared<BenchOptions>();
  AddServerOptions(*command, *options);
  AddLoadOptions(*command, *options);
  AddReportOptions(*command, *options);
  command->footer(kFooter);
  command->callback([options, &invocation] { Run(*options, invocation); });
}

}  // namespace divvy::app
