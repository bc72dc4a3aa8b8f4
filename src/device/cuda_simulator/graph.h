#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "device/cuda_simulator/abi_more.h"
#include "device/cuda_simulator/state.h"

namespace divvy::device::cuda_simulator {

// A kernel with all it is launched with. Of the parameters only a duration is known.
struct KernelLaunch {
  cuda::Function function = nullptr;  // As the caller named it: may be a kernel.
  std::shared_ptr<const KernelCode> code;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned shared_bytes = 0;
  float parameter = 0;
  void* parameter_list[1] = {nullptr};  // For who asks; points at `parameter`.
};

struct Node {
  cuda::GraphNode handle = nullptr;
  GraphNodeType type = kNodeEmpty;
  std::vector<int> after;  // Nodes in front of it, by place.
  std::vector<Work> work;  // In this order.
  std::optional<KernelLaunch> kernel;
};

// A graph, its nodes in an order that respects what comes after what: a node can only be added
// behind nodes that are there. A launch runs them one by one in that order, branches too.
struct GraphState {
  std::vector<Node> nodes;
};

struct NodeState {
  std::shared_ptr<GraphState> graph;  // Shared with the handle of the graph, which may go first.
  int place = 0;
};

struct GraphExecState {
  GraphState graph;  // As it was when it was made, or last updated.
};

// A stream capture under way: what is being recorded, and where each stream that takes part stands.
struct Capture {
  std::uint64_t id = 0;
  cuda::CaptureMode mode = cuda::kCaptureGlobal;
  int thread = 0;  // That began it.
  std::weak_ptr<StreamState> origin;
  bool broken = false;
  bool ended = false;
  std::shared_ptr<GraphState> graph;
  cuda::Graph graph_handle = nullptr;
  bool made_graph = true;  // It was not there before.

  struct Front {
    std::weak_ptr<StreamState> stream;
    std::vector<int> last;                         // Its next node comes after these.
    mutable std::vector<cuda::GraphNode> handles;  // The same, for who asks.
  };
  std::vector<Front> fronts;

  Front* FrontOf(const StreamState& stream);
  // Whether all that other streams recorded lies in front of what the origin recorded last.
  bool IsJoined() const;
};

// Whether two graphs differ in nothing but the parameters of their nodes: 0, or which node does
// first.
struct GraphDifference {
  int result = kUpdateSuccess;
  int place = 0;
};
GraphDifference Compare(const GraphState& old_graph, const GraphState& new_graph);

}  // namespace divvy::device::cuda_simulator
