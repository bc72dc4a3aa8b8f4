#include <unistd.h>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"

// Capturing streams into graphs.

namespace divvy::device::cuda_simulator {
namespace {

cuda::CaptureStatus StatusOf(const StreamState& stream) {
  if (!stream.capture) return cuda::kCaptureNone;
  return stream.capture->broken ? cuda::kCaptureInvalidated : cuda::kCaptureActive;
}

// What a capture records into, and behind which of its nodes.
struct Target {
  std::shared_ptr<GraphState> graph;
  cuda::Graph handle;
  std::vector<int> after;
  bool is_new = false;
};

cuda::Result Begin(Call& call, const std::shared_ptr<StreamState>& stream, cuda::CaptureMode mode,
                   Target target) {
  if (mode < cuda::kCaptureGlobal || mode > cuda::kCaptureRelaxed) return cuda::kInvalidValue;
  if (stream->legacy) return cuda::kStreamCaptureUnsupported;
  if (stream->capture) return cuda::kIllegalState;
  auto capture = std::make_shared<Capture>();
  capture->id = call.driver.next_id++;
  capture->mode = mode;
  capture->thread = gettid();
  capture->origin = stream;
  capture->graph = std::move(target.graph);
  capture->graph_handle = target.handle;
  capture->made_graph = target.is_new;
  capture->fronts.push_back({stream, std::move(target.after), {}});
  stream->capture = capture;
  call.driver.captures.push_back(std::move(capture));
  return cuda::kSuccess;
}

// What cuStreamGetCaptureInfo tells in its forms; all but `status` may be null.
struct InfoWanted {
  cuda::CaptureStatus* status;
  std::uint64_t* id;
  cuda::Graph* graph;
  const cuda::GraphNode** dependencies;
  std::size_t* count;
};

cuda::Result GetInfo(const char* function, cuda::Stream handle, const InfoWanted& wanted) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    if (wanted.status == nullptr) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckLegacy(*stream, true)) return result;
    *wanted.status = StatusOf(*stream);
    if (*wanted.status != cuda::kCaptureActive) return cuda::kSuccess;
    Capture& capture = *stream->capture;
    if (wanted.id != nullptr) *wanted.id = capture.id;
    if (wanted.graph != nullptr) *wanted.graph = capture.graph_handle;
    const Capture::Front& front = *capture.FrontOf(*stream);
    front.handles.clear();
    for (const int place : front.last) front.handles.push_back(capture.graph->nodes[place].handle);
    if (wanted.dependencies != nullptr) *wanted.dependencies = front.handles.data();
    if (wanted.count != nullptr) *wanted.count = front.handles.size();
    return cuda::kSuccess;
  });
}

}  // namespace

cuda::Result cuThreadExchangeStreamCaptureMode(cuda::CaptureMode* mode) noexcept {
  return InDriver("cuThreadExchangeStreamCaptureMode", [&](Call&) {
    if (mode == nullptr || *mode < cuda::kCaptureGlobal || *mode > cuda::kCaptureRelaxed) {
      return cuda::kInvalidValue;
    }
    *mode = std::exchange(thread_state.capture_mode, *mode);
    return cuda::kSuccess;
  });
}

cuda::Result cuStreamBeginCapture_v2(cuda::Stream handle, cuda::CaptureMode mode) noexcept {
  return OnStream("cuStreamBeginCapture_v2", handle, [&](Call& call, const auto& stream) {
    const auto graph = std::make_shared<GraphState>();
    const cuda::Graph graph_handle = call.driver.graphs.Add(graph);
    const auto result = Begin(call, stream, mode, {graph, graph_handle, {}, true});
    if (result != cuda::kSuccess) call.driver.graphs.Remove(graph_handle);
    return result;
  });
}

cuda::Result cuStreamBeginCapture_v2_ptsz(cuda::Stream stream, cuda::CaptureMode mode) noexcept {
  return PerThread(cuStreamBeginCapture_v2, stream, mode);
}

// Before there were modes.
cuda::Result cuStreamBeginCapture(cuda::Stream stream) noexcept {
  return cuStreamBeginCapture_v2(stream, cuda::kCaptureGlobal);
}

cuda::Result cuStreamBeginCapture_ptsz(cuda::Stream stream) noexcept {
  return PerThread(cuStreamBeginCapture, stream);
}

cuda::Result cuStreamBeginCaptureToGraph(cuda::Stream handle, cuda::Graph graph,
                                         const cuda::GraphNode* dependencies, const void*,
                                         std::size_t count, cuda::CaptureMode mode) noexcept {
  return OnStream("cuStreamBeginCaptureToGraph", handle, [&](Call& call, const auto& stream) {
    Target target{call.driver.graphs.Find(graph), graph, {}, false};
    if (!target.graph || (dependencies == nullptr && count > 0)) return cuda::kInvalidValue;
    for (std::size_t i = 0; i < count; ++i) {
      const auto node = call.driver.nodes.Find(dependencies[i]);
      if (!node || node->graph != target.graph) return cuda::kInvalidValue;
      target.after.push_back(node->place);
    }
    return Begin(call, stream, mode, std::move(target));
  });
}

cuda::Result cuStreamBeginCaptureToGraph_ptsz(cuda::Stream stream, cuda::Graph graph,
                                              const cuda::GraphNode* dependencies,
                                              const void* edges, std::size_t count,
                                              cuda::CaptureMode mode) noexcept {
  return PerThread(cuStreamBeginCaptureToGraph, stream, graph, dependencies, edges, count, mode);
}

cuda::Result cuStreamEndCapture(cuda::Stream handle, cuda::Graph* graph) noexcept {
  return OnStream("cuStreamEndCapture", handle, [&](Call& call, const auto& stream) {
    if (graph == nullptr) return cuda::kInvalidValue;
    *graph = nullptr;
    const std::shared_ptr<Capture> capture = stream->capture;
    if (!capture) return cuda::kIllegalState;
    if (capture->origin.lock() != stream) {
      call.driver.Break(*capture);
      return cuda::kStreamCaptureUnmatched;
    }
    if (capture->mode != cuda::kCaptureRelaxed && capture->thread != gettid()) {
      call.driver.Break(*capture);
      return cuda::kStreamCaptureWrongThread;
    }
    const bool broken = capture->broken;
    const bool joined = capture->IsJoined();
    call.driver.EndCapture(capture);
    if (broken || !joined) {
      if (capture->made_graph) call.driver.graphs.Remove(capture->graph_handle);
      return broken ? cuda::kStreamCaptureInvalidated : cuda::kStreamCaptureUnjoined;
    }
    *graph = capture->graph_handle;
    return cuda::kSuccess;
  });
}

cuda::Result cuStreamEndCapture_ptsz(cuda::Stream stream, cuda::Graph* graph) noexcept {
  return PerThread(cuStreamEndCapture, stream, graph);
}

cuda::Result cuStreamIsCapturing(cuda::Stream handle, cuda::CaptureStatus* status) noexcept {
  return OnStream("cuStreamIsCapturing", handle, [&](Call& call, const auto& stream) {
    if (status == nullptr) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckLegacy(*stream, true)) return result;
    *status = StatusOf(*stream);
    return cuda::kSuccess;
  });
}

cuda::Result cuStreamIsCapturing_ptsz(cuda::Stream stream, cuda::CaptureStatus* status) noexcept {
  return PerThread(cuStreamIsCapturing, stream, status);
}

cuda::Result cuStreamGetCaptureInfo(cuda::Stream stream, cuda::CaptureStatus* status,
                                    std::uint64_t* id) noexcept {
  return GetInfo("cuStreamGetCaptureInfo", stream, {status, id, nullptr, nullptr, nullptr});
}

cuda::Result cuStreamGetCaptureInfo_ptsz(cuda::Stream stream, cuda::CaptureStatus* status,
                                         std::uint64_t* id) noexcept {
  return PerThread(cuStreamGetCaptureInfo, stream, status, id);
}

cuda::Result cuStreamGetCaptureInfo_v2(cuda::Stream stream, cuda::CaptureStatus* status,
                                       std::uint64_t* id, cuda::Graph* graph,
                                       const cuda::GraphNode** dependencies,
                                       std::size_t* count) noexcept {
  return GetInfo("cuStreamGetCaptureInfo_v2", stream, {status, id, graph, dependencies, count});
}

cuda::Result cuStreamGetCaptureInfo_v2_ptsz(cuda::Stream stream, cuda::CaptureStatus* status,
                                            std::uint64_t* id, cuda::Graph* graph,
                                            const cuda::GraphNode** dependencies,
                                            std::size_t* count) noexcept {
  return PerThread(cuStreamGetCaptureInfo_v2, stream, status, id, graph, dependencies, count);
}

cuda::Result cuStreamGetCaptureInfo_v3(cuda::Stream stream, cuda::CaptureStatus* status,
                                       std::uint64_t* id, cuda::Graph* graph,
                                       const cuda::GraphNode** dependencies, const void** edges,
                                       std::size_t* count) noexcept {
  if (edges != nullptr) *edges = nullptr;  // Plain edges only.
  return GetInfo("cuStreamGetCaptureInfo_v3", stream, {status, id, graph, dependencies, count});
}

cuda::Result cuStreamGetCaptureInfo_v3_ptsz(cuda::Stream stream, cuda::CaptureStatus* status,
                                            std::uint64_t* id, cuda::Graph* graph,
                                            const cuda::GraphNode** dependencies,
                                            const void** edges, std::size_t* count) noexcept {
  return PerThread(cuStreamGetCaptureInfo_v3, stream, status, id, graph, dependencies, edges,
                   count);
}

}  // namespace divvy::device::cuda_simulator
