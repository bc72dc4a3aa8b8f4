#include "net/acceptor.h"

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "net/address.h"
#include "net/test_peer.h"

namespace divvy::net {
namespace {

int SendBuffer(int fd) {
  int bytes = 0;
  socklen_t size = sizeof bytes;
  EXPECT_EQ(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, &size), 0);
  return bytes;
}

TEST(AcceptorTest, BothEndsOfAUnixSocketHoldMoreThanTheKernelGivesByItself) {
  const TempFolder folder;
  const Address address = Address::Parse("unix:" + folder.File("s")).value();
  Loop loop;
  int theirs = -1;
  Acceptor acceptor(loop, [] { return true; }, [&](int fd) { theirs = fd; });
  acceptor.Serve(Listen(address, 4).value());
  const int ours = StartConnecting(address).value();
  while (theirs < 0) loop.Round(std::chrono::hours(1));
  const int plain = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_GT(SendBuffer(ours), SendBuffer(plain));
  EXPECT_EQ(SendBuffer(theirs), SendBuffer(ours));
  for (const int fd : {ours, theirs, plain}) close(fd);
}

}  // namespace
}  // namespace divvy::net
