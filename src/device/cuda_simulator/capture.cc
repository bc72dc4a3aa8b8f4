#include <unistd.h>

#include <algorithm>

#include "device/cuda_simulator/driver.h"
#include "device/cuda_simulator/thread_state.h"

// The driver's rules for streams that are captured.

namespace divvy::device::cuda_simulator {

cuda::Result Driver::Submit(std::unique_lock<std::mutex>& lock,
                            const std::shared_ptr<StreamState>& stream, Node node) {
  if (const auto result = CheckLegacy(*stream)) return result;
  const std::shared_ptr<Capture> capture = stream->capture;
  if (!capture) {
    engine->Enqueue(lock, stream, std::move(node.work));
    return stream->context->error;
  }
  if (capture->broken) return cuda::kStreamCaptureInvalidated;
  Capture::Front& front = *capture->FrontOf(*stream);
  const int place = static_cast<int>(capture->graph->nodes.size());
  node.after = front.last;
  node.handle = nodes.Add(std::make_shared<NodeState>(NodeState{capture->graph, place}));
  front.last = {place};
  capture->graph->nodes.push_back(std::move(node));
  return cuda::kSuccess;
}

cuda::Result Driver::CheckUnsafe() {
  const cuda::CaptureMode mode = thread_state.capture_mode;
  if (captures.empty() || mode == cuda::kCaptureRelaxed) return cuda::kSuccess;
  const int self = gettid();
  bool forbidden = false;
  for (const auto& capture : captures) {
    const bool own = capture->thread == self;
    const bool forbids =
        own ? capture->mode != cuda::kCaptureRelaxed
            : mode == cuda::kCaptureGlobal && capture->mode == cuda::kCaptureGlobal;
    if (!forbids) continue;
    forbidden = true;
    Break(*capture);
  }
  return forbidden ? cuda::kStreamCaptureUnsupported : cuda::kSuccess;
}

cuda::Result Driver::CheckNotCaptured(const StreamState& stream) {
  if (!stream.capture) return CheckLegacy(stream);
  Break(*stream.capture);
  return cuda::kStreamCaptureUnsupported;
}

cuda::Result Driver::CheckLegacy(const StreamState& stream, bool only_asks) {
  if (!stream.legacy || captures.empty()) return cuda::kSuccess;
  bool tied = false;
  for (const auto& capture : captures) {
    for (const Capture::Front& front : capture->fronts) {
      const auto other = front.stream.lock();
      if (!other || other->context != stream.context || !other->blocking()) continue;
      if (!only_asks) Break(*capture);
      tied = true;
    }
  }
  return tied ? cuda::kStreamCaptureImplicit : cuda::kSuccess;
}

void Driver::Break(Capture& capture) {
  if (!capture.broken) ++stats.captures_broken;
  capture.broken = true;
}

void Driver::EndCapture(const std::shared_ptr<Capture>& capture) {
  capture->ended = true;
  for (const Capture::Front& front : capture->fronts) {
    if (const auto stream = front.stream.lock()) stream->capture.reset();
  }
  std::erase(captures, capture);
}

}  // namespace divvy::device::cuda_simulator
