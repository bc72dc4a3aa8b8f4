#include <algorithm>
#include <optional>
#include <vector>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"

// Waits for values in memory, and writes of them, in the order of a stream. In a capture the driver
// makes them a node of memory operations, so that a graph waits at each of its launches; so do we.

namespace divvy::device::cuda_simulator {
namespace {

constexpr unsigned kFlush = 1U << 30;  // Of a wait: make remote writes visible. Ours are.
constexpr unsigned kMostOperations = 256;

std::optional<Work> ToWork(const cuda::MemOp& operation) {
  const auto& value = operation.value;
  const bool wide = operation.type == cuda::kMemOpWait64 || operation.type == cuda::kMemOpWrite64;
  if (operation.type == cuda::kMemOpWait32 || operation.type == cuda::kMemOpWait64) {
    const unsigned condition = value.flags & ~kFlush;
    if (condition > cuda::kWaitValueNor) return std::nullopt;
    return ValueWait{value.address, value.value, condition, wide, 0};
  }
  if (operation.type == cuda::kMemOpWrite32 || operation.type == cuda::kMemOpWrite64) {
    constexpr unsigned kNoBarrier = 1;
    if (value.flags > kNoBarrier) return std::nullopt;
    return ValueWrite{value.address, value.value, wide};
  }
  return std::nullopt;
}

cuda::Result SubmitAll(Call& call, const std::shared_ptr<StreamState>& stream,
                       const cuda::MemOp* operations, unsigned count) {
  if (stream->context != call.context) return cuda::kInvalidHandle;
  Node node;
  node.type = kNodeMemOp;
  for (const cuda::MemOp* each = operations; each != operations + count; ++each) {
    if (each->type == cuda::kMemOpFlush) continue;
    auto work = ToWork(*each);
    if (!work) return cuda::kInvalidValue;
    const bool wide = each->type == cuda::kMemOpWait64 || each->type == cuda::kMemOpWrite64;
    const std::size_t size = wide ? 8 : 4;
    const cuda::DevicePointer address = each->value.address;
    if (address % size != 0 || !call.driver.memory.Holds(address, size)) return cuda::kInvalidValue;
    node.work.push_back(std::move(*work));
  }
  return call.driver.Submit(call.lock, stream, std::move(node));
}

cuda::Result SubmitOne(const char* function, cuda::Stream handle, cuda::MemOpType type,
                       cuda::DevicePointer address, std::uint64_t value, unsigned flags) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    cuda::MemOp operation{};
    operation.value = {type, address, value, flags, 0};
    return SubmitAll(call, stream, &operation, 1);
  });
}

cuda::Result SubmitBatch(const char* function, cuda::Stream handle, unsigned count,
                         const cuda::MemOp* operations) {
  return OnStream(function, handle, [&](Call& call, const auto& stream) {
    if (count > kMostOperations || (operations == nullptr && count > 0)) return cuda::kInvalidValue;
    return SubmitAll(call, stream, operations, count);
  });
}

}  // namespace

cuda::Result cuStreamWaitValue32(cuda::Stream stream, cuda::DevicePointer address,
                                 std::uint32_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWaitValue32", stream, cuda::kMemOpWait32, address, value, flags);
}

cuda::Result cuStreamWaitValue32_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                      std::uint32_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWaitValue32, stream, address, value, flags);
}

cuda::Result cuStreamWaitValue32_v2(cuda::Stream stream, cuda::DevicePointer address,
                                    std::uint32_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWaitValue32_v2", stream, cuda::kMemOpWait32, address, value, flags);
}

cuda::Result cuStreamWaitValue32_v2_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                         std::uint32_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWaitValue32_v2, stream, address, value, flags);
}

cuda::Result cuStreamWriteValue32(cuda::Stream stream, cuda::DevicePointer address,
                                  std::uint32_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWriteValue32", stream, cuda::kMemOpWrite32, address, value, flags);
}

cuda::Result cuStreamWriteValue32_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                       std::uint32_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWriteValue32, stream, address, value, flags);
}

cuda::Result cuStreamWriteValue32_v2(cuda::Stream stream, cuda::DevicePointer address,
                                     std::uint32_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWriteValue32_v2", stream, cuda::kMemOpWrite32, address, value, flags);
}

cuda::Result cuStreamWriteValue32_v2_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                          std::uint32_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWriteValue32_v2, stream, address, value, flags);
}

cuda::Result cuStreamWaitValue64(cuda::Stream stream, cuda::DevicePointer address,
                                 std::uint64_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWaitValue64", stream, cuda::kMemOpWait64, address, value, flags);
}

cuda::Result cuStreamWaitValue64_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                      std::uint64_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWaitValue64, stream, address, value, flags);
}

cuda::Result cuStreamWaitValue64_v2(cuda::Stream stream, cuda::DevicePointer address,
                                    std::uint64_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWaitValue64_v2", stream, cuda::kMemOpWait64, address, value, flags);
}

cuda::Result cuStreamWaitValue64_v2_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                         std::uint64_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWaitValue64_v2, stream, address, value, flags);
}

cuda::Result cuStreamWriteValue64(cuda::Stream stream, cuda::DevicePointer address,
                                  std::uint64_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWriteValue64", stream, cuda::kMemOpWrite64, address, value, flags);
}

cuda::Result cuStreamWriteValue64_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                       std::uint64_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWriteValue64, stream, address, value, flags);
}

cuda::Result cuStreamWriteValue64_v2(cuda::Stream stream, cuda::DevicePointer address,
                                     std::uint64_t value, unsigned flags) noexcept {
  return SubmitOne("cuStreamWriteValue64_v2", stream, cuda::kMemOpWrite64, address, value, flags);
}

cuda::Result cuStreamWriteValue64_v2_ptsz(cuda::Stream stream, cuda::DevicePointer address,
                                          std::uint64_t value, unsigned flags) noexcept {
  return PerThread(cuStreamWriteValue64_v2, stream, address, value, flags);
}

cuda::Result cuStreamBatchMemOp(cuda::Stream stream, unsigned count, cuda::MemOp* operations,
                                unsigned) noexcept {
  return SubmitBatch("cuStreamBatchMemOp", stream, count, operations);
}

cuda::Result cuStreamBatchMemOp_ptsz(cuda::Stream stream, unsigned count, cuda::MemOp* operations,
                                     unsigned flags) noexcept {
  return PerThread(cuStreamBatchMemOp, stream, count, operations, flags);
}

cuda::Result cuStreamBatchMemOp_v2(cuda::Stream stream, unsigned count, cuda::MemOp* operations,
                                   unsigned) noexcept {
  return SubmitBatch("cuStreamBatchMemOp_v2", stream, count, operations);
}

cuda::Result cuStreamBatchMemOp_v2_ptsz(cuda::Stream stream, unsigned count,
                                        cuda::MemOp* operations, unsigned flags) noexcept {
  return PerThread(cuStreamBatchMemOp_v2, stream, count, operations, flags);
}

}  // namespace divvy::device::cuda_simulator
