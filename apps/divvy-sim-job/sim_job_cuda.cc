#include "sim_job_cuda.h"

#include <dlfcn.h>

#include <cstdint>

namespace divvy::tests {
namespace {

using GetProcAddress = cuda::Result (*)(const char*, void**, int, std::uint64_t, int*);
using FirstGetProcAddress = cuda::Result (*)(const char*, void**, int, std::uint64_t);

// One way to look functions up; remembers the first it did not find.
class Finder {
 public:
  // `get_proc_address` is the driver's look-up, in its first form or the second; null: the loader's
  // is used.
  Finder(void* library, void* get_proc_address, bool is_first_form, bool per_thread)
      : library_(library),
        get_proc_address_(get_proc_address),
        is_first_form_(is_first_form),
        per_thread_(per_thread) {}

  // `symbol` is the exported name of what CUDA had under `name` in `version`; `own` the ending of
  // the form with a default stream for each thread, if there is one.
  template <typename Function>
  void Find(Function& function, const char* name, int version, const std::string& symbol,
            const char* own = "") {
    void* address = get_proc_address_ != nullptr
                        ? Ask(name, version)
                        : dlsym(library_, (per_thread_ ? symbol + own : symbol).c_str());
    if (address == nullptr && missing_.empty()) missing_ = name;
    function = reinterpret_cast<Function>(address);
  }

  const std::string& missing() const { return missing_; }

 private:
  void* Ask(const char* name, int version) const {
    void* address = nullptr;
    int status = 0;
    const std::uint64_t flags = per_thread_ ? cuda::kPerThreadDefaultStream : 0;
    const auto result = is_first_form_ ? reinterpret_cast<FirstGetProcAddress>(get_proc_address_)(
                                             name, &address, version, flags)
                                       : reinterpret_cast<GetProcAddress>(get_proc_address_)(
                                             name, &address, version, flags, &status);
    return result == cuda::kSuccess ? address : nullptr;
  }

  void* library_;
  void* get_proc_address_;
  bool is_first_form_;
  bool per_thread_;
  std::string missing_;
};

Cuda FindAll(Finder& finder) {
  Cuda cuda{};
  finder.Find(cuda.init, "cuInit", 2000, "cuInit");
  finder.Find(cuda.device_get, "cuDeviceGet", 2000, "cuDeviceGet");
  finder.Find(cuda.primary_retain, "cuDevicePrimaryCtxRetain", 7000, "cuDevicePrimaryCtxRetain");
  finder.Find(cuda.set_current, "cuCtxSetCurrent", 4000, "cuCtxSetCurrent");
  finder.Find(cuda.get_current, "cuCtxGetCurrent", 4000, "cuCtxGetCurrent");
  finder.Find(cuda.context_synchronize, "cuCtxSynchronize", 2000, "cuCtxSynchronize");
  finder.Find(cuda.module_load, "cuModuleLoadData", 2000, "cuModuleLoadData");
  finder.Find(cuda.module_function, "cuModuleGetFunction", 2000, "cuModuleGetFunction");
  finder.Find(cuda.launch, "cuLaunchKernel", 7000, "cuLaunchKernel", "_ptsz");
  finder.Find(cuda.launch_ex, "cuLaunchKernelEx", 11060, "cuLaunchKernelEx", "_ptsz");
  finder.Find(cuda.launch_cooperative, "cuLaunchCooperativeKernel", 9000,
              "cuLaunchCooperativeKernel", "_ptsz");
  finder.Find(cuda.launch_host_function, "cuLaunchHostFunc", 10000, "cuLaunchHostFunc", "_ptsz");
  finder.Find(cuda.stream_create, "cuStreamCreate", 2000, "cuStreamCreate");
  finder.Find(cuda.stream_synchronize, "cuStreamSynchronize", 7000, "cuStreamSynchronize", "_ptsz");
  finder.Find(cuda.stream_query, "cuStreamQuery", 7000, "cuStreamQuery", "_ptsz");
  finder.Find(cuda.begin_capture, "cuStreamBeginCapture", 10010, "cuStreamBeginCapture_v2",
              "_ptsz");
  finder.Find(cuda.end_capture, "cuStreamEndCapture", 10000, "cuStreamEndCapture", "_ptsz");
  finder.Find(cuda.graph_instantiate, "cuGraphInstantiateWithFlags", 11040,
              "cuGraphInstantiateWithFlags");
  finder.Find(cuda.graph_launch, "cuGraphLaunch", 10000, "cuGraphLaunch", "_ptsz");
  finder.Find(cuda.event_create, "cuEventCreate", 2000, "cuEventCreate");
  finder.Find(cuda.event_record, "cuEventRecord", 7000, "cuEventRecord", "_ptsz");
  finder.Find(cuda.event_synchronize, "cuEventSynchronize", 2000, "cuEventSynchronize");
  finder.Find(cuda.event_query, "cuEventQuery", 2000, "cuEventQuery");
  finder.Find(cuda.memory_allocate, "cuMemAlloc", 3020, "cuMemAlloc_v2");
  finder.Find(cuda.copy_to_host, "cuMemcpyDtoH", 7000, "cuMemcpyDtoH_v2", "_ptds");
  return cuda;
}

}  // namespace

std::optional<Cuda> FindCuda(Lookup lookup, bool per_thread, std::string& problem) {
  if (lookup == Lookup::kLinked) {
    auto linked = LinkedCuda(per_thread);
    if (!linked) problem = "only divvy-sim-job-linked has the driver's functions linked";
    return linked;
  }
  void* library = dlopen("libcuda.so.1", RTLD_NOW);
  if (library == nullptr) {
    problem = dlerror();
    return std::nullopt;
  }
  void* get_proc_address = nullptr;
  const bool is_first_form = lookup == Lookup::kByFirstVersion;
  if (is_first_form || lookup == Lookup::kByVersion) {
    const char* const name = is_first_form ? "cuGetProcAddress" : "cuGetProcAddress_v2";
    get_proc_address = dlsym(library, name);
    if (get_proc_address == nullptr) {
      problem = std::string("libcuda.so.1 has no ") + name;
      return std::nullopt;
    }
  }
  Finder finder(library, get_proc_address, is_first_form, per_thread);
  const Cuda cuda = FindAll(finder);
  if (!finder.missing().empty()) {
    problem = "libcuda.so.1 has no " + finder.missing();
    return std::nullopt;
  }
  return cuda;
}

}  // namespace divvy::tests
