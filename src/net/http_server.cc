#include "net/http_server.h"

#include <utility>

#include "net/http_server_connection.h"

namespace divvy::net {

HttpServer::HttpServer(Loop& loop, HttpLimits limits, const StreamMaker& streams,
                       HttpHandler handler)
    : loop_(loop),
      limits_(std::move(limits)),
      streams_(streams),
      handler_(std::move(handler)),
      acceptor_(
          loop, [this] { return connections_.size() < limits_.connections; },
          [this](int fd) {
            const auto connection = std::make_shared<Connection>(*this, fd);
            connections_.emplace(fd, connection);
            connection->Start();
          }) {}

HttpServer::~HttpServer() {
  acceptor_.Close();
  const auto connections = std::exchange(connections_, {});
  for (const auto& [fd, connection] : connections) connection->Abandon();
}

void HttpServer::Serve(int listening) { acceptor_.Serve(listening); }

void HttpServer::Drain(std::function<void()> done) {
  draining_ = true;
  drained_ = std::move(done);
  acceptor_.Close();
  const auto connections = connections_;
  for (const auto& [fd, connection] : connections) connection->Drain();
  if (connections_.empty() && drained_) loop_.Post(std::exchange(drained_, nullptr));
}

void HttpServer::Closed(int fd) {
  connections_.erase(fd);
  acceptor_.Resume();
  // Posted, since it may destroy the server.
  if (connections_.empty() && drained_) loop_.Post(std::exchange(drained_, nullptr));
}

}  // namespace divvy::net
