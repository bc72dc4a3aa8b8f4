#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "net/acceptor.h"
#include "net/byte_budget.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/slice.h"
#include "net/stream.h"

namespace divvy::net {

struct GrpcLimits {
  std::size_t message_bytes = 64 << 20;  // Beyond: RESOURCE_EXHAUSTED.
  std::size_t connections = 4096;
  std::size_t streams = 1024;             // Of one connection at a time.
  std::size_t metadata_bytes = 64 << 10;  // Of one call. Beyond: RESOURCE_EXHAUSTED.
  // Of calls (call_bytes each, what is kept of their metadata and of the text of their status), and
  // of what has come of messages that are not whole; beyond: RESOURCE_EXHAUSTED. Shared with
  // whoever else counts in it; null: no bound, else message_bytes is no more than that.
  std::shared_ptr<ByteBudget> budget = nullptr;
  std::size_t call_bytes = 1 << 10;
  // Calls of one connection that its client may reset at once, and a tenth of that in each second
  // after; beyond, the connection is ended. High, because clients under load reset what is late.
  std::size_t resets = 10'000;
  Duration idle_time = std::chrono::seconds(300);  // A connection without calls.
  // A peer that takes less than 4 KiB of what waits for it, sends less of a message that is not
  // whole, no first byte, or a call without a message, unless the handler lets that wait: then it
  // has idle_time.
  Duration stall_time = std::chrono::seconds(20);
  Duration handshake_time = std::chrono::seconds(10);  // For TLS to stand.
};

// One call of a client, unary or streaming. Kept by whoever answers it, used from the loop's
// thread; when the client has gone, what is written is dropped.
class GrpcCall {
 public:
  virtual ~GrpcCall() = default;
  virtual const std::string& method() const = 0;  // "/inference.GRPCInferenceService/ModelInfer"
  // Lower-case names. Only what somebody asks for is kept: authorization, traceparent, tracestate,
  // content-type, grpc-encoding and grpc-timeout.
  virtual const Headers& metadata() const = 0;
  virtual std::optional<TimePoint> deadline() const = 0;  // By the loop's clock, from grpc-timeout.
  virtual bool cancelled() const = 0;
  virtual bool finished() const = 0;         // Finish was called.
  virtual std::size_t messages() const = 0;  // That the client has sent so far.
  // Sends one message. REQUIRES: not finished, and the message below 4 GiB.
  virtual void Write(std::vector<Slice> message) = 0;
  // Ends the call. Once. The text is cut off after 4 KiB, or after 256 bytes where the budget has
  // no room for more.
  virtual void Finish(GrpcStatus status) = 0;
  // Bytes written and not yet taken by the client.
  virtual std::size_t unsent() const = 0;
};

// Hears of calls. All from the loop's thread.
class GrpcHandler {
 public:
  virtual ~GrpcHandler() = default;
  // A message has come, whole and uncompressed (gzip and deflate are undone).
  virtual void OnMessage(const std::shared_ptr<GrpcCall>& call, Slice message) = 0;
  // Whether clients open calls of this method long before they have something to say.
  virtual bool MayWait(const std::string& /*method*/) const { return false; }
  // The client will send no more. For a unary call this follows its one message.
  virtual void OnHalfClose(const std::shared_ptr<GrpcCall>& call) = 0;
  // The client has gone or cancelled, its bytes make no sense, or the deadline has passed (then the
  // server has answered, for one DEADLINE_EXCEEDED, itself). Once; not after Finish, and not for a
  // call of which nothing was heard before.
  virtual void OnCancelled(const std::shared_ptr<GrpcCall>& call) = 0;
};

// gRPC over HTTP/2 on listening sockets, with prior knowledge or behind TLS. What breaks a protocol
// or a limit is answered here.
class GrpcServer {
 public:
  // `loop`, `streams` and `handler` outlive it.
  GrpcServer(Loop& loop, GrpcLimits limits, const StreamMaker& streams, GrpcHandler& handler);
  ~GrpcServer();  // The handler hears nothing any more.
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  // Begins to accept; no more than limits.connections at a time. The socket, of net::Listen, is now
  // the server's.
  void Serve(int listening);
  // GOAWAY: calls under way are finished, new ones refused. Calls `done`, not from within, when no
  // connection is left.
  void Drain(std::function<void()> done);
  // Called, ten times a second at most, while no connection can be accepted; with errno.
  void OnAcceptFailure(std::function<void(int error)> failed) {
    acceptor_.OnFailure(std::move(failed));
  }
  std::size_t connections() const { return connections_.size(); }

 private:
  class Call;
  class Connection;
  void Closed(int fd);

  Loop& loop_;
  GrpcLimits limits_;
  const StreamMaker& streams_;
  GrpcHandler& handler_;
  Acceptor acceptor_;
  // By descriptor. Shared with the loop's round in which one of them ends.
  std::unordered_map<int, std::shared_ptr<Connection>> connections_;
  std::function<void()> drained_;
};

}  // namespace divvy::net
