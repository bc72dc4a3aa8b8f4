#pragma once

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace divvy::server {

// What socket() fails with in this program; 0: it does not.
inline int socket_fault = 0;

// While it lives no socket can be made, as when descriptors are used up. Not by their limit:
// sanitizers need some, too.
class NoSockets {
 public:
  NoSockets() { socket_fault = EMFILE; }
  ~NoSockets() { socket_fault = 0; }
  NoSockets(const NoSockets&) = delete;
  NoSockets& operator=(const NoSockets&) = delete;
};

}  // namespace divvy::server

// In place of the C library's, for the whole of a test program.
extern "C" __attribute__((used)) inline int socket(int domain, int type, int protocol) noexcept {
  if (divvy::server::socket_fault == 0) {
    return static_cast<int>(syscall(SYS_socket, domain, type, protocol));
  }
  errno = divvy::server::socket_fault;
  return -1;
}
