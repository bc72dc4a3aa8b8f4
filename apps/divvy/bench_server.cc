#include "bench_server.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/number.h"
#include "base/spelling.h"
#include "base/text_safety.h"
#include "net/tls.h"
#include "run_progress.h"
#include "serve_token.h"

namespace divvy::app {
namespace {

constexpr int kHttpConnections = 64;
constexpr int kGrpcConnections = 4;
constexpr Duration kPatience = std::chrono::seconds(10);
constexpr Duration kTellEvery = std::chrono::milliseconds(200);
constexpr int kProgressSteps = 100;

[[nodiscard]] tl::unexpected<Error> Wrong(std::string message) {
  return Fail(ErrorCode::kInvalidArgument, std::move(message));
}

// "name:1,2,3".
[[nodiscard]] Result<std::pair<std::string, kserve::Shape>> ParseShape(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  kserve::Shape shape;
  std::string_view rest = text;
  bool right = colon != std::string::npos && colon > 0;
  if (right) rest = rest.substr(colon + 1);
  while (right) {
    const std::size_t comma = rest.find(',');
    const auto dimension = ParseInteger(rest.substr(0, comma));
    right = dimension && *dimension > 0;
    if (right) shape.push_back(*dimension);
    if (comma == std::string_view::npos) break;
    rest = rest.substr(comma + 1);
  }
  if (right) return std::pair(text.substr(0, colon), std::move(shape));
  return Wrong(
      fmt::format("--shape: {} is not NAME:N,N,.. such as images:3,224,224 (without the "
                  "batch)",
                  Quoted(text)));
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

// How many the schedule has, found by going through a second one.
std::uint64_t CountOf(client::Schedule schedule) {
  std::uint64_t count = 0;
  while (const auto due = schedule.Next()) count += due->at >= Duration::zero() ? 1 : 0;
  return count;
}

}  // namespace

Result<std::unique_ptr<BenchServer>> BenchServer::Open(const BenchServerOptions& options,
                                                       BenchLoad& load) {
  std::unique_ptr<BenchServer> server(new BenchServer);
  if (auto prepared = server->Prepare(options); !prepared) return Fail(prepared.error());
  const auto transport = server->Connect();
  if (auto named = server->NameModels(*transport, load); !named) return Fail(named.error());
  if (auto made = server->MakeRequests(*transport, options, load); !made) {
    return Fail(made.error());
  }
  server->HearSignals();
  return server;
}

BenchServer::~BenchServer() {
  if (signals_ < 0) return;
  loop_.Forget(signals_);
  close(signals_);
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

Result<void> BenchServer::Prepare(const BenchServerOptions& options) {
  auto url = client::ParseUrl(options.url);
  if (!url) return Fail(url.error());
  url_ = std::move(*url);
  dialect_.grpc = url_.grpc;
  if (!options.token_file.empty()) {
    auto token = ReadTokenFile(options.token_file);
    if (!token) return Fail(token.error());
    dialect_.token = std::move(*token);
  }
  if (!options.tls_ca.empty() && !url_.tls) {
    return Wrong("--tls-ca goes with https:// and grpcs://");
  }
  if (url_.tls) {
    // A certificate has no brackets around an IPv6 address.
    std::string name = url_.host;
    std::erase_if(name, [](char c) { return c == '[' || c == ']'; });
    auto tls = net::TlsStreams::ForClient(options.tls_ca, name, url_.grpc ? "h2" : "http/1.1");
    if (!tls) return Fail(tls.error());
    streams_ = std::make_unique<net::TlsStreams>(std::move(*tls));
  } else {
    streams_ = std::make_unique<net::PlainStreams>();
  }
  const auto address = net::Address::Parse(url_.address);
  if (!address) return Fail(address.error());
  const int usual = url_.grpc ? kGrpcConnections : kHttpConnections;
  peer_ = {.address = *address,
           .host = url_.host,
           .streams = streams_.get(),
           .connections = options.connections > 0 ? options.connections : usual};
  return {};
}

std::unique_ptr<client::Transport> BenchServer::Connect() {
  return url_.grpc ? client::MakeGrpcTransport(loop_, peer_)
                   : client::MakeHttpTransport(loop_, peer_);
}

Result<void> BenchServer::NameModels(client::Transport& transport, BenchLoad& load) {
  if (std::ranges::none_of(load.names, &std::string::empty)) return {};
  const auto index = client::AskForModels(loop_, transport, dialect_, kPatience);
  if (!index) {
    return Fail(index.error().code, fmt::format("{}: {}; --model says which to measure", url_.text,
                                                index.error().message));
  }
  std::vector<std::string_view> names;
  for (const kserve::IndexEntry& entry : *index) names.push_back(entry.name);
  if (names.size() != 1) {
    return Wrong(names.empty() ? fmt::format("{} has no models", url_.text)
                               : fmt::format("{} has {} models; --model says which to measure: {}",
                                             url_.text, names.size(), OneOf(names)));
  }
  for (std::string& name : load.names) {
    if (name.empty()) name = names.front();
  }
  return {};
}

// A model that it does not have is told apart from other errors by asking for those that it has.
Error BenchServer::WhyNot(client::Transport& transport, const std::string& model,
                          const Error& error) {
  const auto index = client::AskForModels(loop_, transport, dialect_, kPatience);
  std::vector<std::string_view> names;
  if (index) {
    for (const kserve::IndexEntry& entry : *index) names.push_back(entry.name);
  }
  if (names.empty() || std::ranges::find(names, model) != names.end()) {
    // A certificate that we do not trust ends the connection, and all that is heard is its end.
    return {error.code,
            fmt::format("{}: {}{}", url_.text, error.message,
                        !index && url_.tls ? "; is its certificate trusted (--tls-ca)?" : "")};
  }
  std::string hint = DidYouMean(model, names);
  if (hint.empty()) hint = "; it has " + OneOf(names);
  return {ErrorCode::kNotFound,
          fmt::format("{} has no model {}{}", url_.text, Quoted(model), hint)};
}

Result<void> BenchServer::MakeRequests(client::Transport& transport,
                                       const BenchServerOptions& options, const BenchLoad& load) {
  client::RequestOptions requests{.seed = load.seed, .slo = load.sent_slo};
  for (const std::string& text : options.shapes) {
    auto shape = ParseShape(text);
    if (!shape) return Fail(shape.error());
    requests.shapes.insert_or_assign(std::move(shape->first), std::move(shape->second));
  }
  for (std::size_t i = 0; i < load.names.size(); ++i) {
    const auto facts = client::AskForModel(loop_, transport, dialect_, load.names[i], kPatience);
    if (!facts) return Fail(WhyNot(transport, load.names[i], facts.error()));
    auto made = client::Requests::Make(dialect_, *facts, load.largest[i], requests);
    if (!made) return Fail(made.error());
    requests_.push_back(std::move(*made));
  }
  return {};
}

void BenchServer::HearSignals() {
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signals_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  Check(signals_ >= 0, "a file descriptor is to be had");
  loop_.Watch(signals_, EPOLLIN, [this](std::uint32_t) {
    signalfd_siginfo info;
    while (read(signals_, &info, sizeof info) == sizeof info) {
      ++interrupts_;
      if (running_ != nullptr) running_->Stop();
    }
  });
}

BenchRun BenchServer::Run(const BenchLoad& load, const BenchRunOptions& options,
                          const std::string& what) {
  std::vector<std::vector<workload::Arrival>> storage;
  client::Schedule schedule =
      ScheduleOf(load, options.factor, load.length, options.warm_up, storage);
  const Duration length = schedule.length();
  client::RunOptions run_options{
      .slos = load.slos, .precise = options.precise, .patience = options.patience};
  if (options.give_up_below) {
    std::vector<std::vector<workload::Arrival>> other;
    const std::uint64_t count =
        CountOf(ScheduleOf(load, options.factor, load.length, options.warm_up, other));
    run_options.give_up_after =
        static_cast<std::uint64_t>((1 - *options.give_up_below) * static_cast<double>(count));
  }
  // Connections of its own: what another run left under way does not come back here.
  const auto transport = Connect();
  client::LoadRun run(loop_, *transport, std::move(schedule), requests_, std::move(run_options));

  RunProgress progress;
  progress.Begin(kProgressSteps);
  int steps = 0;
  net::Loop::TimerId timer{};
  const std::function<void()> tell = [&] {
    const double share = Seconds(run.position()) / std::max(Seconds(length), 1e-9);
    const int reached = static_cast<int>(std::clamp(share, 0.0, 1.0) * kProgressSteps);
    progress.Advance(reached - std::exchange(steps, reached));
    progress.Show(
        fmt::format("{} {} sent, {} under way", what, run.issued(), run.issued() - run.done()));
    timer = loop_.At(loop_.now() + kTellEvery, tell);
  };
  tell();
  running_ = &run;
  BenchRun measured{.log = run.Run(), .summary = {}};
  running_ = nullptr;
  loop_.Cancel(timer);
  measured.summary = client::Summarise(measured.log, load.slos);
  return measured;
}

}  // namespace divvy::app
