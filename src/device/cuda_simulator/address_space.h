#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "device/cuda_simulator/state.h"
#include "gate/cuda_abi.h"

namespace divvy::device::cuda_simulator {

enum class RangeKind {
  kDevice,      // cuMemAlloc and its kin.
  kManaged,     // Both sides may touch it.
  kPinned,      // Host memory that the driver made.
  kRegistered,  // Host memory of the program's.
  kReserved,    // Addresses without memory behind them yet.
};

struct Range {
  RangeKind kind = RangeKind::kDevice;
  std::uint64_t base = 0;
  std::size_t size = 0;
  unsigned flags = 0;
  std::uint64_t charged = 0;              // Bytes of the GPU's memory it uses.
  std::shared_ptr<ContextState> context;  // That it was made in.

  bool on_device() const { return kind == RangeKind::kDevice || kind == RangeKind::kManaged; }
};

// The memory a process has from the driver or has made known to it. One address serves host and
// device, so device memory is plain memory of the process; untouched, it costs nothing. Not
// thread-safe.
class AddressSpace {
 public:
  // Fresh memory, or reserved addresses; null where the system has none.
  const Range* Allocate(RangeKind kind, std::size_t bytes,
                        const std::shared_ptr<ContextState>& context);
  // Unmaps what Allocate gave. REQUIRES: `base` begins such a range.
  void Free(std::uint64_t base);

  // False where part of it is known already.
  [[nodiscard]] bool Register(std::uint64_t base, std::size_t bytes, unsigned flags,
                              const std::shared_ptr<ContextState>& context);
  void Unregister(std::uint64_t base);

  // The range around an address, or the one that begins there; null if there is none.
  const Range* Find(std::uint64_t address) const;
  Range* FindBase(std::uint64_t base);
  // Whether `bytes` from `address` lie in one range that has memory.
  bool Holds(std::uint64_t address, std::size_t bytes) const;

  // Frees all device memory of a context and says how much of the GPU's memory that was.
  std::uint64_t FreeAll(const ContextState& context);

 private:
  std::map<std::uint64_t, Range> ranges_;  // By base.
};

}  // namespace divvy::device::cuda_simulator
