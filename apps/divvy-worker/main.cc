#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string_view>
#include <vector>

#include "engine/options.h"
#include "engine/worker.h"
#include "kserve/describe.h"
#include "net/address.h"
#include "net/large_blocks.h"
#include "net/loop.h"

namespace {

using divvy::Error;
using divvy::Result;
using divvy::engine::Options;

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int Say(const Error& error, int status) {
  fmt::print(stderr, "divvy-worker: {}\n", error.message);
  return status;
}

// A descriptor that is readable when one of the signals that end us has come. They are blocked in
// all threads from here on.
int StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

// Whoever started us holds the other end. When that closes nobody is left who wants an answer, and
// an engine that hangs must not keep us.
void WatchParent(divvy::net::Loop& loop, int fd) {
  loop.Watch(fd, EPOLLIN | EPOLLRDHUP, [fd](std::uint32_t) {
    char ignored[64];
    if (read(fd, ignored, sizeof ignored) == 0) _exit(0);
  });
}

int Describe(const divvy::engine::Lane::MakeEngine& make) {
  const auto engine = make();
  if (!engine) return Say(engine.error(), kFailed);
  fmt::print("{}\n", divvy::kserve::ToJson((*engine)->description().metadata));
  return 0;
}

int Serve(const Options& options, const divvy::engine::Lane::MakeEngine& make) {
  const auto address = divvy::net::Address::Parse(options.listen);
  if (!address) return Say(address.error(), kUsage);
  const int stop = StopSignals();
  divvy::net::Loop loop;
  int status = 0;
  struct stat kind{};
  if (options.parent_fd && (fstat(*options.parent_fd, &kind) != 0 || !S_ISFIFO(kind.st_mode))) {
    return Say({divvy::ErrorCode::kInvalidArgument, "--parent-fd: not the end of a pipe"}, kUsage);
  }
  if (options.parent_fd) WatchParent(loop, *options.parent_fd);
  const Result<int> listening = divvy::net::Listen(*address, 128);
  if (!listening) return Say(listening.error(), kFailed);
  const std::string where = divvy::net::LocalAddress(*listening).Describe();

  divvy::engine::Worker worker(loop, options.config.model, make, [&](Result<void> made) {
    if (made) {
      fmt::print("ready: model {} on {}\n", options.config.model, where);
      std::fflush(stdout);
      return;
    }
    status = Say(made.error(), kFailed);
    loop.Stop();
  });
  worker.Serve(*listening);
  loop.Watch(stop, EPOLLIN, [&](std::uint32_t) {
    loop.Forget(stop);
    // A model that is being loaded has nobody to answer, and may take minutes.
    if (!worker.ready()) _exit(0);
    worker.Drain([&] { loop.Stop(); });
  });
  loop.Run();
  close(stop);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string_view> words(argv + 1, argv + argc);
  const Result<Options> options = divvy::engine::ParseOptions(words);
  if (!options) return Say(options.error(), kUsage);
  if (options->help) {
    fmt::print("{}", divvy::engine::HelpText());
    return 0;
  }
  const auto make = divvy::engine::EngineMaker(*options);
  if (!make) return Say(make.error(), kUsage);
  divvy::net::KeepLargeBlocks();
  return options->describe ? Describe(*make) : Serve(*options, *make);
}
