#pragma once

#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "run_sharing.h"

namespace divvy::app {

// The MPS daemons that a server uses, by GPU as its plan names it: joined, or started if there is
// none. They stay as long as this does. For several threads: a reload plans in one of its own.
class ServeDaemons {
 public:
  using Variables = std::vector<std::pair<std::string, std::string>>;

  // The environment of clients of the daemon of a GPU, which is joined when first asked for, or
  // when it was given up. May take as long as a daemon takes to start. Fails as app::JoinMps does.
  [[nodiscard]] Result<Variables> Join(const std::string& gpu, const std::string& nvml);

  // False while the daemon of a GPU is not there: what is started now would fail.
  [[nodiscard]] bool IsReady(const std::string& gpu);

  // A daemon that is not the one any more that it was.
  struct Change {
    std::string gpu;
    bool ready = false;  // There is another; clients of the former must be started again.
    std::string line;    // For the log.
  };
  // To be called every now and then: sees to it that dead daemons and keepers are started again.
  [[nodiscard]] std::vector<Change> LookAfter();

 private:
  std::mutex mutex_;  // Of what follows.
  std::map<std::string, Sharing> by_gpu_;
};

}  // namespace divvy::app
