#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "net/address.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::net {

// One HTTP/1.1 connection to one server: requests are pipelined and answered in order. Connects
// when first needed.
class HttpClient {
 public:
  // kUnavailable when the connection broke, could not be made, or was closed before the answer;
  // kInvalidArgument when the answer was none; kResourceExhausted when we have no descriptor,
  // memory or port for a connection, which says nothing of the server. Called exactly once for each
  // request, never from within Send. May call Send, and may destroy the client.
  using Callback = std::function<void(Result<HttpResponse>)>;

  // `loop` and `streams` outlive it. `host` is what the Host header says.
  HttpClient(Loop& loop, Address address, std::string host, const StreamMaker& streams,
             std::size_t most_body_bytes = 1 << 30);
  ~HttpClient();  // Calls no callback any more.
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // When a question leaves: at once, or together with others of the loop's round, in one system
  // call, at its end.
  enum class Leaves { kAtOnce, kWithTheRound };
  // The question is needed during the call only; its slices are kept.
  void Send(const HttpQuestion& question, Callback callback, Leaves leaves = Leaves::kAtOnce);
  // Breaks the connection: what is pending fails with kUnavailable, soon and not from within Close.
  // Send connects anew.
  void Close();

  std::size_t pending() const;
  bool connected() const;

 private:
  class Connection;
  std::shared_ptr<Connection> connection_;
};

}  // namespace divvy::net
