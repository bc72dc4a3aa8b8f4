#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "client/requests.h"
#include "client/schedule.h"
#include "client/transport.h"
#include "net/loop.h"

namespace divvy::client {

// One request that was measured. Times count from where measuring begins.
struct Record {
  Duration scheduled{};  // When it was due.
  Duration issued{};     // When we came to it: later only where this program is too slow.
  Duration sent{};  // When it was handed to a connection: later than that only where all were busy.
  Duration done{};  // When its fate was known; for one unanswered, the end.
  std::int32_t model = 0;
  std::int32_t items = 1;
  Outcome outcome = Outcome::kUnanswered;
  std::uint16_t reason = 0;  // Of RunLog::reasons, if it was refused or failed.

  // From when it was due, so that a request that had to wait for its turn is not let off.
  Duration latency() const { return done - scheduled; }
};

struct RunLog {
  std::deque<Record> records;        // In order of schedule.
  std::vector<std::string> reasons;  // An example of each kind: messages that differ in figures
                                     // alone are of one kind.
  Duration elapsed{};                // Until the last request was due, or the last answer came.
  bool cut_short = false;            // Stopped before its schedule was over.
  bool gave_up = false;              // As RunOptions::give_up_after says.
};

struct RunOptions {
  std::vector<std::optional<Duration>> slos;  // By model. As many as there are models.
  bool precise = false;  // Busy-wait before a request is due: a core for tens of microseconds.
  // For what is under way when the schedule is over.
  Duration patience = std::chrono::seconds(30);
  // When so many were late, refused or failed, nothing is left to be learnt; the run ends at once.
  std::optional<std::uint64_t> give_up_after = {};
};

// Sends requests when they are due, whatever is under way: an open loop. A server that falls behind
// gets no fewer requests for it, as its users would not wait for each other either.
//
// For the loop's thread.
class LoadRun {
 public:
  // All outlive it. `requests`: by model.
  LoadRun(net::Loop& loop, Transport& transport, Schedule schedule, std::vector<Requests>& requests,
          RunOptions options);
  LoadRun(const LoadRun&) = delete;
  LoadRun& operator=(const LoadRun&) = delete;

  // Runs the loop until all is answered, patience is at its end, or it was stopped; then nothing
  // is under way on the transport. Once.
  [[nodiscard]] RunLog Run();

  // From within the loop: sends no more, and waits for what is under way; the second time, for
  // nothing.
  void Stop();

  // How far it is.
  Duration position() const { return loop_.Clock() - start_; }
  std::uint64_t issued() const { return issued_; }
  std::uint64_t done() const { return done_; }

 private:
  void IssueDue();
  void Issue(const Due& due);
  void Finish(std::size_t index, const Reply& reply);
  [[nodiscard]] bool Over() const;
  [[nodiscard]] Duration UntilNext() const;
  std::uint16_t ReasonOf(const std::string& reason);

  net::Loop& loop_;
  Transport& transport_;
  Schedule schedule_;
  std::vector<Requests>& requests_;
  RunOptions options_;
  TimePoint start_{};  // Of measuring.
  std::optional<Due> next_;
  std::optional<std::size_t> issuing_;  // The record whose request is being handed over.
  std::optional<TimePoint> patience_ends_;
  int stops_ = 0;
  std::uint64_t issued_ = 0;
  std::uint64_t done_ = 0;
  std::uint64_t bad_ = 0;
  RunLog log_;  // With the warm-up's requests, until the end.
  std::map<std::string, std::uint16_t> kinds_;
};

}  // namespace divvy::client
