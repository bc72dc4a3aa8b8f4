#include "server/server.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace divvy::server {
namespace {

constexpr int kBacklog = 1024;
// Between two lines of the log about the same lasting trouble.
constexpr Duration kSayAgain = std::chrono::seconds(10);
// Nobody has a body to send to the metrics' port.
constexpr std::size_t kMetricsBody = 4 << 10;

template <typename Limits>
Limits WithBudget(Limits limits, const std::shared_ptr<net::ByteBudget>& budget) {
  limits.budget = budget;
  return limits;
}

net::HttpLimits RequestLimits(net::HttpLimits limits, const Service& service) {
  limits.busy_status = service.options.shed_with_503 ? 503 : 429;
  return WithBudget(std::move(limits), service.budget);
}

net::HttpLimits MetricsLimits(net::HttpLimits limits) {
  limits.body_bytes = kMetricsBody;
  return limits;
}

}  // namespace

Server::Server(net::Loop& loop, ServerOptions options, const net::StreamMaker& http_streams,
               const net::StreamMaker& grpc_streams, Log& log)
    : loop_(loop),
      options_(std::move(options)),
      log_(log),
      service_{.options = options_.service,
               .access_log = options_.access_log ? &log : nullptr,
               .metrics = {},
               .generation = nullptr,
               .budget = std::make_shared<net::ByteBudget>(options_.service.pending_bytes),
               .draining = false},
      http_front_(loop, service_),
      grpc_front_(loop, service_),
      metrics_front_(service_),
      http_(loop, RequestLimits(options_.http_limits, service_), http_streams,
            [this](net::HttpRequest request, std::unique_ptr<net::HttpReply> reply) {
              http_front_.Handle(std::move(request), std::move(reply));
            }),
      grpc_(loop, WithBudget(options_.grpc_limits, service_.budget), grpc_streams, grpc_front_),
      metrics_(loop, MetricsLimits(options_.http_limits), plain_,
               [this](const net::HttpRequest& request, std::unique_ptr<net::HttpReply> reply) {
                 metrics_front_.Handle(request, std::move(reply), Measure());
               }) {
  http_.OnAcceptFailure([this](int error) { AcceptFailed(error); });
  grpc_.OnAcceptFailure([this](int error) { AcceptFailed(error); });
  metrics_.OnAcceptFailure([this](int error) { AcceptFailed(error); });
}

Server::~Server() = default;

Result<void> Server::Listen() {
  const auto open = [](const net::Address& address, auto& server,
                       net::Address& at) -> Result<void> {
    const auto socket = net::Listen(address, kBacklog);
    if (!socket) return Fail(socket.error());
    at = net::LocalAddress(*socket);
    server.Serve(*socket);
    return {};
  };
  if (auto opened = open(options_.http, http_, http_at_); !opened) return opened;
  if (auto opened = open(options_.grpc, grpc_, grpc_at_); !opened) return opened;
  return open(options_.metrics, metrics_, metrics_at_);
}

Metrics::Gauges Server::Measure() const {
  Metrics::Gauges gauges;
  gauges.http_connections = http_.connections();
  gauges.grpc_connections = grpc_.connections();
  gauges.held_bytes = service_.budget->taken();
  const auto add = [&gauges](Generation& generation) {
    gauges.pending += generation.router().pending();
    gauges.waiting += static_cast<std::size_t>(generation.router().waiting());
  };
  for (const auto& generation : retired_) add(*generation);
  if (service_.generation != nullptr) {
    add(*service_.generation);
    gauges.up = service_.generation->up();
  }
  return gauges;
}

void Server::AcceptFailed(int error) {
  if (accept_failed_ && loop_.now() - *accept_failed_ < kSayAgain) return;
  accept_failed_ = loop_.now();
  log_.Warning("no connection can be accepted",
               {{"why", std::strerror(error)},
                {"http_connections", std::to_string(http_.connections())},
                {"grpc_connections", std::to_string(grpc_.connections())}});
}

void Server::Use(ServeSetup setup, std::function<void()> ready) {
  const bool first = service_.generation == nullptr;
  if (coming_ != nullptr) Retire(std::exchange(coming_, nullptr));  // It never came up.
  const std::uint64_t number = ++generations_;
  auto next = std::make_shared<Generation>(
      loop_, std::move(setup), service_.metrics, log_, [this, number, ready] {
        // From within the generation: let it return first.
        loop_.Post([this, number, ready] {
          if (number != generations_ || service_.draining) return;  // Overtaken meanwhile.
          if (coming_ != nullptr) {
            Retire(std::exchange(service_.generation, std::exchange(coming_, nullptr)));
          }
          ready();
        });
      });
  if (first) {
    service_.generation = next;
  } else {
    coming_ = next;
  }
  next->Start();
}

void Server::RestartWorkers(std::string_view place, const std::string& why) {
  std::vector<std::shared_ptr<Generation>> all = retired_;
  if (service_.generation != nullptr) all.push_back(service_.generation);
  if (coming_ != nullptr) all.push_back(coming_);
  for (const auto& generation : all) generation->Restart(place, why);
}

void Server::Retire(std::shared_ptr<Generation> generation) {
  Generation* const old = generation.get();
  retired_.push_back(std::move(generation));
  old->Drain([this, old] {
    std::erase_if(retired_, [&](const auto& one) { return one.get() == old; });
    log_.Info("workers have ended");
    EndIfDone();
  });
}

void Server::Drain(std::function<void()> done) {
  service_.draining = true;
  if (coming_ != nullptr) Retire(std::exchange(coming_, nullptr));
  drained_ = std::move(done);
  // Clients that keep a stream open, or never read, shall not keep us for ever.
  drain_timer_ = loop_.At(loop_.now() + options_.drain_limit, [this] {
    log_.Warning("not everything could be answered in time: ending all the same");
    if (drained_ != nullptr) std::exchange(drained_, nullptr)();
  });
  // Requests may come on connections that are open: workers end when all have closed.
  http_.Drain([this] { DoorClosed(); });
  grpc_.Drain([this] { DoorClosed(); });
  grpc_front_.Drain();
}

void Server::DoorClosed() {
  if (--doors_ > 0) return;
  if (service_.generation != nullptr) Retire(std::exchange(service_.generation, nullptr));
  EndIfDone();
}

void Server::EndIfDone() {
  if (drained_ == nullptr || doors_ != 0 || !retired_.empty()) return;
  loop_.Cancel(drain_timer_);
  std::exchange(drained_, nullptr)();
}

}  // namespace divvy::server
