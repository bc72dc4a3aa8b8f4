#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::server {

// Where a replica's batches run: a KServe v2 server at an address. It may have several under way.
//
// Our own worker is told that the requests of a batch belong together (`divvy-batch: n` on the
// first) and gets them on one connection; it runs batches in the order they are sent. Any other
// server gets requests side by side, each on a connection of its own, and may batch them as it
// likes.
class Backend {
 public:
  enum class Kind { kWorker, kForeign };
  using Callback = std::function<void(Result<std::vector<net::HttpResponse>>)>;

  // `loop` outlives it.
  Backend(net::Loop& loop, net::Address address, std::string host, Kind kind);

  // Answers in the order of the batch, once all are there; an error as soon as one cannot come, and
  // then one for every other batch under way. Never from within Run. The questions are needed
  // during the call only. REQUIRES: at least one.
  void Run(std::span<const net::HttpQuestion* const> batch, Callback callback);

  // Breaks off: the callbacks of batches under way are not called any more.
  void Abandon();

 private:
  struct Batch {
    std::uint64_t number;
    std::size_t missing;
    std::vector<net::HttpResponse> responses;
    Callback callback;
  };

  void Take(std::uint64_t number, std::size_t index, Result<net::HttpResponse> response);
  net::HttpClient& Client();

  net::Loop& loop_;
  net::Address address_;
  std::string host_;
  Kind kind_;
  net::PlainStreams streams_;
  std::vector<std::unique_ptr<net::HttpClient>> clients_;
  std::uint64_t batches_made_ = 0;
  std::deque<Batch> batches_;  // Under way.
};

}  // namespace divvy::server
