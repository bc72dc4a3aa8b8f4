#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "client/transport.h"
#include "measure/meter.h"
#include "measure/samples.h"
#include "net/http.h"
#include "net/loop.h"
#include "server/backend.h"

namespace divvy::measure {

struct Measured {
  Samples samples;
  Duration elapsed{};
  Usage usage;
};

// Sends one batch after the other to each of several backends, each at its own pace, and takes the
// time that the server's router would see: from handing a batch over to having its whole answer.
// What comes before times have settled does not count.
//
// For the loop's thread.
class ClosedLoop {
 public:
  // All outlive it; `meter` may be null. `check` is asked every now and then: an error of it ends
  // the measurement.
  ClosedLoop(net::Loop& loop, std::vector<server::Backend*> backends, Meter* meter,
             std::function<Result<void>()> check);

  // Runs the loop until enough was measured; then nothing is under way. Besides what `check` says:
  //   kInvalidArgument, kFailedPrecondition  the backend refused the batch or failed at it (HTTP
  //                                          4xx, 5xx), with its words;
  //   kUnavailable                           no answer came.
  [[nodiscard]] Result<Measured> Run(const client::Call& batch, const Pace& pace);

 private:
  // Of one Run.
  struct State {
    net::HttpQuestion batch;
    const Pace* pace = nullptr;
    std::vector<double> warming;
    bool measuring = false;
    bool done = false;
    TimePoint begun{};  // The warm-up, then the measuring.
    TimePoint last_answer{};
    std::size_t next_look = 0;  // At so many samples we see whether they are enough.
    int in_flight = 0;
    std::optional<Error> failure;
    Measured measured;
  };

  void Send(server::Backend& backend);
  void Take(server::Backend& backend, TimePoint sent, bool counts,
            const Result<std::vector<net::HttpResponse>>& answers);
  void Warm(double ms);
  void Count(double ms);
  [[nodiscard]] Result<Measured> Await();

  net::Loop& loop_;
  std::vector<server::Backend*> backends_;
  Meter* meter_;
  std::function<Result<void>()> check_;
  State now_;
};

}  // namespace divvy::measure
