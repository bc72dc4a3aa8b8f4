#include "serve_setup.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <thread>
#include <utility>

#include "base/text_safety.h"
#include "device/node.h"
#include "device/nvml_library.h"
#include "fleet_input.h"
#include "gpu/catalogue.h"
#include "measure/partitions.h"
#include "net/address.h"
#include "serving/policy.h"
#include "simulate_plans.h"
#include "worker_command.h"

namespace divvy::app {
namespace {

namespace fs = std::filesystem;

std::string Dims(const workload::FleetTensor& tensor) {
  std::string text = fmt::format("{}:{}:", tensor.name, tensor.type);
  for (std::size_t i = 0; i < tensor.dims.size(); ++i) {
    text += (i == 0 ? "" : ",") + std::to_string(tensor.dims[i]);
  }
  return text;
}

// Compute instances of the node that the plan's instances are, in the plan's order.
class MigInstances {
 public:
  [[nodiscard]] static Result<MigInstances> Read(const std::string& nvml) {
    const auto library = device::NvmlLibrary::Open(nvml);
    if (!library) return Fail(library.error());
    auto node = device::ReadNode(**library);
    if (!node) return Fail(node.error());
    MigInstances found;
    found.node_ = std::move(*node);
    return found;
  }

  // Each is handed out once.
  [[nodiscard]] Result<std::string> Take(const plan::PlannedGpu& gpu,
                                         const plan::PlannedInstance& wanted) {
    const auto state = std::ranges::find_if(node_.gpus, [&](const device::GpuState& one) {
      const auto* uuid = std::get_if<std::string>(&gpu.gpu);
      return uuid != nullptr ? one.uuid == *uuid
                             : static_cast<int>(one.index) == std::get<int>(gpu.gpu);
    });
    if (state != node_.gpus.end()) {
      for (device::GpuInstanceState& instance : state->instances) {
        const gpu::MigProfile& profile =
            state->model.profiles[static_cast<std::size_t>(instance.instance.profile)];
        const bool fits = profile.name == wanted.profile && !instance.compute.empty() &&
                          (!wanted.start || *wanted.start == instance.instance.start);
        if (fits && taken_.insert(instance.compute.front().uuid).second) {
          return instance.compute.front().uuid;
        }
      }
    }
    return Fail(ErrorCode::kFailedPrecondition,
                fmt::format("{} has no {} left for the plan; cut the GPUs first: divvy plan FLEET "
                            "--save plan.yaml, divvy apply plan.yaml",
                            plan::Describe(gpu.gpu), wanted.profile));
  }

 private:
  device::NodeState node_;
  std::set<std::string> taken_;
};

class Layout {
 public:
  Layout(const ServeChoice& choice, const LoadedFleet& fleet, const CandidatePlan& candidate,
         int round)
      : choice_(choice), fleet_(fleet), candidate_(candidate), round_(round) {}

  [[nodiscard]] Result<server::ServeSetup> Make() {
    const serving::PlannedSetup& planned = candidate_.planned.front();
    server::ServeSetup made;
    for (const workload::FleetModel& model : fleet_.fleet.models) {
      made.models.push_back({.name = model.name, .slo = model.slo, .priority = model.priority});
    }
    made.setup.models = planned.setup.models;
    made.setup.tables = planned.setup.tables;
    if (choice_.on == ServeOn::kMig) {
      auto instances = MigInstances::Read(choice_.nvml);
      if (!instances) return Fail(instances.error());
      instances_ = std::move(*instances);
    }
    for (std::size_t i = 0; i < planned.setup.replicas.size(); ++i) {
      if (auto added = AddReplica(i, made); !added) return Fail(added.error());
    }
    return made;
  }

 private:
  // Each process of a replica is one of its own, so that one may fail without the others.
  [[nodiscard]] Result<void> AddReplica(std::size_t index, server::ServeSetup& made) {
    const serving::PlannedSetup& planned = candidate_.planned.front();
    const serving::ReplicaSpec& replica = planned.setup.replicas[index];
    const plan::PlannedGpu& gpu = candidate_.GpuOf(index);
    const plan::PlannedInstance& instance = candidate_.InstanceOf(index);
    const workload::FleetModel& model =
        fleet_.fleet.models[static_cast<std::size_t>(replica.model)];
    std::string mig;
    if (choice_.on == ServeOn::kMig && model.serve.url.empty()) {
      auto uuid = instances_.Take(gpu, instance);
      if (!uuid) return Fail(uuid.error());
      mig = std::move(*uuid);
    }
    for (int lane = 0; lane < replica.lanes; ++lane) {
      serving::ReplicaSpec one = replica;
      one.lanes = 1;
      made.setup.replicas.push_back(one);
      auto worker = WorkerFor(index, lane, model, gpu, instance, mig);
      if (!worker) return Fail(worker.error());
      made.workers.push_back(std::move(*worker));
    }
    return {};
  }

  [[nodiscard]] Result<server::WorkerSpec> WorkerFor(std::size_t index, int lane,
                                                     const workload::FleetModel& model,
                                                     const plan::PlannedGpu& gpu,
                                                     const plan::PlannedInstance& instance,
                                                     const std::string& mig) {
    const serving::PlannedSetup& planned = candidate_.planned.front();
    const serving::ReplicaSpec& replica = planned.setup.replicas[index];
    const serving::LatencyTable& table = planned.setup.tables[replica.table];
    const std::string number = std::holds_alternative<int>(gpu.gpu)
                                   ? std::to_string(std::get<int>(gpu.gpu))
                                   : std::get<std::string>(gpu.gpu);
    server::WorkerSpec worker;
    worker.name = fmt::format("{}/{}#{}.{}", number, instance.profile, index, lane);
    worker.model = model.name;
    worker.url = model.serve.url;
    if (!worker.url.empty()) {
      const std::string_view rest = std::string_view(worker.url).substr(7);
      auto address = net::Address::Parse(rest.substr(0, rest.find('/')));
      if (!address) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}:{}: url: {}", choice_.fleet, model.serve.line,
                                address.error().message));
      }
      worker.address = *address;
      return worker;
    }
    worker.socket = fmt::format("{}/{}-{}-{}.sock", choice_.sockets, round_, index, lane);
    auto command = CommandFor(model, table.max_batch());
    if (!command) return Fail(command.error());
    worker.command = std::move(*command);
    const gpu::GpuModel& kind = **gpu::FindGpuModel(gpu.kind);
    const double share = measure::ShareOf(kind, instance.profile);
    auto& words = worker.command;
    if (model.serve.engine == "synthetic") {
      std::string times;
      for (int items = 1; items <= table.max_batch(); ++items) {
        times += fmt::format("{}{:.3f}", items == 1 ? "" : ",", Milliseconds(table(items)) * 1000);
      }
      const double spread = choice_.spread < 0 ? planned.spread[replica.table] : choice_.spread;
      words.insert(words.end(), {"--latency-us", times, "--spread", fmt::format("{}", spread),
                                 "--seed", std::to_string(choice_.seed * 1000 + next_seed_++)});
    } else if (choice_.on == ServeOn::kCpu) {
      const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
      const int threads = measure::CoresFor(share, cores);
      words.insert(words.end(), {"--device", "cpu", "--threads", std::to_string(threads)});
    } else {
      words.insert(words.end(), {"--device", "cuda:0"});
    }
    if (choice_.on == ServeOn::kMig) worker.environment = {{"CUDA_VISIBLE_DEVICES", mig}};
    if (choice_.on == ServeOn::kMps) {
      // As `divvy profile` measures: the processes of a partition have its SMs together.
      const int percent = measure::ThreadPercentage(share, replica.lanes);
      if (auto placed = PlaceOnMps(number, worker); !placed) return Fail(placed.error());
      worker.environment.emplace_back("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", std::to_string(percent));
    }
    return worker;
  }

  // Makes it a client of the daemon of a GPU.
  [[nodiscard]] Result<void> PlaceOnMps(const std::string& gpu, server::WorkerSpec& worker) {
    if (choice_.dry_run) {
      worker.environment = {{"CUDA_VISIBLE_DEVICES", gpu}};
      return {};
    }
    auto variables = choice_.daemons->Join(gpu, choice_.nvml);
    if (!variables) return Fail(variables.error());
    worker.environment = std::move(*variables);
    worker.place = gpu;
    worker.can_start = [daemons = choice_.daemons, gpu] { return daemons->IsReady(gpu); };
    return {};
  }

  // What does not depend on the partition.
  [[nodiscard]] Result<std::vector<std::string>> CommandFor(const workload::FleetModel& model,
                                                            int max_batch) {
    const workload::FleetServe& serve = model.serve;
    if (worker_program_.empty()) {
      auto found = FindWorkerProgram(choice_.worker);
      if (!found) return Fail(found.error());
      worker_program_ = std::move(*found);
    }
    auto engine = FindEngine(serve.engine, choice_.engines);
    if (!engine) return Fail(engine.error());
    std::vector<std::string> words = {
        worker_program_,          "--model", model.name, "--engine", *engine, "--max-batch",
        std::to_string(max_batch)};
    if (serve.artifact) {
      const fs::path beside = fs::path(choice_.fleet).parent_path();
      const fs::path path = beside / serve.artifact->path;
      std::error_code error;
      if (!fs::is_regular_file(path, error)) {
        return Fail(ErrorCode::kInvalidArgument,
                    fmt::format("{}:{}: artifact: there is no file {}", choice_.fleet,
                                serve.artifact->line, Quoted(path.string())));
      }
      words.insert(words.end(), {"--artifact", path.string()});
    }
    const bool synthetic = serve.engine == "synthetic";
    std::vector<workload::FleetTensor> inputs = serve.inputs;
    std::vector<workload::FleetTensor> outputs = serve.outputs;
    if (synthetic && inputs.empty()) inputs = {{.name = "input", .type = "FP32", .dims = {-1}}};
    if (synthetic && outputs.empty()) outputs = {{.name = "output", .type = "FP32", .dims = {1}}};
    for (const workload::FleetTensor& tensor : inputs) {
      words.insert(words.end(), {"--input", Dims(tensor)});
    }
    for (const workload::FleetTensor& tensor : outputs) {
      words.insert(words.end(), {"--output", Dims(tensor)});
    }
    return words;
  }

  const ServeChoice& choice_;
  const LoadedFleet& fleet_;
  const CandidatePlan& candidate_;
  int round_;
  MigInstances instances_;
  std::string worker_program_;
  std::uint64_t next_seed_ = 0;
};

}  // namespace

Result<ServePlan> PlanToServe(const ServeChoice& choice, int round) {
  const auto fleet = LoadFleet(choice.fleet);
  if (!fleet) return Fail(fleet.error());
  const std::string word = choice.plan.empty() ? (*fleet)->fleet.policy.planner : choice.plan;
  auto candidates = FindCandidates(**fleet, {word}, {}, {});
  if (!candidates) return Fail(candidates.error());
  if (candidates->plans.empty()) {
    return Fail(ErrorCode::kFailedPrecondition, fmt::format("no plan carries {}: {}", choice.fleet,
                                                            candidates->rejected.front().why));
  }
  const auto route =
      serving::ParseRoute(choice.route.empty() ? (*fleet)->fleet.policy.route : choice.route);
  if (!route) return Fail(route.error());
  ServePlan planned;
  planned.notes = (*fleet)->notes;
  planned.notes.insert(planned.notes.end(), candidates->notes.begin(), candidates->notes.end());
  auto setup = Layout(choice, **fleet, *candidates->plans.front(), round).Make();
  if (!setup) return Fail(setup.error());
  setup->route = *route;
  planned.setup = std::move(*setup);
  for (const workload::FleetModel& model : (*fleet)->fleet.models) {
    if (model.serve.url.empty() && model.serve.engine == "synthetic") {
      planned.notes.push_back(fmt::format(
          "{} is synthetic: its workers take the time that the profile says and compute nothing",
          model.name));
    }
  }
  return planned;
}

}  // namespace divvy::app
