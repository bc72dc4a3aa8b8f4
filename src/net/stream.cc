#include "net/stream.h"

#include <sys/socket.h>

#include <cerrno>

namespace divvy::net {
namespace {

bool IsForLater(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

class PlainStream final : public Stream {
 public:
  explicit PlainStream(int fd) : fd_(fd) {}

  long Read(char* to, std::size_t size) override {
    if (size == 0) return 0;
    for (;;) {
      const ssize_t got = recv(fd_, to, size, 0);
      if (got > 0) return got;
      if (got < 0 && errno == EINTR) continue;
      wants_read_ = true;
      return got < 0 && IsForLater(errno) ? 0 : -1;
    }
  }

  long Write(const iovec* from, int count) override {
    // Not writev: that one raises SIGPIPE when the peer has gone.
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(from);
    message.msg_iovlen = static_cast<std::size_t>(count);
    for (;;) {
      const ssize_t put = sendmsg(fd_, &message, MSG_NOSIGNAL);
      if (put >= 0) return put;
      if (errno == EINTR) continue;
      wants_read_ = false;
      return IsForLater(errno) ? 0 : -1;
    }
  }

  bool wants_read() const override { return wants_read_; }
  bool has_buffered() const override { return false; }

 private:
  int fd_;
  bool wants_read_ = true;
};

}  // namespace

std::unique_ptr<Stream> PlainStreams::Make(int fd) const {
  return std::make_unique<PlainStream>(fd);
}

}  // namespace divvy::net
