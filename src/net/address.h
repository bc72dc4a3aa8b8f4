#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "base/result.h"

namespace divvy::net {

// Where somebody listens: "127.0.0.1:8000", "[::1]:8000", "localhost:8000" or "unix:/run/x.sock".
class Address {
 public:
  // kInvalidArgument says what is wrong with it. Names are resolved (the first answer counts).
  [[nodiscard]] static Result<Address> Parse(std::string_view text);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return size_; }
  int family() const { return storage_.ss_family; }
  bool is_unix() const { return family() == AF_UNIX; }
  bool is_loopback() const;  // Of this machine alone: loopback or unix.

  // As Parse reads it, with the number in place of a name.
  std::string Describe() const;

  static Address Of(const sockaddr_storage& storage, socklen_t size);

 private:
  sockaddr_storage storage_{};
  socklen_t size_ = 0;
};

// A non-blocking, close-on-exec socket that listens at `address` (port 0: any free one); for unix
// addresses the file is owner-only and a stale one is replaced. kUnavailable names the address and
// why, e.g. that it is in use.
[[nodiscard]] Result<int> Listen(const Address& address, int backlog);
// Where a socket of Listen really listens.
[[nodiscard]] Address LocalAddress(int fd);
// What a fresh connection is to be told: TCP to send at once, a unix socket to hold whole messages,
// as far as the kernel allows (net.core.wmem_max). Unlike TCP's its buffer does not grow: a large
// message would go by 200 KiB, each when the peer has been scheduled.
void PrepareToSend(int fd);
// A non-blocking socket whose connection is under way: writable once it stands.
//   kResourceExhausted  for want of descriptors, memory or ports of our own: nobody else's fault;
//   kUnavailable        the other side cannot be reached.
[[nodiscard]] Result<int> StartConnecting(const Address& address);
// Which of the two an errno of a connection under way is.
[[nodiscard]] ErrorCode ConnectErrorCode(int error);

}  // namespace divvy::net
