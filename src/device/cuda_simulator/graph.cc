#include "device/cuda_simulator/graph.h"

#include <algorithm>

namespace divvy::device::cuda_simulator {

Capture::Front* Capture::FrontOf(const StreamState& stream) {
  for (Front& front : fronts) {
    if (front.stream.lock().get() == &stream) return &front;
  }
  return nullptr;
}

bool Capture::IsJoined() const {
  const auto begun = origin.lock();
  std::vector<bool> before(graph->nodes.size(), false);
  for (const Front& front : fronts) {
    if (front.stream.lock() != begun) continue;
    for (const int place : front.last) before[place] = true;
  }
  for (int place = static_cast<int>(before.size()) - 1; place >= 0; --place) {
    if (!before[place]) continue;
    for (const int earlier : graph->nodes[place].after) before[earlier] = true;
  }
  return std::ranges::all_of(fronts, [&](const Front& front) {
    return std::ranges::all_of(front.last, [&](int place) { return before[place]; });
  });
}

GraphDifference Compare(const GraphState& old_graph, const GraphState& new_graph) {
  const std::size_t count = std::min(old_graph.nodes.size(), new_graph.nodes.size());
  for (std::size_t i = 0; i < count; ++i) {
    const Node& before = old_graph.nodes[i];
    const Node& after = new_graph.nodes[i];
    if (before.type != after.type) return {kUpdateNodeTypeChanged, static_cast<int>(i)};
    if (before.after != after.after) return {kUpdateTopologyChanged, static_cast<int>(i)};
  }
  if (old_graph.nodes.size() != new_graph.nodes.size()) {
    return {kUpdateTopologyChanged, static_cast<int>(count) - 1};
  }
  return {};
}

}  // namespace divvy::device::cuda_simulator
