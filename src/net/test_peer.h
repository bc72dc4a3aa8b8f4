#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>

#include "net/address.h"
#include "net/loop.h"

namespace divvy::net {

// Runs the loop until `done`; a test that would wait for ever fails instead.
inline void RunUntil(Loop& loop, const std::function<bool()>& done) {
  const TimePoint limit = loop.Clock() + std::chrono::seconds(30);
  while (!done()) {
    ASSERT_LT(loop.Clock(), limit) << "what the test waits for does not happen";
    loop.Round(std::chrono::milliseconds(100));
  }
}

// A folder that goes with the test.
class TempFolder {
 public:
  TempFolder() {
    std::string name = testing::TempDir() + "net_XXXXXX";
    path_ = mkdtemp(name.data());
  }
  ~TempFolder() {
    [[maybe_unused]] const int removed = std::system(("rm -rf '" + path_ + "'").c_str());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string File(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// The other end of a connection, byte by byte, in the thread of the loop that serves it.
class Peer {
 public:
  Peer(Loop& loop, const Address& address) : loop_(loop) {
    const Result<int> fd = StartConnecting(address);
    if (fd) fd_ = *fd;
    EXPECT_TRUE(fd.has_value());
    RunUntil(loop_, [this] {
      pollfd event{.fd = fd_, .events = POLLOUT, .revents = 0};
      return poll(&event, 1, 0) == 1;
    });
  }
  ~Peer() { Close(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  void EndSending() const { shutdown(fd_, SHUT_WR); }

  // Sends all of it, and runs the loop while the socket is full. False: the other side has gone.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t put = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (put < 0 && errno != EAGAIN) return false;
      if (put > 0) bytes.remove_prefix(static_cast<std::size_t>(put));
      loop_.Round(Duration::zero());
    }
    return true;
  }

  // Takes what there is, without waiting.
  void Take() {
    char bytes[64 << 10];
    for (;;) {
      const ssize_t got = recv(fd_, bytes, sizeof bytes, 0);
      if (got > 0) received_.append(bytes, static_cast<std::size_t>(got));
      if (got == 0 || (got < 0 && errno != EAGAIN)) ended_ = true;
      if (got <= 0) return;
    }
  }
  // Until all of `bytes` more have come.
  std::string Receive(std::size_t bytes) {
    RunUntil(loop_, [this, bytes] {
      Take();
      return ended_ || received_.size() >= bytes;
    });
    std::string taken = received_.substr(0, bytes);
    received_.erase(0, taken.size());
    return taken;
  }
  // Until the other side has closed.
  std::string ReceiveAll() {
    RunUntil(loop_, [this] {
      Take();
      return ended_;
    });
    return std::exchange(received_, {});
  }
  // Until there are this many answers; what came.
  std::string ReceiveUntil(std::string_view what) {
    RunUntil(loop_, [this, what] {
      Take();
      return ended_ || received_.find(what) != std::string::npos;
    });
    const std::size_t at = received_.find(what);
    std::string taken = received_.substr(0, at == std::string::npos ? at : at + what.size());
    received_.erase(0, taken.size());
    return taken;
  }

  const std::string& received() const { return received_; }
  bool ended() const { return ended_; }
  int fd() const { return fd_; }

 private:
  Loop& loop_;
  int fd_ = -1;
  std::string received_;
  bool ended_ = false;
};

}  // namespace divvy::net
