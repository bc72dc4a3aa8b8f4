#include <algorithm>
#include <cstdio>

#include "device/cuda_simulator/call.h"
#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/kernel_code.h"
#include "device/cuda_simulator/launch.h"

// Modules and libraries, and the functions and kernels in them. What is loaded is the text that
// kernel_code.h describes.

namespace divvy::device::cuda_simulator {
namespace {

std::shared_ptr<ModuleState> Load(const void* image) {
  auto parsed = ParseKernels(static_cast<const char*>(image));
  if (!parsed) {
    std::fprintf(stderr, "simulated libcuda.so.1: %s\n", parsed.error().message.c_str());
    return nullptr;
  }
  auto module = std::make_shared<ModuleState>();
  for (KernelCode& code : *parsed) {
    module->kernels.push_back(std::make_shared<const KernelCode>(std::move(code)));
  }
  return module;
}

std::shared_ptr<const KernelCode> FindKernel(const ModuleState& module, const char* name) {
  for (const auto& code : module.kernels) {
    if (code->name == name) return code;
  }
  return nullptr;
}

cuda::Result LoadModule(const char* function, cuda::Module* module, const void* image) {
  return InContext(function, [&](Call& call) {
    if (module == nullptr || image == nullptr) return cuda::kInvalidValue;
    if (const auto result = call.driver.CheckUnsafe()) return result;
    auto loaded = Load(image);
    if (!loaded) return cuda::kInvalidImage;
    loaded->context = call.context;
    *module = call.driver.modules.Add(std::move(loaded));
    return cuda::kSuccess;
  });
}

}  // namespace

cuda::Result cuModuleLoadData(cuda::Module* module, const void* image) noexcept {
  return LoadModule("cuModuleLoadData", module, image);
}

cuda::Result cuModuleLoadDataEx(cuda::Module* module, const void* image, unsigned, void*,
                                void**) noexcept {
  return LoadModule("cuModuleLoadDataEx", module, image);
}

cuda::Result cuModuleUnload(cuda::Module module) noexcept {
  return InContext("cuModuleUnload", [&](Call& call) {
    if (!call.driver.modules.Remove(module)) return cuda::kInvalidHandle;
    call.driver.functions.RemoveIf(
        [&](const FunctionState& function) { return function.module == module; });
    return cuda::kSuccess;
  });
}

cuda::Result cuModuleGetFunction(cuda::Function* function, cuda::Module handle,
                                 const char* name) noexcept {
  return InContext("cuModuleGetFunction", [&](Call& call) {
    if (function == nullptr || name == nullptr) return cuda::kInvalidValue;
    const auto module = call.driver.modules.Find(handle);
    if (!module) return cuda::kInvalidHandle;
    auto code = FindKernel(*module, name);
    if (!code) return cuda::kNotFound;
    // The same function has one handle, however often it is asked for.
    for (const auto& [number, known] : call.driver.functions.objects()) {
      if (known->code != code) continue;
      *function = reinterpret_cast<cuda::Function>(number);
      return cuda::kSuccess;
    }
    *function = call.driver.functions.Add(
        std::make_shared<FunctionState>(FunctionState{std::move(code), handle}));
    return cuda::kSuccess;
  });
}

cuda::Result cuLibraryLoadData(cuda::Library* library, const void* code, void*, void**, unsigned,
                               void*, void**, unsigned) noexcept {
  return InDriver("cuLibraryLoadData", [&](Call& call) {
    if (library == nullptr || code == nullptr) return cuda::kInvalidValue;
    auto loaded = Load(code);
    if (!loaded) return cuda::kInvalidImage;
    *library = call.driver.libraries.Add(std::move(loaded));
    return cuda::kSuccess;
  });
}

cuda::Result cuLibraryUnload(cuda::Library library) noexcept {
  return InDriver("cuLibraryUnload", [&](Call& call) {
    const auto loaded = call.driver.libraries.Find(library);
    if (!loaded) return cuda::kInvalidHandle;
    call.driver.kernels.RemoveIf([&](const KernelState& kernel) {
      if (std::ranges::find(loaded->kernels, kernel.code) == loaded->kernels.end()) return false;
      call.driver.functions.Remove(kernel.function);
      return true;
    });
    call.driver.libraries.Remove(library);
    return cuda::kSuccess;
  });
}

cuda::Result cuLibraryGetKernel(cuda::Kernel* kernel, cuda::Library handle,
                                const char* name) noexcept {
  return InDriver("cuLibraryGetKernel", [&](Call& call) {
    if (kernel == nullptr || name == nullptr) return cuda::kInvalidValue;
    const auto library = call.driver.libraries.Find(handle);
    if (!library) return cuda::kInvalidHandle;
    auto code = FindKernel(*library, name);
    if (!code) return cuda::kNotFound;
    for (const auto& [number, known] : call.driver.kernels.objects()) {
      if (known->code != code) continue;
      *kernel = reinterpret_cast<cuda::Kernel>(number);
      return cuda::kSuccess;
    }
    *kernel = call.driver.kernels.Add(
        std::make_shared<KernelState>(KernelState{std::move(code), nullptr}));
    return cuda::kSuccess;
  });
}

cuda::Result cuKernelGetFunction(cuda::Function* function, cuda::Kernel handle) noexcept {
  return InContext("cuKernelGetFunction", [&](Call& call) {
    const auto kernel = call.driver.kernels.Find(handle);
    if (function == nullptr) return cuda::kInvalidValue;
    if (!kernel) return cuda::kInvalidHandle;
    if (kernel->function == nullptr) {
      kernel->function = call.driver.functions.Add(
          std::make_shared<FunctionState>(FunctionState{kernel->code, nullptr}));
    }
    *function = kernel->function;
    return cuda::kSuccess;
  });
}

// Which of the two names a handle has is for the caller to know: a kernel that passes for a
// function in a launch does not do so here.
cuda::Result cuKernelGetName(const char** name, cuda::Kernel handle) noexcept {
  return InDriver("cuKernelGetName", [&](Call& call) {
    if (name == nullptr) return cuda::kInvalidValue;
    const auto kernel = call.driver.kernels.Find(handle);
    if (!kernel) return cuda::kInvalidHandle;
    *name = kernel->code->name.c_str();
    return cuda::kSuccess;
  });
}

cuda::Result cuFuncGetName(const char** name, cuda::Function handle) noexcept {
  return InDriver("cuFuncGetName", [&](Call& call) {
    if (name == nullptr) return cuda::kInvalidValue;
    const auto function = call.driver.functions.Find(handle);
    if (!function) return cuda::kInvalidHandle;
    *name = function->code->name.c_str();
    return cuda::kSuccess;
  });
}

cuda::Result cuFuncGetModule(cuda::Module* module, cuda::Function handle) noexcept {
  return InDriver("cuFuncGetModule", [&](Call& call) {
    if (module == nullptr) return cuda::kInvalidValue;
    const auto function = call.driver.functions.Find(handle);
    if (!function) return cuda::kInvalidHandle;
    *module = function->module;
    return cuda::kSuccess;
  });
}

cuda::Result cuFuncGetAttribute(int* value, int attribute, cuda::Function function) noexcept {
  return InContext("cuFuncGetAttribute", [&](Call& call) {
    if (value == nullptr || attribute < 0 || attribute >= kFunctionAttributes) {
      return cuda::kInvalidValue;
    }
    if (!call.driver.FindCode(function)) return cuda::kInvalidHandle;
    switch (attribute) {
      case kFunctionMaxThreads:
        *value = 1024;
        break;
      case kFunctionRegisters:
        *value = 32;
        break;
      case kFunctionPtxVersion:
      case kFunctionBinaryVersion:
        *value = 90;
        break;
      case kFunctionMaxDynamicShared:
        *value = 48 << 10;
        break;
      default:
        *value = 0;
    }
    return cuda::kSuccess;
  });
}

cuda::Result cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks,
                                                                  cuda::Function function,
                                                                  int block_size, std::size_t,
                                                                  unsigned) noexcept {
  return InContext("cuOccupancyMaxActiveBlocksPerMultiprocessor", [&](Call& call) {
    if (blocks == nullptr || block_size <= 0) return cuda::kInvalidValue;
    const auto code = call.driver.FindCode(function);
    if (!code) return cuda::kInvalidHandle;
    *blocks = BlocksPerSm(call.driver.machine->spec(), *code, static_cast<unsigned>(block_size));
    return cuda::kSuccess;
  });
}

cuda::Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, cuda::Function function,
                                                         int block_size,
                                                         std::size_t shared_bytes) noexcept {
  return cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, function, block_size,
                                                              shared_bytes, 0);
}

}  // namespace divvy::device::cuda_simulator
