#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "net/http_reader.h"
#include "net/http_server.h"
#include "net/progress.h"
#include "net/send_queue.h"

namespace divvy::net {

// One client of an HttpServer. Private to it.
//
// Work is done in Run alone, called by the loop, so that no handler and no `gone` is ever called
// from within somebody's Reply::Send. What ends the connection sets dead_; Run then closes it.
class HttpServer::Connection : public std::enable_shared_from_this<HttpServer::Connection> {
 public:
  // Takes over the descriptor.
  Connection(HttpServer& server, int fd);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Start();
  // Takes no more requests, and ends when the last answer is out.
  void Drain();
  // The server goes: closes without a word.
  void Abandon();

 private:
  class Reply;
  // A request that is not answered, or whose answer waits for those of earlier ones.
  struct Slot {
    bool closes = false;  // The last one of the connection.
    bool head_only = false;
    int minor_version = 1;
    std::optional<HttpAnswer> answer;
    std::function<void()> gone;
  };

  void OnReady(std::uint32_t events);
  void OnTimer();
  void Run();
  void Close();
  void RunSoon();

  // Requests.
  bool ReadSome();
  bool Discard();
  void CountHeld();
  void HandleMessages();
  void HearMessages();
  bool BeginMessage();
  void Dispatch();
  void Refuse(int status, std::string_view message);
  void OnEnd();

  // Answers.
  void Answer(std::uint64_t number, HttpAnswer answer);
  void OnGone(std::uint64_t number, std::function<void()> gone);
  void SendReady();
  void Push(const Slot& slot);
  void Flush();
  void FinishIfDone();

  bool IsFull() const;
  bool IsReading() const { return !ended_ && (last_seen_ || !IsFull()); }
  void UpdateInterest();
  std::optional<TimePoint> Deadline() const;
  void Arm();
  void Expire();

  HttpServer& server_;
  Loop& loop_;
  const HttpLimits& limits_;
  const int fd_;
  const std::uint64_t id_;
  std::unique_ptr<Stream> stream_;
  HttpReader reader_;
  const std::shared_ptr<ByteBudget> budget_;
  BudgetShare share_;  // Of it: what the reader holds.
  SendQueue queue_;
  HttpRequest request_;  // The one whose body is under way.
  HttpFraming framing_;
  std::deque<Slot> slots_;
  std::uint64_t first_ = 0;  // Number of the first slot.

  bool running_ = false;
  bool dead_ = false;
  bool closed_ = false;
  bool run_soon_ = false;
  bool last_seen_ = false;     // No more requests; what else comes is thrown away.
  bool lingers_ = false;       // The client may be sending still and must get our last answer.
  bool ended_ = false;         // The client sends no more.
  bool continue_due_ = false;  // A 100 that waits for earlier answers.
  bool blocked_ = false;       // The stream took less than all of queue_.
  bool write_wants_read_ = false;
  bool read_wants_write_ = false;
  std::uint32_t interest_ = 0;

  bool head_begun_ = false;
  TimePoint head_since_{};
  TimePoint idle_since_{};
  TimePoint drains_at_ = TimePoint::max();  // Idle: closes then.
  Progress read_progress_;
  Progress write_progress_;
  std::optional<TimePoint> linger_until_;
  std::optional<Loop::TimerId> timer_;
};

}  // namespace divvy::net
