#pragma once

#include <array>
#include <cstddef>

#include "gate/cuda_abi.h"

namespace divvy::device::cuda_simulator {

// What the driver keeps for each thread of the program. Without a destructor, since programs call
// the driver until their very end, from destructors of their own.
struct ThreadState {
  struct OwnStream {
    cuda::Context context;
    cuda::Stream stream;
  };

  std::array<cuda::Context, 32> contexts;  // The last one is current.
  std::size_t depth;
  std::array<OwnStream, 16> own_streams;  // Its default stream in each context.
  std::size_t own_stream_count;
  cuda::CaptureMode capture_mode;  // kCaptureGlobal at first.
  bool default_stream_is_own;      // In a call of a _ptsz or _ptds function.
  bool in_host_function;           // A thread that runs those may call nothing.
};

inline thread_local ThreadState thread_state{};

}  // namespace divvy::device::cuda_simulator
