#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "net/slice.h"

namespace divvy::net {

// Name and value; names compare without regard to case.
struct HeaderView {
  std::string_view name;
  std::string_view value;
};

using HeaderViews = std::vector<HeaderView>;

// The first header of that name.
[[nodiscard]] std::optional<std::string_view> FindHeader(const HeaderViews& headers,
                                                         std::string_view name);

// A request as a server got it. All views point into `head`.
struct HttpRequest {
  Slice head;
  std::string_view method;  // "GET"
  std::string_view target;  // "/v2/models/m/infer?x": as sent, not decoded.
  HeaderViews headers;
  bool keep_alive = true;
  Slice body;  // Whole; chunks are joined, content encodings are not undone.
};

// An answer as a client got it. All views point into `head`.
struct HttpResponse {
  Slice head;
  int status = 0;
  HeaderViews headers;
  bool keep_alive = true;
  Slice body;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

// An answer to be sent. Content-Length is added.
struct HttpAnswer {
  int status = 200;
  Headers headers;
  std::vector<Slice> body;
};

// A request to be sent. Content-Length is added, and Host.
struct HttpQuestion {
  std::string method = "POST";
  std::string target;
  Headers headers;
  std::vector<Slice> body;
};

// What a head says about the message after it.
struct HttpFraming {
  bool chunked = false;
  std::optional<std::size_t> content_length;
  bool until_close = false;       // An answer with neither: it ends with the connection.
  bool expects_continue = false;  // A 1.1 request that waits for a 100 before its body.
  int minor_version = 1;          // HTTP/1.x
};

// Parses a whole head, from the first line to the empty one (inclusive). Any bytes give a value or
// an error with a word for the sender:
//   kInvalidArgument    400. Obsolete folding, control characters, lines that do not end with CR
//   LF,
//                       spaces before a colon, repeated or contradictory lengths, lengths and
//                       chunked together, versions other than 1.0 and 1.1, a 1.1 request without
//                       exactly one Host;
//   kUnsupported        501. Transfer encodings other than chunked;
//   kResourceExhausted  431. More than 256 headers.
[[nodiscard]] Result<HttpFraming> ParseRequestHead(Slice head, HttpRequest& request);
// Whether an answer has a body depends on the question too: one to HEAD, and 1xx, 204 and 304 have
// none, whatever their head says. The latter are accounted for here, HEAD is the caller's.
[[nodiscard]] Result<HttpFraming> ParseResponseHead(Slice head, HttpResponse& response);

// Points all views into `head`, a copy of what they were parsed from.
void MoveHead(HttpRequest& request, Slice head);
void MoveHead(HttpResponse& response, Slice head);

// Header names and other tokens: ASCII without regard to case.
[[nodiscard]] bool EqualTokens(std::string_view a, std::string_view b);

// "Not Found" for 404; "Unknown" for what we never send.
[[nodiscard]] std::string_view ReasonPhrase(int status);

}  // namespace divvy::net
