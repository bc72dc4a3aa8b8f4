#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "net/address.h"
#include "net/http.h"
#include "net/loop.h"
#include "net/slice.h"
#include "net/stream.h"

namespace divvy::client {

// What became of a request.
enum class Outcome : std::uint8_t {
  kAnswered,    // Rightly; in time or not is another question.
  kRefused,     // The server had no room for it: HTTP 429 and 503, gRPC's RESOURCE_EXHAUSTED.
  kFailed,      // Any other error, of the server or of the connection.
  kUnanswered,  // Nothing was heard until the end.
};

// "answered", "refused", ...
[[nodiscard]] std::string_view Name(Outcome outcome);

// A request to a server, in bytes: the same for every time that it is sent.
struct Call {
  std::string verb = "POST";  // HTTP alone.
  std::string target;         // A path, or the name of a gRPC method.
  net::Headers headers;
  std::vector<net::Slice> body;
};

struct Reply {
  Outcome outcome = Outcome::kAnswered;
  std::string reason;  // "HTTP 429: too late", unless it was answered.
  net::Slice body;     // Of an answer.
};

// Some connections to one server. For the loop's thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // Sends `call`, which outlives the request, as soon as a connection is free: `sent` is called
  // when it is handed to one, which may be within Send, and `done` once, never within Send. `done`
  // may send more.
  virtual void Send(const Call& call, std::function<void()> sent,
                    std::function<void(Reply)> done) = 0;

  // Closes all connections; nothing is called any more for what is under way. Not from within a
  // callback.
  virtual void Drop() = 0;
};

// Where to connect, and how. `streams` outlives the transport.
struct Peer {
  net::Address address;
  std::string host;
  const net::StreamMaker* streams = nullptr;
  int connections = 1;  // At most. REQUIRES: > 0.
};

// One request a connection at a time. A connection is made when a request comes and all others are
// busy; when there may be no more, requests wait for one in the order in which they came.
[[nodiscard]] std::unique_ptr<Transport> MakeHttpTransport(net::Loop& loop, Peer peer);

// All requests at once, spread evenly over the connections.
[[nodiscard]] std::unique_ptr<Transport> MakeGrpcTransport(net::Loop& loop, Peer peer);

}  // namespace divvy::client
