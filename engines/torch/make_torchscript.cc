// Writes small TorchScript models, for demonstrations and tests: weights are random, from a fixed
// seed.

#include <torch/script.h>

#include <cstdio>
#include <exception>
#include <string>

namespace {

at::Tensor Weights(at::IntArrayRef shape, double scale) { return at::randn(shape) * scale; }

// x: FP32 [batch, 64] -> y: FP32 [batch, 10].
torch::jit::Module Mlp() {
  torch::jit::Module module("mlp");
  module.register_parameter("w1", Weights({64, 256}, 0.1), false);
  module.register_parameter("w2", Weights({256, 10}, 0.05), false);
  module.define(R"(
def forward(self, x):
    return torch.softmax(torch.matmul(torch.relu(torch.matmul(x, self.w1)), self.w2), 1)
)");
  return module;
}

// image: FP32 [batch, 3, 32, 32] -> classes: FP32 [batch, 10], and features: FP32 [batch, 32].
torch::jit::Module Conv() {
  torch::jit::Module module("conv");
  module.register_parameter("c1", Weights({16, 3, 3, 3}, 0.2), false);
  module.register_parameter("c2", Weights({32, 16, 3, 3}, 0.1), false);
  module.register_parameter("w", Weights({32, 10}, 0.2), false);
  module.define(R"(
def forward(self, image):
    a = torch.relu(torch.conv2d(image, self.c1, None, [2, 2], [1, 1]))
    b = torch.relu(torch.conv2d(a, self.c2, None, [2, 2], [1, 1]))
    features = torch.mean(b, [2, 3])
    return torch.matmul(features, self.w), features
)");
  return module;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string kind = argc == 3 ? argv[2] : "";
  if (kind != "mlp" && kind != "conv") {
    std::fprintf(stderr,
                 "usage: divvy-make-torchscript OUT.pt mlp|conv\n"
                 "  mlp   --input x:FP32:64 --output y:FP32:10\n"
                 "  conv  --input image:FP32:3,32,32 --output classes:FP32:10 "
                 "--output features:FP32:32\n");
    return 2;
  }
  try {
    at::manual_seed(1);
    (kind == "mlp" ? Mlp() : Conv()).save(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "divvy-make-torchscript: %s\n", error.what());
    return 1;
  }
  return 0;
}
