#pragma once

#include <torch/script.h>

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "divvy_engine.h"

namespace divvy::torch_engine {

// What the command line or a client got wrong, as against what failed here.
struct BadInput : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A declared tensor, without the batch dimension.
struct Spec {
  std::string name;
  std::int32_t type;  // DIVVY_FP32, ...
  std::vector<std::int64_t> dims;
};

struct Settings {
  std::string artifact;
  std::string device;
  int max_batch = 1;  // 0: no batch dimension.
  int threads = 0;
  std::vector<Spec> inputs;
  std::vector<Spec> outputs;  // None: found by a trial run, and named output0, output1, ...
  // Options of the command line.
  bool optimize = true;  // optimize=off: neither frozen nor optimized.
  bool graphs = true;    // graphs=off: no CUDA graphs.
  // warmup=powers: only batches of powers of two before the first request, as a profile measures.
  bool warm_all = true;
  bool half = false;  // half=on: the weights are turned to FP16 after loading.
  // fusion=on: TorchScript compiles kernels of its own for the first dozen shapes that come. Which
  // shapes run by them hangs on their order: a profile, of powers of two, would measure others than
  // a server runs. Six models on an H200: off is as fast or faster for five, and of the sixth
  // for batches up to 16 (profiles/h200/README.md).
  bool fusion = false;

  // Throws BadInput for an unknown key or value.
  void Set(const std::string& key, const std::string& value);
};

// What runs a batch on a GPU with less ado than a plain call; where there is none, the plain call.
class GraphCache;

// A TorchScript module that has been loaded, optimized and warmed up. Everything throws: BadInput,
// c10::Error or std::exception. For one thread.
class Model {
 public:
  explicit Model(Settings settings);
  ~Model();

  const std::vector<Spec>& inputs() const { return settings_.inputs; }
  const std::vector<Spec>& outputs() const { return settings_.outputs; }

  // Runs a batch and hands its outputs to `sink`.
  void Run(const divvy_tensor* inputs, std::uint32_t count, divvy_sink& sink);

 private:
  void Load();
  void WarmUp();
  void NameOutputs(const std::vector<at::Tensor>& outputs);
  std::vector<at::Tensor> Forward(const std::vector<at::Tensor>& inputs);
  std::vector<at::Tensor> Compute(const std::vector<at::Tensor>& host);
  // Declared shapes with `items` in front; dimensions of any size are taken for 1.
  std::vector<std::int64_t> ShapeOf(const Spec& spec, std::int64_t items) const;

  Settings settings_;
  at::Device device_;
  torch::jit::Module module_;
  std::unique_ptr<GraphCache> graphs_;  // Null on the CPU.
};

}  // namespace divvy::torch_engine
