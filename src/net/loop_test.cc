#include "net/loop.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <thread>

#include "net/test_peer.h"

namespace divvy::net {
namespace {

// Two connected sockets.
struct Pair {
  Pair() { EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends.data()), 0); }
  ~Pair() {
    for (const int fd : ends) close(fd);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  void Ring() const { EXPECT_EQ(write(ends[1], "x", 1), 1); }
  int fd() const { return ends[0]; }

  std::array<int, 2> ends{};
};

// Also of a loop that wakes up early for them.
class LoopTimerTest : public ::testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Exactly, LoopTimerTest, ::testing::Bool());

TEST_P(LoopTimerTest, TimersGoOffInTheirOrderAndNotBeforeTheirTime) {
  Loop loop;
  if (GetParam()) loop.KeepTimeExactly();
  std::string order;
  const TimePoint start = loop.now();
  const auto at = [&](int ms, char name) {
    const TimePoint when = start + std::chrono::milliseconds(ms);
    return loop.At(when, [&order, &loop, when, name] {
      EXPECT_GE(loop.now(), when);
      order += name;
    });
  };
  at(3, 'd');
  at(1, 'a');
  at(2, 'c');
  at(1, 'b');  // At the same time: as they were set.
  const Loop::TimerId cancelled = at(2, 'x');
  loop.Cancel(cancelled);
  loop.Cancel(cancelled);
  RunUntil(loop, [&order] { return order.size() == 4; });
  EXPECT_EQ(order, "abcd");
}

TEST(LoopTest, TimersMayCancelAndSetOthers) {
  Loop loop;
  std::string order;
  Loop::TimerId victim{};
  loop.At(loop.now(), [&] {
    order += 'a';
    loop.Cancel(victim);
    loop.At(loop.now(), [&order] { order += 'b'; });
  });
  victim = loop.At(loop.now(), [&order] { order += 'x'; });
  loop.At(loop.now() + std::chrono::milliseconds(1), [&order] { order += 'c'; });
  RunUntil(loop, [&order] { return order.size() >= 3; });
  EXPECT_EQ(order, "abc");
}

TEST(LoopTest, WhatIsForgottenWithinARoundIsNotCalledInIt) {
  Loop loop;
  Pair a;
  Pair b;
  int calls = 0;
  // Both are ready in one round: whichever comes first forgets both.
  for (const Pair* pair : {&a, &b}) {
    loop.Watch(pair->fd(), EPOLLIN, [&](std::uint32_t) {
      ++calls;
      loop.Forget(a.fd());
      loop.Forget(b.fd());
    });
    pair->Ring();
  }
  loop.Round(Duration::zero());
  loop.Round(Duration::zero());
  EXPECT_EQ(calls, 1);
}

TEST(LoopTest, ADescriptorThatIsUsedAgainWithinARoundIsAnother) {
  Loop loop;
  Pair a;
  Pair b;
  Pair quiet;
  int calls = 0;
  int wrong = 0;
  for (const Pair* pair : {&a, &b}) {
    const Pair* const other = pair == &a ? &b : &a;
    loop.Watch(pair->fd(), EPOLLIN, [&, pair, other](std::uint32_t) {
      ++calls;
      loop.Forget(pair->fd());
      loop.Forget(other->fd());
      // The other's number, for which this round has an event, is now a socket with none.
      EXPECT_EQ(dup2(quiet.fd(), other->fd()), other->fd());
      loop.Watch(other->fd(), EPOLLIN, [&wrong](std::uint32_t) { ++wrong; });
    });
    pair->Ring();
  }
  loop.Round(Duration::zero());
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(wrong, 0);
  quiet.Ring();
  loop.Round(Duration::zero());
  EXPECT_EQ(wrong, 1) << "the new one is watched";
}

TEST(LoopTest, ACallbackMayForgetItselfAndLiveToItsEnd) {
  Loop loop;
  Pair pair;
  auto owned = std::make_shared<std::string>("alive");
  std::string seen;
  loop.Watch(pair.fd(), EPOLLIN, [&loop, &pair, &seen, owned](std::uint32_t) {
    loop.Forget(pair.fd());
    seen = *owned;
  });
  owned.reset();
  pair.Ring();
  loop.Round(Duration::zero());
  EXPECT_EQ(seen, "alive");
}

TEST(LoopTest, InterestCanBeChanged) {
  Loop loop;
  Pair pair;
  std::uint32_t seen = 0;
  loop.Watch(pair.fd(), 0, [&seen](std::uint32_t events) { seen |= events; });
  pair.Ring();
  loop.Round(Duration::zero());
  EXPECT_EQ(seen, 0U);
  loop.Change(pair.fd(), EPOLLIN | EPOLLOUT);
  loop.Round(Duration::zero());
  EXPECT_EQ(seen, static_cast<std::uint32_t>(EPOLLIN | EPOLLOUT));
}

TEST(LoopTest, PostedCallsOfManyThreadsAllRunAndThoseOfOneInOrder) {
  constexpr int kThreads = 3;
  constexpr int kCalls = 500;
  Loop loop;
  std::array<int, kThreads> next{};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&loop, &next, t] {
      for (int i = 0; i < kCalls; ++i) {
        loop.Post([&loop, &next, t, i] {
          EXPECT_EQ(next[t], i);
          ++next[t];
          if (next == std::array<int, kThreads>{kCalls, kCalls, kCalls}) loop.Stop();
        });
      }
    });
  }
  loop.Run();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(next[0] + next[1] + next[2], kThreads * kCalls);
}

TEST(LoopTest, ACallPostedFromACallRunsInTheNextRoundWithoutWaiting) {
  Loop loop;
  std::string order;
  loop.Post([&] {
    order += 'a';
    loop.Post([&] {
      order += 'b';
      loop.Stop();
    });
  });
  loop.Round(std::chrono::hours(1));
  EXPECT_EQ(order, "a");
  loop.Run();
  EXPECT_EQ(order, "ab");
}

TEST(LoopTest, AStopBeforeRunIsNotLost) {
  Loop loop;
  loop.Stop();
  loop.Run();
}

}  // namespace
}  // namespace divvy::net
