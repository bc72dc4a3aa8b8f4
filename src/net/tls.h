#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/stream.h"

struct ssl_ctx_st;

namespace divvy::net {

// Streams through TLS 1.2 or later, by OpenSSL.
class TlsStreams final : public StreamMaker {
 public:
  // For servers: PEM files. `protocol` is the ALPN name, "h2" or "http/1.1". kInvalidArgument names
  // the file and what is wrong with it.
  [[nodiscard]] static Result<TlsStreams> ForServer(const std::string& certificate_file,
                                                    const std::string& key_file,
                                                    std::string_view protocol);
  // For clients: trusts `ca_file`, or the system's store when it is empty, and checks that the
  // certificate is for `server_name`.
  [[nodiscard]] static Result<TlsStreams> ForClient(const std::string& ca_file,
                                                    const std::string& server_name,
                                                    std::string_view protocol);

  [[nodiscard]] std::unique_ptr<Stream> Make(int fd) const override;

 private:
  TlsStreams() = default;

  std::shared_ptr<ssl_ctx_st> context_;
  std::string server_name_;  // Empty: a server.
};

}  // namespace divvy::net
