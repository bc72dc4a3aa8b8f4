#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace divvy::client {

// Where a server is and how it speaks: "http://127.0.0.1:8000", "grpc://gpu-1",
// "grpcs://[::1]:8443", "http://unix:/run/worker.sock".
struct Url {
  bool grpc = false;
  bool tls = false;
  std::string host;     // "gpu-1": for the Host header and for the certificate.
  std::string address;  // "gpu-1:8001": as net::Address reads it.
  std::string text;     // As it was written.
};

// kInvalidArgument says what is wrong and what would be right. Without a port it is Triton's: 8000
// for http, 8001 for grpc. Only a slash may follow.
[[nodiscard]] Result<Url> ParseUrl(std::string_view text);

}  // namespace divvy::client
