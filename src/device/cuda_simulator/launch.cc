#include "device/cuda_simulator/launch.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace divvy::device::cuda_simulator {
namespace {

constexpr std::uint64_t kMaxThreadsPerBlock = 1024;

std::uint64_t Product(const unsigned (&shape)[3]) {
  return std::uint64_t{shape[0]} * shape[1] * shape[2];
}

bool ReadParameter(const LaunchRequest& request, float& parameter) {
  if (request.parameters == nullptr || request.parameters[0] == nullptr) return false;
  std::memcpy(&parameter, request.parameters[0], sizeof(parameter));
  constexpr float kMost = 1e9F;
  return std::isfinite(parameter) && parameter >= 0 && parameter <= kMost;
}

// One that was left out is an error; what they say is not: kernels take any address.
bool ReadHold(const LaunchRequest& request, KernelRun& run) {
  constexpr int kCount = 3;
  if (request.parameters == nullptr) return false;
  for (int i = 0; i < kCount; ++i) {
    if (request.parameters[i] == nullptr) return false;
  }
  std::uint32_t nanoseconds = 0;
  std::memcpy(&run.word, request.parameters[0], sizeof(run.word));
  std::memcpy(&run.value, request.parameters[1], sizeof(run.value));
  std::memcpy(&nanoseconds, request.parameters[2], sizeof(nanoseconds));
  run.work = nanoseconds;
  run.is_hold = true;
  return true;
}

}  // namespace

int BlocksPerSm(const MachineSpec& spec, const KernelCode& code, unsigned threads) {
  if (threads == 0 || threads > kMaxThreadsPerBlock) return 0;
  const int by_threads = spec.threads_per_sm / static_cast<int>(threads);
  const int most = std::min(by_threads, spec.blocks_per_sm);
  return code.per_sm > 0 ? std::min(code.per_sm, most) : most;
}

cuda::Result MakeKernelNode(const Driver& driver, const ContextState& context,
                            const LaunchRequest& request, Node& node) {
  KernelLaunch launch;
  launch.function = request.function;
  launch.code = driver.FindCode(request.function);
  if (!launch.code) return cuda::kInvalidHandle;
  std::ranges::copy(request.grid, launch.grid);
  std::ranges::copy(request.block, launch.block);
  launch.shared_bytes = request.shared_bytes;
  const std::uint64_t blocks = Product(request.grid);
  const std::uint64_t threads = Product(request.block);
  if (blocks == 0 || threads == 0 || threads > kMaxThreadsPerBlock) return cuda::kInvalidValue;

  KernelRun run;
  run.gpu = context.gpu;
  run.work = launch.code->duration;
  if (launch.code->duration_is_parameter) {
    if (!ReadParameter(request, launch.parameter)) return cuda::kInvalidValue;
    run.work = static_cast<Nanos>(static_cast<double>(launch.parameter) * kMicrosecond);
  }
  if (launch.code->is_hold && !ReadHold(request, run)) return cuda::kInvalidValue;
  const MachineSpec& spec = driver.machine->spec();
  const auto per_sm =
      static_cast<std::uint64_t>(BlocksPerSm(spec, *launch.code, static_cast<unsigned>(threads)));
  const std::uint64_t sms = (blocks + per_sm - 1) / per_sm;
  run.wanted = static_cast<int>(std::min(sms, static_cast<std::uint64_t>(spec.sms)));

  node.type = kNodeKernel;
  node.work = {run};
  node.kernel = std::move(launch);
  return cuda::kSuccess;
}

}  // namespace divvy::device::cuda_simulator
