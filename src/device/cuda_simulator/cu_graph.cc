#include <algorithm>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/launch.h"

// Graphs: made by captures or node by node, instantiated, changed and launched.

namespace divvy::device::cuda_simulator {
namespace {

LaunchRequest ToRequest(const cuda::KernelNodeParams& params) {
  // Later drivers take the kernel where there is no function.
  const cuda::Function function = params.function != nullptr
                                      ? params.function
                                      : reinterpret_cast<cuda::Function>(params.kernel);
  return {function,
          {params.grid_x, params.grid_y, params.grid_z},
          {params.block_x, params.block_y, params.block_z},
          params.shared_bytes,
          params.parameters,
          params.extra};
}

// What the two forms of kernel parameters have in common. The parameters' addresses point into the
// node, and are good as long as its graph is unchanged.
template <typename Params>
cuda::Result TellKernel(Call& call, cuda::GraphNode handle, Params* params) {
  if (params == nullptr) return cuda::kInvalidValue;
  const auto found = call.driver.nodes.Find(handle);
  if (!found) return cuda::kInvalidHandle;
  Node& node = found->graph->nodes[found->place];
  if (node.type != kNodeKernel) return cuda::kInvalidValue;
  KernelLaunch& launch = *node.kernel;
  *params = {};
  params->function = launch.function;
  params->grid_x = launch.grid[0];
  params->grid_y = launch.grid[1];
  params->grid_z = launch.grid[2];
  params->block_x = launch.block[0];
  params->block_y = launch.block[1];
  params->block_z = launch.block[2];
  params->shared_bytes = launch.shared_bytes;
  if (launch.code->duration_is_parameter) {
    launch.parameter_list[0] = &launch.parameter;
    params->parameters = launch.parameter_list;
  }
  return cuda::kSuccess;
}

cuda::Result Instantiate(const char* function, cuda::GraphExec* exec, cuda::Graph handle) {
  return InContext(function, [&](Call& call) {
    if (exec == nullptr) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    const auto graph = call.driver.graphs.Find(handle);
    if (!graph) return cuda::kInvalidValue;
    auto state = std::make_shared<GraphExecState>();
    state->graph = *graph;
    *exec = call.driver.graph_execs.Add(std::move(state));
    return cuda::kSuccess;
  });
}

// Puts the nodes of `graph` in place of those of the instantiated one, if they are alike.
cuda::Result Update(Call& call, cuda::GraphExec exec_handle, cuda::Graph handle,
                    GraphUpdateInfo& info) {
  const auto exec = call.driver.graph_execs.Find(exec_handle);
  const auto graph = call.driver.graphs.Find(handle);
  if (!exec || !graph) return cuda::kInvalidValue;
  const GraphDifference difference = Compare(exec->graph, *graph);
  info = {difference.result, nullptr, nullptr};
  if (difference.result != kUpdateSuccess) {
    if (difference.place < static_cast<int>(graph->nodes.size()) && difference.place >= 0) {
      info.error_node = graph->nodes[difference.place].handle;
    }
    return kGraphExecUpdateFailure;
  }
  exec->graph = *graph;
  return cuda::kSuccess;
}

}  // namespace

cuda::Result cuGraphCreate(cuda::Graph* graph, unsigned flags) noexcept {
  return InDriver("cuGraphCreate", [&](Call& call) {
    if (graph == nullptr || flags != 0) return cuda::kInvalidValue;
    *graph = call.driver.graphs.Add(std::make_shared<GraphState>());
    return cuda::kSuccess;
  });
}

cuda::Result cuGraphDestroy(cuda::Graph handle) noexcept {
  return InDriver("cuGraphDestroy", [&](Call& call) {
    const auto graph = call.driver.graphs.Find(handle);
    if (!graph) return cuda::kInvalidValue;
    for (const Node& node : graph->nodes) call.driver.nodes.Remove(node.handle);
    call.driver.graphs.Remove(handle);
    return cuda::kSuccess;
  });
}

cuda::Result cuGraphAddKernelNode_v2(cuda::GraphNode* node, cuda::Graph handle,
                                     const cuda::GraphNode* dependencies, std::size_t count,
                                     const cuda::KernelNodeParams* params) noexcept {
  return InContext("cuGraphAddKernelNode_v2", [&](Call& call) {
    const auto graph = call.driver.graphs.Find(handle);
    if (node == nullptr || !graph || params == nullptr) return cuda::kInvalidValue;
    if (dependencies == nullptr && count > 0) return cuda::kInvalidValue;
    Node made;
    for (std::size_t i = 0; i < count; ++i) {
      const auto before = call.driver.nodes.Find(dependencies[i]);
      if (!before || before->graph != graph) return cuda::kInvalidValue;
      made.after.push_back(before->place);
    }
    const auto result = MakeKernelNode(call.driver, *call.context, ToRequest(*params), made);
    if (result != cuda::kSuccess) return result;
    const int place = static_cast<int>(graph->nodes.size());
    made.handle = call.driver.nodes.Add(std::make_shared<NodeState>(NodeState{graph, place}));
    *node = made.handle;
    graph->nodes.push_back(std::move(made));
    return cuda::kSuccess;
  });
}

cuda::Result cuGraphGetNodes(cuda::Graph handle, cuda::GraphNode* nodes,
                             std::size_t* count) noexcept {
  return InDriver("cuGraphGetNodes", [&](Call& call) {
    const auto graph = call.driver.graphs.Find(handle);
    if (!graph || count == nullptr) return cuda::kInvalidValue;
    if (nodes == nullptr) {
      *count = graph->nodes.size();
      return cuda::kSuccess;
    }
    for (std::size_t i = 0; i < *count; ++i) {
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].handle : nullptr;
    }
    *count = std::min(*count, graph->nodes.size());
    return cuda::kSuccess;
  });
}

cuda::Result cuGraphNodeGetType(cuda::GraphNode handle, GraphNodeType* type) noexcept {
  return InDriver("cuGraphNodeGetType", [&](Call& call) {
    const auto node = call.driver.nodes.Find(handle);
    if (!node || type == nullptr) return cuda::kInvalidValue;
    *type = node->graph->nodes[node->place].type;
    return cuda::kSuccess;
  });
}

cuda::Result cuGraphKernelNodeGetParams(cuda::GraphNode node, KernelNodeParamsV1* params) noexcept {
  return InDriver("cuGraphKernelNodeGetParams",
                  [&](Call& call) { return TellKernel(call, node, params); });
}

cuda::Result cuGraphKernelNodeGetParams_v2(cuda::GraphNode node,
                                           cuda::KernelNodeParams* params) noexcept {
  return InDriver("cuGraphKernelNodeGetParams_v2",
                  [&](Call& call) { return TellKernel(call, node, params); });
}

cuda::Result cuGraphInstantiate(cuda::GraphExec* exec, cuda::Graph graph,
                                cuda::GraphNode* error_node, char* log,
                                std::size_t log_size) noexcept {
  return cuGraphInstantiate_v2(exec, graph, error_node, log, log_size);
}

cuda::Result cuGraphInstantiate_v2(cuda::GraphExec* exec, cuda::Graph graph,
                                   cuda::GraphNode* error_node, char*, std::size_t) noexcept {
  if (error_node != nullptr) *error_node = nullptr;
  return Instantiate("cuGraphInstantiate_v2", exec, graph);
}

cuda::Result cuGraphInstantiateWithFlags(cuda::GraphExec* exec, cuda::Graph graph,
                                         unsigned long long) noexcept {
  return Instantiate("cuGraphInstantiateWithFlags", exec, graph);
}

cuda::Result cuGraphInstantiateWithParams(cuda::GraphExec* exec, cuda::Graph graph,
                                          GraphInstantiateParams* params) noexcept {
  if (params == nullptr) return cuda::kInvalidValue;
  const auto result = Instantiate("cuGraphInstantiateWithParams", exec, graph);
  params->error_node = nullptr;
  params->result = result == cuda::kSuccess ? 0 : 1;
  return result;
}

cuda::Result cuGraphInstantiateWithParams_ptsz(cuda::GraphExec* exec, cuda::Graph graph,
                                               GraphInstantiateParams* params) noexcept {
  return PerThread(cuGraphInstantiateWithParams, exec, graph, params);
}

cuda::Result cuGraphExecDestroy(cuda::GraphExec exec) noexcept {
  return InDriver("cuGraphExecDestroy", [&](Call& call) {
    return call.driver.graph_execs.Remove(exec) ? cuda::kSuccess : cuda::kInvalidValue;
  });
}

cuda::Result cuGraphExecUpdate(cuda::GraphExec exec, cuda::Graph graph, cuda::GraphNode* error_node,
                               int* update_result) noexcept {
  return InDriver("cuGraphExecUpdate", [&](Call& call) {
    GraphUpdateInfo info{};
    const auto result = Update(call, exec, graph, info);
    if (error_node != nullptr) *error_node = info.error_node;
    if (update_result != nullptr) *update_result = info.result;
    return result;
  });
}

cuda::Result cuGraphExecUpdate_v2(cuda::GraphExec exec, cuda::Graph graph,
                                  GraphUpdateInfo* info) noexcept {
  return InDriver("cuGraphExecUpdate_v2", [&](Call& call) {
    if (info == nullptr) return cuda::kInvalidValue;
    return Update(call, exec, graph, *info);
  });
}

cuda::Result cuGraphExecKernelNodeSetParams_v2(cuda::GraphExec exec_handle, cuda::GraphNode handle,
                                               const cuda::KernelNodeParams* params) noexcept {
  return InContext("cuGraphExecKernelNodeSetParams_v2", [&](Call& call) {
    const auto exec = call.driver.graph_execs.Find(exec_handle);
    const auto found = call.driver.nodes.Find(handle);
    if (!exec || !found || params == nullptr) return cuda::kInvalidValue;
    // Nodes are named by the graph that the instantiated one was made of.
    if (found->place >= static_cast<int>(exec->graph.nodes.size())) return cuda::kInvalidValue;
    Node& node = exec->graph.nodes[found->place];
    if (node.handle != handle || node.type != kNodeKernel) return cuda::kInvalidValue;
    return MakeKernelNode(call.driver, *call.context, ToRequest(*params), node);
  });
}

cuda::Result cuGraphLaunch(cuda::GraphExec exec_handle, cuda::Stream handle) noexcept {
  return OnStream("cuGraphLaunch", handle, [&](Call& call, const auto& stream) {
    const auto exec = call.driver.graph_execs.Find(exec_handle);
    if (!exec) return cuda::kInvalidValue;
    if (stream->context != call.context) return cuda::kInvalidHandle;
    ++call.driver.stats.graph_launches;
    // In a capture, where the driver makes one node of it, ours are copied.
    Node whole;
    for (const Node& node : exec->graph.nodes) {
      if (stream->capture) {
        const auto result = call.driver.Submit(call.lock, stream, node);
        if (result != cuda::kSuccess) return result;
      } else {
        whole.work.insert(whole.work.end(), node.work.begin(), node.work.end());
      }
    }
    if (stream->capture) return cuda::kSuccess;
    return call.driver.Submit(call.lock, stream, std::move(whole));
  });
}

cuda::Result cuGraphLaunch_ptsz(cuda::GraphExec exec, cuda::Stream stream) noexcept {
  return PerThread(cuGraphLaunch, exec, stream);
}

cuda::Result cuGraphUpload(cuda::GraphExec exec, cuda::Stream handle) noexcept {
  return OnStream("cuGraphUpload", handle, [&](Call& call, const auto&) {
    return call.driver.graph_execs.Find(exec) ? cuda::kSuccess : cuda::kInvalidValue;
  });
}

cuda::Result cuGraphUpload_ptsz(cuda::GraphExec exec, cuda::Stream stream) noexcept {
  return PerThread(cuGraphUpload, exec, stream);
}

}  // namespace divvy::device::cuda_simulator
