#include "graphs.h"

#include <c10/util/Exception.h>

#ifdef DIVVY_TORCH_CUDA

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <utility>

namespace divvy::torch_engine {
namespace {

// Graphs hold memory of their own. Fixed shapes need one each for batches of 1 to max; models
// with dimensions of any size would go on for ever.
constexpr std::size_t kMostGraphs = 128;
// Libraries choose their algorithms in the first runs of a shape, which must not be recorded.
constexpr int kRunsBefore = 3;

using Shapes = std::vector<std::vector<std::int64_t>>;

// What one shape of inputs needs.
struct Entry {
  std::vector<at::Tensor> staged;   // Pinned, in the host's memory.
  std::vector<at::Tensor> inputs;   // On the device, where the graph reads.
  std::vector<at::Tensor> outputs;  // On the device, where the graph writes.
  std::vector<at::Tensor> answers;  // Pinned.
  std::unique_ptr<at::cuda::CUDAGraph> graph;
};

// The line that says what went wrong: the interpreter's errors begin with where.
std::string Reason(const std::string& text) {
  const std::size_t at = text.find("RuntimeError: ");
  const std::size_t begin = at == std::string::npos ? 0 : at;
  return text.substr(begin, text.find('\n', begin) - begin);
}

at::Tensor Pinned(const at::Tensor& like) {
  return at::empty(like.sizes(), like.options().device(at::kCPU).pinned_memory(true));
}

}  // namespace

struct GraphCache::State {
  at::Device device;
  bool record;
  Forward forward;
  c10::cuda::CUDAStream stream;
  // One for all graphs: no two run at a time, and what one has computed is fetched before the next.
  decltype(at::cuda::graph_pool_handle()) memory = at::cuda::graph_pool_handle();
  std::map<Shapes, Entry> entries = {};
  Entry passing = {};  // For shapes beyond kMostGraphs.

  void Stage(Entry& entry, const std::vector<at::Tensor>& host) const {
    if (entry.staged.empty()) {
      for (const at::Tensor& tensor : host) {
        entry.staged.push_back(Pinned(tensor));
        entry.inputs.push_back(at::empty(tensor.sizes(), tensor.options().device(device)));
      }
    }
    for (std::size_t i = 0; i < host.size(); ++i) {
      entry.staged[i].copy_(host[i]);
      entry.inputs[i].copy_(entry.staged[i], /*non_blocking=*/true);
    }
  }

  void Record(Entry& entry) {
    for (int i = 0; i < kRunsBefore; ++i) entry.outputs = forward(entry.inputs);
    stream.synchronize();
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    try {
      graph->capture_begin(memory);
      entry.outputs = forward(entry.inputs);
      graph->capture_end();
      entry.graph = std::move(graph);
    } catch (const std::exception& error) {
      // Not worth a failure: the module waits for the GPU in its middle, or allocates by hand.
      std::fprintf(stderr, "divvy torch engine: runs without CUDA graphs: %s\n",
                   Reason(error.what()).c_str());
      try {
        graph->capture_end();  // Leaves the capture, whatever it thinks of it.
      } catch (const std::exception&) {
      }
      record = false;
    }
  }

  void Compute(Entry& entry) {
    if (!entry.graph && record) Record(entry);
    if (entry.graph) {
      entry.graph->replay();
    } else {
      entry.outputs = forward(entry.inputs);
    }
  }

  void Fetch(Entry& entry) const {
    entry.answers.resize(entry.outputs.size());
    for (std::size_t i = 0; i < entry.outputs.size(); ++i) {
      const at::Tensor output = entry.outputs[i].contiguous();
      at::Tensor& answer = entry.answers[i];
      if (!answer.defined() || answer.sizes() != output.sizes()) answer = Pinned(output);
      answer.copy_(output, /*non_blocking=*/true);
    }
    stream.synchronize();
  }
};

GraphCache::GraphCache(at::Device device, bool record, Forward forward) {
  const c10::cuda::CUDAGuard guard(device);
  state_ = std::make_unique<State>(
      State{device, record, std::move(forward),
            c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())});
}

GraphCache::~GraphCache() {
  try {
    const c10::cuda::CUDAGuard guard(state_->device);
    state_->stream.synchronize();
  } catch (const std::exception&) {
    // The GPU has failed, and whoever ran into that knows.
  }
}

std::vector<at::Tensor> GraphCache::Run(const std::vector<at::Tensor>& host) {
  const c10::cuda::CUDAStreamGuard guard(state_->stream);
  Shapes shapes;
  for (const at::Tensor& tensor : host) shapes.push_back(tensor.sizes().vec());
  auto found = state_->entries.find(shapes);
  if (found == state_->entries.end() && state_->record && state_->entries.size() < kMostGraphs) {
    found = state_->entries.try_emplace(std::move(shapes)).first;
  }
  const bool known = found != state_->entries.end();
  if (!known) state_->passing = {};
  Entry& entry = known ? found->second : state_->passing;
  state_->Stage(entry, host);
  if (known) {
    state_->Compute(entry);
  } else {
    entry.outputs = state_->forward(entry.inputs);
  }
  state_->Fetch(entry);
  return entry.answers;
}

}  // namespace divvy::torch_engine

#else

namespace divvy::torch_engine {

struct GraphCache::State {};

GraphCache::GraphCache(at::Device device, bool, Forward) {
  TORCH_CHECK(false, "device ", device, ": this engine was built without CUDA");
}
GraphCache::~GraphCache() = default;
std::vector<at::Tensor> GraphCache::Run(const std::vector<at::Tensor>& host) { return host; }

}  // namespace divvy::torch_engine

#endif
