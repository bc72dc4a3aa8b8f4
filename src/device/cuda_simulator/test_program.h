#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/cuda_simulator/entry_points.h"
#include "device/cuda_simulator/entry_points_memory.h"
#include "device/cuda_simulator/resource_manager.h"

// For tests: programs that use the built library as any other program does. A process has one
// driver, which reads its environment once, so each program is a child process.

namespace divvy::device::cuda_simulator {

// Words without content between two processes.
class Link {
 public:
  Link(int in, int out) : in_(in), out_(out) {}
  void Tell() const;
  // Waits for a word; false if the other is gone.
  [[nodiscard]] bool Await() const;
  // Whether one is there already.
  [[nodiscard]] bool HasWord() const;

 private:
  int in_;
  int out_;
};

using Environment = std::map<std::string, std::string>;

// A child process that runs `body` with `environment` added to ours. Killed at the latest when this
// goes.
class Program {
 public:
  Program(const Environment& environment, const std::function<void(Link&)>& body);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  const Link& link() const { return link_; }
  pid_t pid() const { return pid_; }
  void Kill();
  // Waits for its end: 0 if nothing failed in it.
  int Join();

 private:
  pid_t pid_ = -1;
  int descriptors_[2] = {-1, -1};
  Link link_{-1, -1};
};

// A test with a machine, in a folder of its own.
class CudaSimTest : public ::testing::Test {
 protected:
  CudaSimTest();
  ~CudaSimTest() override;

  std::string File(const std::string& name) const { return folder_ + "/" + name; }

  // Runs `body` in a program of its own, which must end well.
  void Run(const std::function<void()>& body, const Environment& extra = {}) const;
  // Two programs of one machine, `spec` as given by whoever starts first.
  Environment With(const Environment& extra) const;

  Environment environment_;

 private:
  std::string folder_;
};

// What a program has at hand once it is set up: a context, a stream of its own that does not block,
// and a kernel that takes as long as it is told.
class Session {
 public:
  Session();

  // A kernel of `us` on `blocks` blocks of 1024 threads: two of them fill an SM.
  cuda::Result Launch(float us, unsigned blocks, cuda::Stream on) const;
  cuda::Result Launch(float us, unsigned blocks = 32) const { return Launch(us, blocks, stream); }

  cuda::Stream NewStream(unsigned flags = cuda::kStreamNonBlocking) const;
  cuda::Event NewEvent(unsigned flags = 0) const;
  cuda::Event Recorded(cuda::Stream on) const;
  // Between two recorded events, in milliseconds; they must be over.
  float Elapsed(cuda::Event from, cuda::Event to) const;

  // A word that streams can wait for, zero at first.
  volatile unsigned* NewWord() const;
  cuda::Result WaitFor(volatile unsigned* word, unsigned value, cuda::Stream on) const;

  // Returns when every stream has been looked at: what can't go on is known to wait.
  void Settle() const;

  // The process' time slice on its first GPU.
  void SetSlice(std::uint64_t us) const;

  cuda::Context context = nullptr;
  cuda::Stream stream = nullptr;
  cuda::Module module = nullptr;
  cuda::Function kernel = nullptr;
};

// The test program's own ioctl, which the driver finds before the C library's, keeps the controls
// that the driver sends. It has them performed, with another slice if one is named, or is not
// there.
struct KernelModule {
  struct Asked {
    int descriptor;
    unsigned long request;
    RmControl control;
    std::uint64_t microseconds;
  };
  bool present = true;
  std::uint64_t instead_us = 0;
  std::vector<Asked> asked;
};
KernelModule& KernelModuleOfProgram();

inline cuda::DevicePointer AddressOf(const volatile void* pointer) {
  return reinterpret_cast<cuda::DevicePointer>(pointer);
}

}  // namespace divvy::device::cuda_simulator
