#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "net/grpc_server.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/stream.h"
#include "server/generation.h"
#include "server/grpc_front.h"
#include "server/http_front.h"
#include "server/log.h"
#include "server/service.h"

namespace divvy::server {

struct ServerOptions {
  net::Address http;
  net::Address grpc;
  net::Address metrics;
  net::HttpLimits http_limits;
  net::GrpcLimits grpc_limits;
  ServiceOptions service;
  bool access_log = false;
  Duration drain_limit = std::chrono::seconds(30);  // From Drain to the end, whatever is open.
};

// The whole: three listening sockets, the present generation, and those that drain. Runs in the
// loop's thread.
class Server {
 public:
  // All outlive it. `http_streams` and `grpc_streams` say whether TLS is spoken.
  Server(net::Loop& loop, ServerOptions options, const net::StreamMaker& http_streams,
         const net::StreamMaker& grpc_streams, Log& log);
  ~Server();

  // Opens the sockets. kUnavailable when an address is taken.
  [[nodiscard]] Result<void> Listen();

  // Brings up the workers of a setup; when all are warm, they take over from those before, which
  // answer what they have and end. The first setup takes requests as workers come up. `ready` is
  // called when all are.
  void Use(ServeSetup setup, std::function<void()> ready);

  // Starts all workers of a place (WorkerSpec) again.
  void RestartWorkers(std::string_view place, const std::string& why);

  // Not ready any more, no new connections; what has come is answered, then workers end, then
  // `done`.
  void Drain(std::function<void()> done);

  net::Address http_address() const { return http_at_; }
  net::Address grpc_address() const { return grpc_at_; }
  net::Address metrics_address() const { return metrics_at_; }

 private:
  [[nodiscard]] Metrics::Gauges Measure() const;
  // Says so in the log, once in a while.
  void AcceptFailed(int error);
  void Retire(std::shared_ptr<Generation> generation);
  void DoorClosed();
  void EndIfDone();

  net::Loop& loop_;
  ServerOptions options_;
  net::PlainStreams plain_;
  Log& log_;
  Service service_;
  HttpFront http_front_;
  GrpcFront grpc_front_;
  MetricsFront metrics_front_;
  net::HttpServer http_;
  net::GrpcServer grpc_;
  net::HttpServer metrics_;
  net::Address http_at_, grpc_at_, metrics_at_;
  std::shared_ptr<Generation> coming_;
  std::uint64_t generations_ = 0;
  std::optional<TimePoint> accept_failed_;  // When we last said so.
  net::Loop::TimerId drain_timer_{};
  std::vector<std::shared_ptr<Generation>> retired_;
  int doors_ = 2;  // HTTP and gRPC; what Drain closes first.
  std::function<void()> drained_;
};

}  // namespace divvy::server
