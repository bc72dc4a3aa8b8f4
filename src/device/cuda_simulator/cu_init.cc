#include <algorithm>
#include <iterator>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/symbols.h"

// Entry points that need no initialised driver.

namespace divvy::device::cuda_simulator {
namespace {

struct ErrorText {
  int code;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "an argument is not valid"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "not enough memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "the driver is not initialised"},
    {4, "CUDA_ERROR_DEINITIALIZED", "the driver has shut down"},
    {100, "CUDA_ERROR_NO_DEVICE", "there is no usable GPU"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "there is no GPU of that number"},
    {200, "CUDA_ERROR_INVALID_IMAGE", "the module can't be read"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "no context is current, or it is not valid"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "a handle is not valid"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the object is in no state for this"},
    {500, "CUDA_ERROR_NOT_FOUND", "nothing of that name"},
    {600, "CUDA_ERROR_NOT_READY", "not finished yet"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "the GPU used an address that is not mapped"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "the context was destroyed"},
    {712, "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "this memory is registered already"},
    {713, "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "this memory is not registered"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "a kernel failed"},
    {720, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "the grid does not fit on the GPU at once"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "not allowed here"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "this driver or GPU can't do it"},
    {807, "CUDA_ERROR_MPS_SERVER_NOT_READY", "MPS takes no client just now"},
    {810, "CUDA_ERROR_MPS_CLIENT_TERMINATED", "MPS ended this client"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "not allowed while a stream is captured"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "the capture was broken by an earlier error"},
    {902, "CUDA_ERROR_STREAM_CAPTURE_MERGE", "it would join two captures"},
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED", "the capture was not begun in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capture has branches that were not joined"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "it would depend on work outside the capture"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "the default stream would depend on a capture"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "the event was last recorded in a capture"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread"},
    {910, "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "the graphs differ too much for an update"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

cuda::Result TellError(cuda::Result error, const char** text, const char* ErrorText::* field) {
  if (text == nullptr) return cuda::kInvalidValue;
  const auto found = std::ranges::find(kErrors, static_cast<int>(error), &ErrorText::code);
  *text = found == std::end(kErrors) ? nullptr : (*found).*field;
  return *text == nullptr ? cuda::kInvalidValue : cuda::kSuccess;
}

}  // namespace

cuda::Result cuInit(unsigned flags) noexcept {
  Driver& driver = Driver::OfProcess();
  if (const auto result = driver.ApplyFaults("cuInit")) return result;
  if (flags != 0) return cuda::kInvalidValue;
  return driver.Initialise();
}

cuda::Result cuDriverGetVersion(int* version) noexcept {
  if (version == nullptr) return cuda::kInvalidValue;
  *version = Driver::OfProcess().version;
  return cuda::kSuccess;
}

cuda::Result cuGetErrorString(cuda::Result error, const char** text) noexcept {
  return TellError(error, text, &ErrorText::text);
}

cuda::Result cuGetErrorName(cuda::Result error, const char** text) noexcept {
  return TellError(error, text, &ErrorText::name);
}

cuda::Result cuGetProcAddress_v2(const char* name, void** address, int version, std::uint64_t flags,
                                 LookupStatus* status) noexcept {
  if (name == nullptr || address == nullptr || version < 0) return cuda::kInvalidValue;
  if (flags > cuda::kPerThreadDefaultStream)
    return cuda::kInvalidValue;  // 1 asks for the legacy one.
  const Lookup lookup = FindSymbol(name, version, flags == cuda::kPerThreadDefaultStream);
  *address = lookup.address;
  if (status != nullptr) *status = lookup.status;
  return lookup.status == kLookupFound ? cuda::kSuccess : cuda::kNotFound;
}

cuda::Result cuGetProcAddress(const char* name, void** address, int version,
                              std::uint64_t flags) noexcept {
  return cuGetProcAddress_v2(name, address, version, flags, nullptr);
}

cuda::Result cuGetExportTable(const void** table, const cuda::Uuid* id) noexcept {
  if (table == nullptr || id == nullptr) return cuda::kInvalidValue;
  // Private to NVIDIA's libraries; there is none of them here.
  *table = nullptr;
  return cuda::kNotFound;
}

}  // namespace divvy::device::cuda_simulator
