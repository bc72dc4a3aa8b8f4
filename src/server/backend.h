#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "net/address.h"
#include "net/http.h"
#include "net/http_client.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::server {

// Where a lane's batches run: a KServe v2 server at an address. One batch at a time.
//
// Our own worker is told that the requests of a batch belong together (`divvy-batch: n` on the
// first) and gets them on one connection. Any other server gets them side by side, each on a
// connection of its own, and may batch them as it likes.
class Backend {
 public:
  enum class Kind { kWorker, kForeign };
  using Callback = std::function<void(Result<std::vector<net::HttpResponse>>)>;

  // `loop` outlives it.
  Backend(net::Loop& loop, net::Address address, std::string host, Kind kind);

  // Answers in the order of the batch, once all are there; an error as soon as one cannot come.
  // Never from within Run. REQUIRES: no batch under way.
  void Run(std::vector<net::HttpQuestion> batch, Callback callback);

  // Breaks off: the callback of a batch under way is not called any more.
  void Abandon();

  bool busy() const { return callback_ != nullptr; }

 private:
  void Take(std::uint64_t run, std::size_t index, Result<net::HttpResponse> response);
  net::HttpClient& Client(std::size_t index);

  net::Loop& loop_;
  net::Address address_;
  std::string host_;
  Kind kind_;
  net::PlainStreams streams_;
  std::vector<std::unique_ptr<net::HttpClient>> clients_;
  std::uint64_t run_ = 0;
  std::vector<net::HttpResponse> responses_;
  std::size_t missing_ = 0;
  Callback callback_;
};

}  // namespace divvy::server
