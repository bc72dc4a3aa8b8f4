#pragma once

#include <ATen/ATen.h>

#include <functional>
#include <memory>
#include <vector>

namespace divvy::torch_engine {

// Runs a module on a CUDA device: inputs through pinned staging buffers, on a stream of its own,
// and as a CUDA graph where the shapes have been seen before, which spares the launches of a run.
// Shapes are recorded as they come, up to a number; a module that cannot be recorded runs as it is.
//
// Throws c10::Error. For one thread.
class GraphCache {
 public:
  using Forward = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>&)>;

  // Throws where this engine was built without CUDA, or the device is not there.
  GraphCache(at::Device device, bool record, Forward forward);
  ~GraphCache();
  GraphCache(const GraphCache&) = delete;
  GraphCache& operator=(const GraphCache&) = delete;

  // `host`: tensors in the host's memory, used no longer when this returns. The outputs are in
  // pinned memory, contiguous, and good until the next call.
  std::vector<at::Tensor> Run(const std::vector<at::Tensor>& host);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace divvy::torch_engine
