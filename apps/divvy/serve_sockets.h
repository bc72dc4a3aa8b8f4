#pragma once

#include <string>

#include "base/result.h"

namespace divvy::app {

// A folder of a server's own for its workers' sockets, in XDG_RUNTIME_DIR or /tmp; gone with
// everything in it when this is. As long as it is in use, its owner has a lock in it: so those of
// servers that were killed can be told from those of servers that run.
class SocketFolder {
 public:
  // Also removes folders whose servers were killed. kUnavailable says where none can be made.
  [[nodiscard]] static Result<SocketFolder> Make();

  SocketFolder(SocketFolder&& other) noexcept;
  SocketFolder& operator=(SocketFolder&&) = delete;
  ~SocketFolder();
  const std::string& path() const { return path_; }

 private:
  SocketFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;  // The descriptor that has the lock.
};

}  // namespace divvy::app
