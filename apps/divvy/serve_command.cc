#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/number.h"
#include "command.h"
#include "net/address.h"
#include "net/large_blocks.h"
#include "net/loop.h"
#include "net/tls.h"
#include "run_home.h"
#include "serve_setup.h"
#include "serve_sockets.h"
#include "serve_token.h"
#include "server/server.h"
#include "simulate_arguments.h"
#include "table.h"

namespace divvy::app {
namespace {

using nlohmann::json;

constexpr int kUsualBodyMib = 64;

struct ServeOptions {
  ServeChoice choice;
  std::string on = "cpu";
  std::string http = "127.0.0.1:8000";
  std::string grpc = "127.0.0.1:8001";
  std::string metrics = "127.0.0.1:8002";
  std::string token_file;
  std::string certificate;
  std::string key;
  std::string log = "text";
  std::string spread = "none";
  int shed_status = 429;
  std::optional<int> max_body_mib;
  int max_pending_mib = 2048;
  int max_connections = 4096;
  bool access_log = false;
  bool dry_run = false;
  OutputFormat format = OutputFormat::kTable;
};

// The signals that mean something here, as something that can be read.
int WatchedSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD,
              SIG_DFL);  // Ignored, as some parents leave it, workers could not be waited for.
  return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

// Connections and workers need descriptors, and the usual limit is 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

void PrintWorkers(const ServePlan& plan, OutputFormat format) {
  if (format == OutputFormat::kJson) {
    json workers = json::array();
    for (const server::WorkerSpec& worker : plan.setup.workers) {
      workers.push_back(
          {{"model", worker.model},
           {"partition", worker.name},
           {"command", worker.command},
           {"url", worker.url},
           {"environment", json(std::map<std::string, std::string>(worker.environment.begin(),
                                                                   worker.environment.end()))}});
    }
    fmt::print("{}\n", json({{"workers", workers}, {"notes", plan.notes}}).dump(2));
    return;
  }
  std::vector<std::vector<std::string>> rows = {{"MODEL", "PARTITION", "SERVED BY"}};
  for (const server::WorkerSpec& worker : plan.setup.workers) {
    rows.push_back(
        {worker.model, worker.name, worker.url.empty() ? Joined(worker.command) : worker.url});
  }
  fmt::print("{}", Table(rows, 3));
}

class Serving {
 public:
  Serving(ServeOptions options, Invocation& invocation)
      : options_(std::move(options)),
        invocation_(invocation),
        log_(stderr, options_.log == "json" ? server::Log::Form::kJson : server::Log::Form::kText) {
  }

  void Run() {
    if (auto served = Serve(); !served) Complain(invocation_, served.error());
  }

 private:
  [[nodiscard]] Result<void> Serve() {
    const auto folder = SocketFolder::Make();
    if (!folder) return Fail(folder.error());
    options_.choice.sockets = folder->path();
    auto server_options = MakeOptions();
    if (!server_options) return Fail(server_options.error());
    auto plan = PlanToServe(options_.choice, round_++);
    if (!plan) return Fail(plan.error());
    for (const std::string& note : plan->notes) Note(note);
    if (options_.dry_run) {
      PrintWorkers(*plan, options_.format);
      return {};
    }
    if (auto made = MakeStreams(); !made) return made;

    RaiseDescriptorLimit();
    const int signals = WatchedSignals();
    server_ = std::make_unique<server::Server>(loop_, std::move(*server_options), *http_streams_,
                                               *grpc_streams_, log_);
    if (auto listening = server_->Listen(); !listening) return listening;
    SayWhere(plan->setup);
    server_->Use(std::move(plan->setup), [this] { log_.Info("ready"); });
    loop_.Watch(signals, EPOLLIN, [this, signals](std::uint32_t) { TakeSignal(signals); });
    if (options_.choice.on == ServeOn::kMps) LookAfterDaemons();
    loop_.Run();
    if (planning_.joinable()) planning_.join();
    server_.reset();
    loop_.Forget(signals);
    close(signals);
    return {};
  }

  void Note(const std::string& note) {
    if (options_.log == "json") return log_.Info("note", {{"text", note}});
    fmt::print(stderr, "Note: {}\n", note);
  }

  [[nodiscard]] Result<server::ServerOptions> MakeOptions() {
    server::ServerOptions made;
    for (const auto& [text, address] :
         {std::pair<std::string&, net::Address&>{options_.http, made.http},
          {options_.grpc, made.grpc},
          {options_.metrics, made.metrics}}) {
      auto parsed = net::Address::Parse(text);
      if (!parsed) return Fail(parsed.error());
      address = *parsed;
    }
    if (options_.max_body_mib > options_.max_pending_mib) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("--max-body {0} is larger than --max-pending {1}: no request of more "
                              "than {1} MiB could be held; lower the former to {1}, or raise the "
                              "latter to {0} at least",
                              *options_.max_body_mib, options_.max_pending_mib));
    }
    const int body_mib =
        options_.max_body_mib.value_or(std::min(kUsualBodyMib, options_.max_pending_mib));
    const auto bytes = static_cast<std::size_t>(body_mib) << 20;
    made.http_limits.body_bytes = bytes;
    made.http_limits.drain_time = std::chrono::seconds(1);
    made.grpc_limits.message_bytes = bytes;
    made.http_limits.connections = static_cast<std::size_t>(options_.max_connections);
    made.grpc_limits.connections = static_cast<std::size_t>(options_.max_connections);
    made.access_log = options_.access_log;
    made.service.version = DIVVY_VERSION;
    made.service.body_bytes = bytes;
    made.service.pending_bytes = static_cast<std::size_t>(options_.max_pending_mib) << 20;
    made.service.shed_with_503 = options_.shed_status == 503;
    if (!options_.token_file.empty()) {
      auto token = ReadTokenFile(options_.token_file);
      if (!token) return Fail(token.error());
      made.service.token = std::move(*token);
    }
    const bool open = !made.http.is_loopback() || !made.grpc.is_loopback();
    if (open && made.service.token.empty()) {
      Note("the server can be reached from other machines, and asks for no token (--token-file)");
    }
    return made;
  }

  [[nodiscard]] Result<void> MakeStreams() {
    if (options_.certificate.empty() != options_.key.empty()) {
      return Fail(ErrorCode::kInvalidArgument, "--tls-cert and --tls-key go together");
    }
    if (options_.certificate.empty()) {
      http_streams_ = std::make_unique<net::PlainStreams>();
      grpc_streams_ = std::make_unique<net::PlainStreams>();
      return {};
    }
    auto http = net::TlsStreams::ForServer(options_.certificate, options_.key, "http/1.1");
    if (!http) return Fail(http.error());
    auto grpc = net::TlsStreams::ForServer(options_.certificate, options_.key, "h2");
    if (!grpc) return Fail(grpc.error());
    http_streams_ = std::make_unique<net::TlsStreams>(std::move(*http));
    grpc_streams_ = std::make_unique<net::TlsStreams>(std::move(*grpc));
    return {};
  }

  void SayWhere(const server::ServeSetup& setup) {
    log_.Info("listening", {{"http", server_->http_address().Describe()},
                            {"grpc", server_->grpc_address().Describe()},
                            {"metrics", server_->metrics_address().Describe()},
                            {"models", std::to_string(setup.models.size())},
                            {"workers", std::to_string(setup.workers.size())}});
  }

  void TakeSignal(int signals) {
    signalfd_siginfo info{};
    if (read(signals, &info, sizeof info) != sizeof info) return;
    if (info.ssi_signo == SIGHUP) return Reload();
    if (std::exchange(ending_, true)) {
      log_.Warning("a second signal: ending at once");
      loop_.Stop();
      return;
    }
    log_.Info("draining", {{"signal", strsignal(static_cast<int>(info.ssi_signo))}});
    server_->Drain([this] {
      log_.Info("ended");
      loop_.Stop();
    });
  }

  // Workers die with their daemon, and only come up again when there is another.
  void LookAfterDaemons() {
    for (const ServeDaemons::Change& change : options_.choice.daemons->LookAfter()) {
      log_.Warning(change.line, {{"gpu", change.gpu}});
      if (change.ready) server_->RestartWorkers(change.gpu, change.line);
    }
    loop_.At(loop_.now() + MpsPace::FromEnvironment().look, [this] { LookAfterDaemons(); });
  }

  // Plans in a thread of its own: it may take seconds, and requests go on meanwhile.
  void Reload() {
    if (ending_) return;
    if (std::exchange(reloading_, true)) {
      again_ = true;
      return;
    }
    log_.Info("reading the fleet again", {{"fleet", options_.choice.fleet}});
    if (planning_.joinable()) planning_.join();
    planning_ = std::thread([this, choice = options_.choice, round = round_++] {
      auto plan = std::make_shared<Result<ServePlan>>(PlanToServe(choice, round));
      loop_.Post([this, plan] {
        reloading_ = false;
        if (ending_) return;
        if (std::exchange(again_, false)) return Reload();
        if (!*plan) {
          log_.Warning("the new fleet is not served; the former one goes on",
                       {{"why", plan->error().message}});
          return;
        }
        log_.Info("new workers start",
                  {{"workers", std::to_string((*plan)->setup.workers.size())}});
        server_->Use(std::move((*plan)->setup),
                     [this] { log_.Info("the new plan has taken over"); });
      });
    });
  }

  ServeOptions options_;
  Invocation& invocation_;
  server::Log log_;
  net::Loop loop_;
  std::unique_ptr<net::StreamMaker> http_streams_;
  std::unique_ptr<net::StreamMaker> grpc_streams_;
  std::unique_ptr<server::Server> server_;
  std::thread planning_;
  bool reloading_ = false;
  bool again_ = false;  // Asked for while one was under way.
  bool ending_ = false;
  int round_ = 0;
};

void Run(ServeOptions& options, Invocation& invocation) {
  options.choice.nvml = invocation.nvml;
  options.choice.dry_run = options.dry_run;
  options.choice.on = options.on == "mig"   ? ServeOn::kMig
                      : options.on == "mps" ? ServeOn::kMps
                                            : ServeOn::kCpu;
  const auto spread = ParseSpread(options.spread);
  if (!spread) return Complain(invocation, spread.error());
  options.choice.spread = spread->measured ? -1 : spread->sigma.value_or(0);
  Serving(options, invocation).Run();
}

constexpr const char* kFooter = R"(
Plans the fleet (or takes a plan), starts one worker a partition and serves the Open Inference
Protocol (KServe v2, Triton) over HTTP and gRPC. Each request goes to the partition that answers it
before its deadline: the model's SLO, or what the request says (parameters deadline_ms or slo_ms,
Triton's timeout, gRPC's deadline). What cannot be answered in time is refused at once with 429.
  SIGTERM, SIGINT  answer what has come, then end; a second one ends at once
  SIGHUP           read fleet and plan again; new workers take over when they are warm

Examples:
  divvy serve examples/fleets/small.yaml
  divvy serve fleet.yaml --plan plan.yaml --on mig --http 0.0.0.0:8000 --token-file token
  divvy serve fleet.yaml --dry-run)";

}  // namespace

void AddServeCommand(CLI::App& app, Invocation& invocation) {
  CLI::App* const command = app.add_subcommand(
      "serve", "Serve a fleet's models over HTTP and gRPC, every request by its deadline");
  const auto options = std::make_shared<ServeOptions>();
  command->add_option("FLEET", options->choice.fleet, "Fleet file")->required();
  command->add_option("--plan", options->choice.plan,
                      "Plan file, or a planner's name (default: the fleet's planner)");
  command->add_option("--route", options->choice.route,
                      "How requests are routed (default: the fleet's)");
  command
      ->add_option(
          "--on", options->on,
          "What partitions are: processes on this machine's cores, MIG instances, or shares "
          "of an MPS daemon")
      ->check(CLI::IsMember({"cpu", "mig", "mps"}))
      ->capture_default_str();
  command->add_option("--http", options->http, "Where to serve HTTP")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--grpc", options->grpc, "Where to serve gRPC")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--metrics", options->metrics, "Where to serve Prometheus' metrics")
      ->type_name("ADDRESS")
      ->capture_default_str();
  command->add_option("--token-file", options->token_file,
                      "Requests must carry the bearer token in this file");
  command->add_option("--tls-cert", options->certificate, "Certificate (PEM): speak TLS on both");
  command->add_option("--tls-key", options->key, "Its key (PEM)");
  command->add_option("--shed-status", options->shed_status, "HTTP status of refused requests")
      ->check(CLI::IsMember({429, 503}))
      ->capture_default_str();
  command
      ->add_option("--max-body", options->max_body_mib,
                   "Largest request, in MiB (default: 64, or --max-pending where that is less)")
      ->check(CLI::Range(1, 4096));
  command
      ->add_option("--max-pending", options->max_pending_mib,
                   "Of requests that come or are under way and of answers that clients have not "
                   "taken, all together, in MiB; beyond it requests are refused")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--max-connections", options->max_connections, "Of each protocol")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command->add_option("--worker", options->choice.worker,
                      "divvy-worker, if it is not beside divvy");
  command->add_option("--engines", options->choice.engines, "Folder of engine libraries");
  command
      ->add_option(
          "--spread", options->spread,
          "How much synthetic workers' times vary: none, measured, or a deviation of the logarithm")
      ->capture_default_str();
  command->add_option("--seed", options->choice.seed, "Of that variation")
      ->check([](const std::string& text) {
        return ParseUnsigned(text) ? "" : text + " is not a whole number from 0 to 2^64 - 1";
      })
      ->capture_default_str();
  command->add_option("--log", options->log, "Form of the log on standard error")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  command->add_flag("--access-log", options->access_log, "Log every inference");
  command->add_flag("--dry-run", options->dry_run, "Only show which workers would be started");
  AddOutputOption(*command, options->format);
  command->footer(kFooter);
  command->callback([options, &invocation] {
    net::KeepLargeBlocks();
    Run(*options, invocation);
  });
}

}  // namespace divvy::app
