#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "engine/execute.h"
#include "engine/lane.h"
#include "kserve/describe.h"
#include "net/http_server.h"
#include "net/loop.h"
#include "net/stream.h"

namespace divvy::engine {

// Serves one model over HTTP (KServe v2), one batch at a time.
//
// Requests that shall run as one come back to back on one connection, the first of them with the
// header "divvy-batch: n"; they run when all n have come. Any other request is a batch of its own.
// Not ready, and refusing to infer (503), until its engine is made. For the loop's thread.
//
// An engine runs in a thread of its own, so that requests are read meanwhile; but one that computes
// nothing (Engine::held_back) runs in the loop's, which saves two changes of threads a batch. Then
// what is read and written around a run is part of the time that it is said to take.
class Worker {
 public:
  // Begins to make the engine. `made` hears when it is, or why it never will be. `loop` outlives
  // it.
  Worker(net::Loop& loop, std::string model, Lane::MakeEngine make,
         std::function<void(Result<void>)> made);
  // Waits for what the engine does. Requests that wait are dropped.
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Begins to accept. The socket, of net::Listen, is now the worker's.
  void Serve(int listening);
  // Takes no more connections, refuses batches that are not whole, and calls `done` when all others
  // are answered.
  void Drain(std::function<void()> done);

  bool ready() const { return description_ != nullptr; }

 private:
  struct Batch;
  struct Path;

  void Take(Engine& engine);
  void Handle(net::HttpRequest request, std::unique_ptr<net::HttpReply> reply);
  void Infer(const net::HttpRequest& request, const Path& path,
             std::unique_ptr<net::HttpReply> reply);
  net::HttpAnswer Answer(const Path& path) const;
  net::HttpAnswer AnswerForModel(const Path& path) const;
  void Start(std::shared_ptr<Batch> batch);
  void RunInLane(std::shared_ptr<Batch> batch);
  void RunHere();
  void Finish(Batch& batch, Execution execution, Duration started);
  void Refuse(Batch& batch, const Error& error);
  void Count(const RunRecord& run, const Batch& batch, Duration started);

  net::Loop& loop_;
  std::string model_;
  std::unique_ptr<const Description> description_;  // Null until the engine is made.
  Engine* engine_ = nullptr;                        // One that runs here; null: in the lane.
  std::deque<std::shared_ptr<Batch>> waiting_;      // To run here.
  bool holding_ = false;                            // Answers are held back,
  TimePoint held_until_{};                          // until then, or last were.
  kserve::ModelStatistics statistics_;
  net::PlainStreams streams_;
  bool draining_ = false;
  std::unordered_map<std::uint64_t, std::shared_ptr<Batch>> collecting_;  // By connection.
  // What posted calls hold to know that this is still there.
  std::shared_ptr<Worker*> self_;
  net::HttpServer server_;
  Lane lane_;  // Last: its thread uses the others.
};

}  // namespace divvy::engine
