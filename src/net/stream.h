#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

namespace divvy::net {

// A non-blocking socket's bytes, as they are or through TLS. The descriptor stays the caller's.
class Stream {
 public:
  virtual ~Stream() = default;
  // Bytes moved; 0: none now, wait until readable or writable, as wants_read says; -1: the peer has
  // closed or broken the connection. It may have closed one direction only: after a -1 of Read,
  // Write is worth a try.
  virtual long Read(char* to, std::size_t size) = 0;
  virtual long Write(const iovec* from, int count) = 0;
  // After a 0 (TLS may want to read in order to write).
  virtual bool wants_read() const = 0;
  // Bytes that were decrypted and not read: no poll will tell of them.
  virtual bool has_buffered() const = 0;
  // TLS does not stand yet: nothing that was sent or received is the user's.
  virtual bool handshaking() const { return false; }
};

// How the sockets of a server or client speak. Outlives its streams.
class StreamMaker {
 public:
  virtual ~StreamMaker() = default;
  [[nodiscard]] virtual std::unique_ptr<Stream> Make(int fd) const = 0;
};

class PlainStreams final : public StreamMaker {
 public:
  [[nodiscard]] std::unique_ptr<Stream> Make(int fd) const override;
};

}  // namespace divvy::net
