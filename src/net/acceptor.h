#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "net/loop.h"

namespace divvy::net {

// Takes connections off listening sockets for as long as its owner has room for them. For the
// loop's thread.
class Acceptor {
 public:
  // A connection, non-blocking and prepared to send, is now the callee's.
  using Accepted = std::function<void(int fd)>;
  // `loop` outlives it. `has_room`: those for whom there is none wait in the kernel's queue.
  Acceptor(Loop& loop, std::function<bool()> has_room, Accepted accepted);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // The socket, of net::Listen, is now its own.
  void Serve(int listening);
  // Closes all sockets.
  void Close();
  // There may be room again.
  void Resume();
  // Called when descriptors or memory have run out, with errno: at each try, ten in a second.
  void OnFailure(std::function<void(int error)> failed) { failed_ = std::move(failed); }

 private:
  void Accept(int listening);
  void Pause();

  Loop& loop_;
  std::function<bool()> has_room_;
  Accepted accepted_;
  int most_;  // Descriptor that is not accepted any more.
  std::function<void(int error)> failed_;
  std::vector<int> listening_;
  bool paused_ = false;  // The sockets are watched for nothing.
  bool waits_ = false;   // For retry_.
  Loop::TimerId retry_{};
};

}  // namespace divvy::net
