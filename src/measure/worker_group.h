#pragma once

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "net/loop.h"
#include "server/backend.h"
#include "server/log.h"
#include "server/worker_process.h"

namespace divvy::measure {

// The processes of one partition, kept by what keeps the server's. Here none may end: what was
// measured with another one starting beside it would be wrong.
//
// For the loop's thread.
class WorkerGroup {
 public:
  // `loop` outlives it.
  WorkerGroup(net::Loop& loop, std::vector<server::WorkerSpec> specs);
  ~WorkerGroup();
  WorkerGroup(const WorkerGroup&) = delete;
  WorkerGroup& operator=(const WorkerGroup&) = delete;

  // Starts all and runs the loop until they are warm. `check` is asked every now and then; an error
  // of it ends the wait. kUnavailable: one ended, or was not ready in time; the message says why.
  [[nodiscard]] Result<void> Start(const std::function<Result<void>()>& check, Duration patience);

  // Good while all are up.
  [[nodiscard]] Result<void> Check() const;

  // Asks them to end, and kills what has not after a while. Clients of an MPS daemon that are
  // killed may take others with them.
  void Finish();

  // One of each process. REQUIRES: started.
  std::vector<server::Backend*> backends() const;

 private:
  [[nodiscard]] std::string Said() const;

  net::Loop& loop_;
  // What the keepers of the processes log, for the error that ends it all.
  char* said_ = nullptr;
  std::size_t said_bytes_ = 0;
  std::FILE* sink_;
  server::Log log_;
  std::vector<std::unique_ptr<server::Backend>> backends_;
  std::vector<std::unique_ptr<server::WorkerProcess>> processes_;
  bool lost_ = false;
};

}  // namespace divvy::measure
