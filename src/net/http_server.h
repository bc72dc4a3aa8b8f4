#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/result.h"
#include "base/time.h"
#include "net/acceptor.h"
#include "net/address.h"
#include "net/byte_budget.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::net {

struct HttpLimits {
  std::size_t head_bytes = 64 << 10;  // Beyond: 431.
  std::size_t body_bytes = 64 << 20;  // Beyond: 413, as soon as the head says so.
  std::size_t connections = 4096;     // Beyond: not accepted until others have closed.
  // Of what has come of requests that are not whole; beyond: busy_status. Shared with whoever else
  // counts in it; null: no bound, else body_bytes is no more than that.
  std::shared_ptr<ByteBudget> budget = nullptr;
  int busy_status = 429;
  // From first byte to whole head: else 408. As long for a TLS handshake.
  Duration head_time = std::chrono::seconds(10);
  Duration idle_time = std::chrono::seconds(120);  // Between requests.
  // While draining, an idle connection stays open this long: who asks on it meanwhile is answered,
  // and told to close.
  Duration drain_time{0};
  // A body that comes, or an answer that is taken, moves 4 KiB or ends in every such time: else
  // 408, or the connection is closed.
  Duration stall_time = std::chrono::seconds(20);
  std::size_t pipelined = 128;  // Requests of one connection under way; it is read no further.
};

// The way back to who asked. May be kept as long as need be and used once, from the loop's thread;
// when the client has gone, or the server, the answer is dropped. One that is destroyed unused
// sends a 500: nobody waits for ever. Answers go out in the order of the requests. A client that
// has ended only its own side of the connection is there still, and gets its answers.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void Send(HttpAnswer answer) = 0;
  // Calls `gone` (at most once, not after Send) when the client has closed its connection; within
  // OnGone when it has already.
  virtual void OnGone(std::function<void()> gone) = 0;
  // Which connection of the server's life the request came on; none has the number of another.
  virtual std::uint64_t connection() const = 0;
};

using HttpHandler = std::function<void(HttpRequest request, std::unique_ptr<HttpReply> reply)>;

// HTTP/1.1 on one listening socket. What breaks the protocol or a limit is answered here (in JSON,
// {"error": "..."}) and never reaches the handler.
class HttpServer {
 public:
  // `loop` and `streams` outlive it. The handler is not to destroy the server.
  HttpServer(Loop& loop, HttpLimits limits, const StreamMaker& streams, HttpHandler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Begins to accept. The socket, of net::Listen, is now the server's.
  void Serve(int listening);

  // Accepts no more, closes idle connections (after drain_time), and the others as soon as their
  // last answer is out (which says Connection: close). Calls `done` when none is left.
  void Drain(std::function<void()> done);

  // Called, ten times a second at most, while no connection can be accepted; with errno.
  void OnAcceptFailure(std::function<void(int error)> failed) {
    acceptor_.OnFailure(std::move(failed));
  }

  std::size_t connections() const { return connections_.size(); }

 private:
  class Connection;
  friend class Connection;
  void Closed(int fd);

  Loop& loop_;
  HttpLimits limits_;
  const StreamMaker& streams_;
  HttpHandler handler_;
  Acceptor acceptor_;
  // Shared with the loop and, weakly, with the replies.
  std::unordered_map<int, std::shared_ptr<Connection>> connections_;
  std::uint64_t connections_made_ = 0;
  bool draining_ = false;
  std::function<void()> drained_;
};

}  // namespace divvy::net
