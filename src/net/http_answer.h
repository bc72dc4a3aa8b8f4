#pragma once

#include <string>
#include <string_view>

#include "net/http.h"

namespace divvy::net {

// How a server writes its answers.

// From the status line to the empty one, with Content-Length, and with Connection where the client
// must be told: before the connection closes, and to HTTP/1.0 when it does not. Line ends in the
// values of headers become spaces.
[[nodiscard]] std::string AnswerHead(const HttpAnswer& answer, bool closes, int minor_version);
// Else none follows the head, whatever the answer has.
[[nodiscard]] bool MayHaveBody(int status);

// {"error": "..."}; a 429 says when to come again.
[[nodiscard]] HttpAnswer ErrorAnswer(int status, std::string_view message);

}  // namespace divvy::net
