#include "net/tls.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace divvy::net {
namespace {

// The most that one TLS record holds; smaller pieces are gathered into one.
constexpr std::size_t kRecord = 16 << 10;

// Why OpenSSL has failed in this thread: the first error, of which the later ones are consequences.
std::string Why() {
  const unsigned long code = ERR_peek_error();
  const char* const reason = ERR_reason_error_string(code);
  std::string why = reason != nullptr ? reason : "unknown reason";
  if (ERR_SYSTEM_ERROR(code)) why = std::strerror(ERR_GET_REASON(code));
  ERR_clear_error();
  return why;
}

// A name as ALPN writes it: its length, then itself.
std::string WireName(std::string_view protocol) {
  return static_cast<char>(protocol.size()) + std::string(protocol);
}

// OpenSSL's own socket BIO writes in a way that raises SIGPIPE when the peer has gone.
int BioFd(BIO* bio) { return static_cast<int>(reinterpret_cast<std::intptr_t>(BIO_get_data(bio))); }

int BioWrite(BIO* bio, const char* from, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t put = send(BioFd(bio), from, static_cast<std::size_t>(size), MSG_NOSIGNAL);
  if (put < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(put);
}

int BioRead(BIO* bio, char* to, int size) {
  BIO_clear_retry_flags(bio);
  const ssize_t got = recv(BioFd(bio), to, static_cast<std::size_t>(size), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long BioControl(BIO*, int command, long, void*) { return command == BIO_CTRL_FLUSH ? 1 : 0; }

const BIO_METHOD* SocketBio() {
  static const BIO_METHOD* const kMethod = [] {
    BIO_METHOD* const method =
        BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "divvy socket");
    Check(method != nullptr, "memory for a BIO method");
    BIO_meth_set_write(method, BioWrite);
    BIO_meth_set_read(method, BioRead);
    BIO_meth_set_ctrl(method, BioControl);
    return method;
  }();
  return kMethod;
}

class TlsStream final : public Stream {
 public:
  TlsStream(SSL* ssl, int fd) : ssl_(ssl) {
    BIO* const bio = BIO_new(SocketBio());
    Check(bio != nullptr, "memory for a BIO");
    BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl_, bio, bio);
  }
  ~TlsStream() override {
    // Says good-bye if that can be done without waiting.
    if (!broken_ && SSL_is_init_finished(ssl_) != 0) SSL_shutdown(ssl_);
    ERR_clear_error();
    SSL_free(ssl_);
  }
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  long Read(char* to, std::size_t size) override {
    // OpenSSL gives one record at a time; a big body has many.
    std::size_t total = 0;
    while (total < size) {
      std::size_t got = 0;
      ERR_clear_error();
      const int result = SSL_read_ex(ssl_, to + total, size - total, &got);
      if (result != 1) {
        Note(result);
        break;
      }
      total += got;
    }
    if (total > 0) return static_cast<long>(total);
    return ended_ || broken_ ? -1 : 0;
  }

  long Write(const iovec* from, int count) override {
    std::size_t total = 0;
    std::size_t offset = 0;
    while (count > 0) {
      const std::string_view piece = Gather(from, count, offset);
      std::size_t put = 0;
      ERR_clear_error();
      // What is tried again after a want begins with the same bytes, as OpenSSL demands: a stream's
      // user only appends to what it has.
      const int result = SSL_write_ex(ssl_, piece.data(), piece.size(), &put);
      if (result != 1) {
        Note(result);
        break;
      }
      total += put;
      while (count > 0 && put >= from->iov_len - offset) {
        put -= from->iov_len - offset;
        offset = 0;
        ++from;
        --count;
      }
      offset += put;
    }
    if (total > 0) return static_cast<long>(total);
    return broken_ ? -1 : 0;
  }

  bool wants_read() const override { return wants_read_; }
  // An end that was met after bytes is to be read too, and no poll may tell of it.
  bool has_buffered() const override { return ended_ || broken_ || SSL_pending(ssl_) > 0; }
  bool handshaking() const override { return SSL_is_init_finished(ssl_) == 0; }

 private:
  void Note(int result) {
    const int error = SSL_get_error(ssl_, result);
    wants_read_ = error != SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_ZERO_RETURN) {
      ended_ = true;
    } else if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      broken_ = true;
    }
    ERR_clear_error();
  }

  // The first piece to write: a big one where it is, small ones together.
  std::string_view Gather(const iovec* from, int count, std::size_t offset) {
    const std::string_view first(static_cast<const char*>(from->iov_base) + offset,
                                 from->iov_len - offset);
    if (first.size() >= kRecord || count == 1) return first;
    std::size_t size = 0;
    for (int i = 0; i < count && size < kRecord; ++i) {
      const std::size_t skip = i == 0 ? offset : 0;
      const std::size_t part = std::min(from[i].iov_len - skip, kRecord - size);
      std::memcpy(record_.data() + size, static_cast<const char*>(from[i].iov_base) + skip, part);
      size += part;
    }
    return {record_.data(), size};
  }

  SSL* ssl_;
  bool wants_read_ = true;
  bool ended_ = false;   // The peer has said good-bye and sends no more.
  bool broken_ = false;  // Nothing goes in either direction.
  std::array<char, kRecord> record_;
};

std::shared_ptr<SSL_CTX> MakeContext(const SSL_METHOD* method) {
  std::shared_ptr<SSL_CTX> context(SSL_CTX_new(method), SSL_CTX_free);
  Check(context != nullptr, "memory for a TLS context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  // A key with a pass phrase is an error, not a question to the terminal.
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  return context;
}

// Picks our protocol out of those the client offers.
template <const std::string_view& kProtocol>
int SelectProtocol(SSL*, const unsigned char** out, unsigned char* out_size,
                   const unsigned char* in, unsigned int in_size, void*) {
  unsigned char* chosen = nullptr;
  const auto* const ours = reinterpret_cast<const unsigned char*>(kProtocol.data());
  if (SSL_select_next_proto(&chosen, out_size, ours, static_cast<unsigned int>(kProtocol.size()),
                            in, in_size) != OPENSSL_NPN_NEGOTIATED) {
    return SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

constexpr std::string_view kHttp2 = "\x02h2";
constexpr std::string_view kHttp11 = "\x08http/1.1";

bool IsNumeric(const std::string& host) {
  in6_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

}  // namespace

Result<TlsStreams> TlsStreams::ForServer(const std::string& certificate_file,
                                         const std::string& key_file, std::string_view protocol) {
  TlsStreams streams;
  streams.context_ = MakeContext(TLS_server_method());
  SSL_CTX* const context = streams.context_.get();
  ERR_clear_error();
  if (SSL_CTX_use_certificate_chain_file(context, certificate_file.c_str()) != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no PEM certificate: {}", certificate_file, Why()));
  }
  // This also holds it against the certificate.
  if (SSL_CTX_use_PrivateKey_file(context, key_file.c_str(), SSL_FILETYPE_PEM) != 1) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no PEM key, without a pass phrase, of the certificate in {}: {}",
                            key_file, certificate_file, Why()));
  }
  SSL_CTX_set_alpn_select_cb(
      context, protocol == "h2" ? SelectProtocol<kHttp2> : SelectProtocol<kHttp11>, nullptr);
  return streams;
}

Result<TlsStreams> TlsStreams::ForClient(const std::string& ca_file, const std::string& server_name,
                                         std::string_view protocol) {
  TlsStreams streams;
  streams.context_ = MakeContext(TLS_client_method());
  streams.server_name_ = server_name;
  SSL_CTX* const context = streams.context_.get();
  ERR_clear_error();
  const bool trusts = ca_file.empty() ? SSL_CTX_set_default_verify_paths(context) == 1
                                      : SSL_CTX_load_verify_file(context, ca_file.c_str()) == 1;
  if (!trusts) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: no PEM certificates to trust: {}",
                            ca_file.empty() ? "the system's store" : ca_file, Why()));
  }
  if (server_name.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "TLS needs the server's name, to hold its certificate against");
  }
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, nullptr);
  const std::string name = WireName(protocol);
  SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(name.data()),
                          static_cast<unsigned int>(name.size()));
  return streams;
}

std::unique_ptr<Stream> TlsStreams::Make(int fd) const {
  SSL* const ssl = SSL_new(context_.get());
  Check(ssl != nullptr, "memory for a TLS connection");
  if (server_name_.empty()) {
    SSL_set_accept_state(ssl);
  } else {
    SSL_set_connect_state(ssl);
    if (IsNumeric(server_name_)) {
      // Names alone may be sent ahead (RFC 6066, section 3).
      X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), server_name_.c_str());
    } else {
      // SSL_set_tlsext_host_name, a macro with a cast of the old kind.
      SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
               const_cast<char*>(server_name_.c_str()));
      SSL_set1_host(ssl, server_name_.c_str());
    }
  }
  return std::make_unique<TlsStream>(ssl, fd);
}

}  // namespace divvy::net
