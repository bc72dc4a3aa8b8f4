#include "server/generation.h"

#include <algorithm>

namespace divvy::server {
namespace {

constexpr Duration kStopPoll = std::chrono::milliseconds(5);

}  // namespace

Generation::Generation(net::Loop& loop, ServeSetup setup, Metrics& metrics, Log& log,
                       std::function<void()> ready)
    : loop_(loop), ready_(std::move(ready)) {
  for (std::size_t i = 0; i < setup.models.size(); ++i) {
    models_.push_back({.id = static_cast<serving::ModelId>(i),
                       .spec = std::move(setup.models[i]),
                       .metadata = {},
                       .most_items = 1});
  }
  for (std::size_t i = 0; i < models_.size(); ++i) by_name_.emplace(models_[i].spec.name, i);
  for (const serving::ReplicaSpec& replica : setup.setup.replicas) {
    model_of_.push_back(replica.model);
    int& most = models_[static_cast<std::size_t>(replica.model)].most_items;
    most = std::max(most, setup.setup.tables[replica.table].max_batch());
  }
  std::vector<std::string> names;
  for (const Model& model : models_) names.push_back(model.spec.name);
  std::vector<Metrics::Partition> partitions;
  for (const WorkerSpec& worker : setup.workers) partitions.push_back({worker.model, worker.name});
  tally_ = std::make_unique<Tally>(metrics, names, partitions);
  router_ = std::make_unique<Router>(loop, std::move(setup.setup), setup.route, setup.hang, *tally_,
                                     [this](serving::ReplicaId replica, const Error& why) {
                                       WorkerProcess& worker =
                                           *workers_[static_cast<std::size_t>(replica)];
                                       if (why.code == ErrorCode::kResourceExhausted) {
                                         return worker.ReachAgain(why.message);
                                       }
                                       worker.GiveUp(why.message);
                                     });
  for (std::size_t i = 0; i < setup.workers.size(); ++i) {
    const auto replica = static_cast<serving::ReplicaId>(i);
    // A process of ours that ended may have done so by what it ran.
    const bool ours = setup.workers[i].url.empty();
    workers_.push_back(std::make_unique<WorkerProcess>(
        loop, std::move(setup.workers[i]), log,
        WorkerProcess::Events{.up =
                                  [this, replica](auto backend, auto metadata) {
                                    Up(replica, std::move(backend), std::move(metadata));
                                  },
                              .down = [this, replica, ours] { router_->TakeDown(replica, ours); },
                              .busy = [this, replica] { return router_->IsBusy(replica); },
                              .restarted = [this, replica] { tally_->Restarted(replica); }}));
  }
}

void Generation::Start() {
  for (const auto& worker : workers_) worker->Start();
}

void Generation::Restart(std::string_view place, const std::string& why) {
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (!workers_[i]->running() || workers_[i]->spec().place != place) continue;
    router_->TakeDown(static_cast<serving::ReplicaId>(i), false);
    workers_[i]->GiveUp(why);
  }
}

void Generation::Up(serving::ReplicaId replica, std::unique_ptr<Backend> backend,
                    kserve::ModelMetadata metadata) {
  const serving::ModelId id = model_of_[static_cast<std::size_t>(replica)];
  models_[static_cast<std::size_t>(id)].metadata = std::move(metadata);
  router_->BringUp(replica, std::move(backend));
  if (ready_ != nullptr && workers_up() == workers_.size()) std::exchange(ready_, nullptr)();
}

void Generation::Drain(std::function<void()> done) {
  drained_ = std::move(done);
  ready_ = nullptr;
  router_->WhenIdle([this] {
    for (const auto& worker : workers_) worker->Stop();
    AwaitWorkers();
  });
}

void Generation::AwaitWorkers() {
  const bool any =
      std::ranges::any_of(workers_, [](const auto& worker) { return worker->running(); });
  if (!any) {
    // Not from within ourselves: `done` may destroy us.
    loop_.Post(std::move(drained_));
    return;
  }
  loop_.At(loop_.now() + kStopPoll, [this] { AwaitWorkers(); });
}

const Generation::Model* Generation::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &models_[found->second];
}

bool Generation::AllModelsReady() const {
  return std::ranges::all_of(models_, [&](const Model& model) { return IsReady(model); });
}

std::vector<std::pair<Metrics::Partition, bool>> Generation::up() const {
  std::vector<std::pair<Metrics::Partition, bool>> up;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    const WorkerSpec& spec = workers_[i]->spec();
    up.push_back({{spec.model, spec.name}, router_->is_up(static_cast<serving::ReplicaId>(i))});
  }
  return up;
}

std::size_t Generation::workers_up() const {
  std::size_t count = 0;
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    if (router_->is_up(static_cast<serving::ReplicaId>(i))) ++count;
  }
  return count;
}

}  // namespace divvy::server
