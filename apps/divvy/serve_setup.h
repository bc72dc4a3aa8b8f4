#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "serve_daemons.h"
#include "server/generation.h"

namespace divvy::app {

// What the partitions of a plan are when they are served.
enum class ServeOn {
  kCpu,  // Processes on this machine's cores.
  kMig,  // The GPUs' MIG instances, which are there already (`divvy apply`).
  kMps,  // Clients of an MPS daemon, each with its partition's share of the SMs.
};

struct ServeChoice {
  std::string fleet;  // The file.
  std::string plan;   // A plan file or a planner's name; empty: the planner of the fleet.
  std::string route;  // Empty: the route of the fleet.
  ServeOn on = ServeOn::kCpu;
  std::string worker;   // divvy-worker; empty: beside this program.
  std::string engines;  // Folder of engine libraries; empty: beside this program.
  std::string nvml;
  std::string sockets;  // Folder for the workers' sockets.
  double spread = 0;    // Of synthetic workers' times; negative: as the profile's p95 says.
  std::uint64_t seed = 1;
  bool dry_run = false;  // Nothing is started, no daemon either.
  // Shared by the plans of a server: a reload stays with the daemons that are there.
  std::shared_ptr<ServeDaemons> daemons = std::make_shared<ServeDaemons>();
};

// A fleet planned and laid out over workers, with what a person should know.
struct ServePlan {
  server::ServeSetup setup;
  std::vector<std::string> notes;
};

// Reads the fleet, plans it or takes a plan, and says for each partition which worker serves it and
// how it is started. Reads files each time, so that a reload sees what has changed. `round` makes
// the names of sockets differ from those of the plan before.
[[nodiscard]] Result<ServePlan> PlanToServe(const ServeChoice& choice, int round);

}  // namespace divvy::app
