#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/launch.h"

// Launches of kernels.

namespace divvy::device::cuda_simulator {
namespace {

cuda::Result Launch(const char* function, cuda::Stream handle, const LaunchRequest& request,
                    bool cooperative) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    if (stream->context != call.context) return cuda::kInvalidHandle;
    Node node;
    if (const auto result = MakeKernelNode(call.driver, *call.context, request, node))
      return result;
    if (cooperative) {
      // All its blocks must be on the GPU at once.
      const auto& [x, y, z] = request.grid;
      const auto& block = request.block;
      const Machine& machine = *call.driver.machine;
      const int per_sm =
          BlocksPerSm(machine.spec(), *node.kernel->code, block[0] * block[1] * block[2]);
      const std::uint64_t room = static_cast<std::uint64_t>(machine.usable_sms()) * per_sm;
      if (std::uint64_t{x} * y * z > room) return kCooperativeLaunchTooLarge;
    }
    ++call.driver.stats.kernel_launches;
    return call.driver.Submit(call.lock, stream, std::move(node));
  });
}

}  // namespace

cuda::Result cuLaunchKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                            unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z,
                            unsigned shared_bytes, cuda::Stream stream, void** parameters,
                            void** extra) noexcept {
  return Launch("cuLaunchKernel", stream,
                {function,
                 {grid_x, grid_y, grid_z},
                 {block_x, block_y, block_z},
                 shared_bytes,
                 parameters,
                 extra},
                false);
}

cuda::Result cuLaunchKernel_ptsz(cuda::Function function, unsigned grid_x, unsigned grid_y,
                                 unsigned grid_z, unsigned block_x, unsigned block_y,
                                 unsigned block_z, unsigned shared_bytes, cuda::Stream stream,
                                 void** parameters, void** extra) noexcept {
  return PerThread(cuLaunchKernel, function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                   shared_bytes, stream, parameters, extra);
}

cuda::Result cuLaunchKernelEx(const cuda::LaunchConfig* config, cuda::Function function,
                              void** parameters, void** extra) noexcept {
  if (config == nullptr) return cuda::kInvalidValue;
  if (config->attributes == nullptr && config->attribute_count > 0) return cuda::kInvalidValue;
  return Launch("cuLaunchKernelEx", config->stream,
                {function,
                 {config->grid_x, config->grid_y, config->grid_z},
                 {config->block_x, config->block_y, config->block_z},
                 config->shared_bytes,
                 parameters,
                 extra},
                false);
}

cuda::Result cuLaunchKernelEx_ptsz(const cuda::LaunchConfig* config, cuda::Function function,
                                   void** parameters, void** extra) noexcept {
  return PerThread(cuLaunchKernelEx, config, function, parameters, extra);
}

cuda::Result cuLaunchCooperativeKernel(cuda::Function function, unsigned grid_x, unsigned grid_y,
                                       unsigned grid_z, unsigned block_x, unsigned block_y,
                                       unsigned block_z, unsigned shared_bytes, cuda::Stream stream,
                                       void** parameters) noexcept {
  return Launch("cuLaunchCooperativeKernel", stream,
                {function,
                 {grid_x, grid_y, grid_z},
                 {block_x, block_y, block_z},
                 shared_bytes,
                 parameters,
                 nullptr},
                true);
}

cuda::Result cuLaunchCooperativeKernel_ptsz(cuda::Function function, unsigned grid_x,
                                            unsigned grid_y, unsigned grid_z, unsigned block_x,
                                            unsigned block_y, unsigned block_z,
                                            unsigned shared_bytes, cuda::Stream stream,
                                            void** parameters) noexcept {
  return PerThread(cuLaunchCooperativeKernel, function, grid_x, grid_y, grid_z, block_x, block_y,
                   block_z, shared_bytes, stream, parameters);
}

}  // namespace divvy::device::cuda_simulator
