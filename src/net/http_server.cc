#include "net/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "net/http_server_connection.h"

namespace divvy::net {
namespace {

// A round of the loop serves others too.
constexpr int kAcceptsAtOnce = 64;
// When descriptors have run out, and none of ours may come back to say so.
constexpr Duration kAcceptAgain = std::chrono::milliseconds(100);

}  // namespace

HttpServer::HttpServer(Loop& loop, HttpLimits limits, const StreamMaker& streams,
                       HttpHandler handler)
    : loop_(loop), limits_(limits), streams_(streams), handler_(std::move(handler)) {}

HttpServer::~HttpServer() {
  if (accept_again_) loop_.Cancel(*accept_again_);
  for (const int fd : listening_) {
    loop_.Forget(fd);
    close(fd);
  }
  const auto connections = std::exchange(connections_, {});
  for (const auto& [fd, connection] : connections) connection->Abandon();
}

void HttpServer::Serve(int listening) {
  listening_.push_back(listening);
  loop_.Watch(listening, accepting_ ? EPOLLIN : 0U,
              [this, listening](std::uint32_t) { Accept(listening); });
}

void HttpServer::Accept(int listening) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (connections_.size() >= limits_.connections) {
      PauseAccepting();
      return;
    }
    const int fd = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      // The one that was to be accepted may have gone; others may be there.
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return;
      // Out of descriptors or memory. The socket stays readable: watching on would spin.
      PauseAccepting();
      accept_again_ = loop_.At(loop_.now() + kAcceptAgain, [this] {
        accept_again_.reset();
        ResumeAccepting();
      });
      return;
    }
    const int on = 1;  // Fails on unix sockets, which need it not.
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const auto connection = std::make_shared<Connection>(*this, fd);
    connections_.emplace(fd, connection);
    connection->Start();
  }
}

void HttpServer::PauseAccepting() {
  if (!accepting_) return;
  accepting_ = false;
  for (const int fd : listening_) loop_.Change(fd, 0);
}

void HttpServer::ResumeAccepting() {
  if (accepting_ || connections_.size() >= limits_.connections) return;
  accepting_ = true;
  for (const int fd : listening_) loop_.Change(fd, EPOLLIN);
}

void HttpServer::Drain(std::function<void()> done) {
  draining_ = true;
  drained_ = std::move(done);
  for (const int fd : std::exchange(listening_, {})) {
    loop_.Forget(fd);
    close(fd);
  }
  const auto connections = connections_;
  for (const auto& [fd, connection] : connections) connection->Drain();
  if (connections_.empty() && drained_) loop_.Post(std::exchange(drained_, nullptr));
}

void HttpServer::Closed(int fd) {
  connections_.erase(fd);
  if (!accept_again_) ResumeAccepting();
  // Posted, since it may destroy the server.
  if (connections_.empty() && drained_) loop_.Post(std::exchange(drained_, nullptr));
}

}  // namespace divvy::net
