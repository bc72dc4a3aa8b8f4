#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "net/address.h"
#include "net/grpc.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/slice.h"
#include "net/stream.h"

namespace divvy::net {

// A gRPC server as its client sees it: many calls at once on one HTTP/2 connection, which is made
// when first needed, and made anew for the first call after it broke. For the loop's thread.
class GrpcClient {
 public:
  // The answer (empty unless the status is OK) and the status; a broken connection is UNAVAILABLE.
  // What a server says it has not begun with (it drains, or has too many) is sent once more.
  // Exactly once for each call, never from within Call. May destroy the client.
  using Callback = std::function<void(Slice message, GrpcStatus status)>;

  // `loop` and `streams` outlive it.
  GrpcClient(Loop& loop, Address address, std::string authority, const StreamMaker& streams);
  ~GrpcClient();  // Calls no callback any more.
  GrpcClient(const GrpcClient&) = delete;
  GrpcClient& operator=(const GrpcClient&) = delete;

  // A unary call. `timeout` is sent as grpc-timeout and kept here too (DEADLINE_EXCEEDED). The
  // server hears when that makes it of no use.
  void Call(const std::string& method, const Headers& metadata, std::vector<Slice> message,
            std::optional<Duration> timeout, Callback callback);

 private:
  class Connection;
  struct Pending;
  void Send(Pending call);
  void Drop(const Connection* connection);

  Loop& loop_;
  Address address_;
  std::string authority_;
  const StreamMaker& streams_;
  // Shared with the loop's round in which one of them ends. The last one takes new calls; the
  // others end with those they have.
  std::vector<std::shared_ptr<Connection>> connections_;
};

}  // namespace divvy::net
