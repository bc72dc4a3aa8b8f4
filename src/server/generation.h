#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "kserve/tensor.h"
#include "net/loop.h"
#include "server/log.h"
#include "server/metrics.h"
#include "server/router.h"
#include "server/worker_process.h"
#include "serving/policy.h"
#include "serving/setup.h"

namespace divvy::server {

struct ModelSpec {
  std::string name;
  Duration slo{};
  int priority = 0;
};

// What a fleet and its plan come to: models, partitions with their latencies, and who serves each.
struct ServeSetup {
  serving::Setup setup;             // Replicas of one lane each.
  std::vector<ModelSpec> models;    // By ModelId.
  std::vector<WorkerSpec> workers;  // By ReplicaId.
  serving::RouteOptions route;
  HangLimits hang;
};

// The workers of one plan with the router over them. A new plan is a new generation: it is brought
// up beside the old one, takes over when all of it is warm, and the old one is drained.
class Generation {
 public:
  struct Model {
    serving::ModelId id{};
    ModelSpec spec;
    std::optional<kserve::ModelMetadata> metadata;  // Since a worker of it has been up.
    int most_items = 1;                             // That some partition takes.
  };

  // `loop`, `metrics` and `log` outlive it. `ready` is called once, when every worker is up.
  Generation(net::Loop& loop, ServeSetup setup, Metrics& metrics, Log& log,
             std::function<void()> ready);

  void Start();
  // Starts the workers of a place again: what they ran on is another by now, and what runs there is
  // lost through no fault of its own.
  void Restart(std::string_view place, const std::string& why);
  // Answers what is pending, then stops its workers and calls `done`; nothing new may be asked.
  void Drain(std::function<void()> done);

  Router& router() { return *router_; }
  // Null for a model that is not served.
  const Model* Find(std::string_view name) const;
  const std::vector<Model>& models() const { return models_; }
  bool IsReady(const Model& model) const { return router_->up(model.id) > 0; }
  bool AllModelsReady() const;
  std::size_t workers_up() const;
  const WorkerSpec& worker(serving::ReplicaId replica) const {
    return workers_[static_cast<std::size_t>(replica)]->spec();
  }
  // Which partitions take requests.
  std::vector<std::pair<Metrics::Partition, bool>> up() const;

 private:
  void Up(serving::ReplicaId replica, std::unique_ptr<Backend> backend,
          kserve::ModelMetadata metadata);
  void AwaitWorkers();

  net::Loop& loop_;
  std::function<void()> ready_;
  std::function<void()> drained_;
  std::vector<Model> models_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // Into models_.
  std::unique_ptr<Tally> tally_;
  std::unique_ptr<Router> router_;
  std::vector<std::unique_ptr<WorkerProcess>> workers_;  // By ReplicaId.
  std::vector<serving::ModelId> model_of_;               // By ReplicaId.
};

}  // namespace divvy::server
