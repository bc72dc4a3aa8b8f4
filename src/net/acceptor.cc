#include "net/acceptor.h"

#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "net/address.h"

namespace divvy::net {
namespace {

// A round of the loop serves others too.
constexpr int kAcceptsAtOnce = 64;
// When descriptors have run out, and none of ours may come back to say so.
constexpr Duration kAcceptAgain = std::chrono::milliseconds(100);
constexpr rlim_t kMostReserved = 1024;
constexpr rlim_t kManyDescriptors = 1 << 30;

// Descriptors from here on are not for clients: we have to reach our own workers too, and to start
// others.
int MostAccepted() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kManyDescriptors) {
    return static_cast<int>(kManyDescriptors);
  }
  return static_cast<int>(limit.rlim_cur - std::min(limit.rlim_cur / 4, kMostReserved));
}

}  // namespace

Acceptor::Acceptor(Loop& loop, std::function<bool()> has_room, Accepted accepted)
    : loop_(loop),
      has_room_(std::move(has_room)),
      accepted_(std::move(accepted)),
      most_(MostAccepted()) {}

Acceptor::~Acceptor() { Close(); }

void Acceptor::Serve(int listening) {
  listening_.push_back(listening);
  loop_.Watch(listening, paused_ ? 0U : EPOLLIN,
              [this, listening](std::uint32_t) { Accept(listening); });
}

void Acceptor::Close() {
  if (std::exchange(waits_, false)) loop_.Cancel(retry_);
  for (const int fd : std::exchange(listening_, {})) {
    loop_.Forget(fd);
    close(fd);
  }
}

void Acceptor::Accept(int listening) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    if (!has_room_()) return Pause();
    const int fd = accept4(listening, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 || fd >= most_) {
      const int error = fd < 0 ? errno : EMFILE;
      if (fd >= 0) close(fd);
      // The one that was to be accepted may have gone; others may be there.
      if (error == ECONNABORTED || error == EINTR) continue;
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      // Out of descriptors or memory. The socket stays readable: watching on would spin.
      Pause();
      waits_ = true;
      retry_ = loop_.At(loop_.now() + kAcceptAgain, [this] {
        waits_ = false;
        Resume();
      });
      if (failed_) failed_(error);
      return;
    }
    PrepareToSend(fd);
    accepted_(fd);
  }
}

void Acceptor::Pause() {
  if (std::exchange(paused_, true)) return;
  for (const int fd : listening_) loop_.Change(fd, 0);
}

void Acceptor::Resume() {
  if (!paused_ || waits_ || !has_room_()) return;
  paused_ = false;
  for (const int fd : listening_) loop_.Change(fd, EPOLLIN);
}

}  // namespace divvy::net
