#include "device/cuda_simulator/address_space.h"

#include <sys/mman.h>

#include <iterator>

namespace divvy::device::cuda_simulator {

const Range* AddressSpace::Allocate(RangeKind kind, std::size_t bytes,
                                    const std::shared_ptr<ContextState>& context) {
  const int protection = kind == RangeKind::kReserved ? PROT_NONE : PROT_READ | PROT_WRITE;
  void* memory =
      mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  const auto base = reinterpret_cast<std::uint64_t>(memory);
  Range& range = ranges_[base];
  range = {.kind = kind, .base = base, .size = bytes, .context = context};
  return &range;
}

void AddressSpace::Free(std::uint64_t base) {
  const auto range = ranges_.find(base);
  munmap(reinterpret_cast<void*>(base), range->second.size);
  ranges_.erase(range);
}

bool AddressSpace::Register(std::uint64_t base, std::size_t bytes, unsigned flags,
                            const std::shared_ptr<ContextState>& context) {
  const auto next = ranges_.upper_bound(base);
  if (next != ranges_.end() && next->first < base + bytes) return false;
  if (Find(base) != nullptr) return false;
  ranges_[base] = {.kind = RangeKind::kRegistered,
                   .base = base,
                   .size = bytes,
                   .flags = flags,
                   .context = context};
  return true;
}

void AddressSpace::Unregister(std::uint64_t base) { ranges_.erase(base); }

const Range* AddressSpace::Find(std::uint64_t address) const {
  const auto next = ranges_.upper_bound(address);
  if (next == ranges_.begin()) return nullptr;
  const Range& range = std::prev(next)->second;
  return address - range.base < range.size ? &range : nullptr;
}

Range* AddressSpace::FindBase(std::uint64_t base) {
  const auto found = ranges_.find(base);
  return found == ranges_.end() ? nullptr : &found->second;
}

bool AddressSpace::Holds(std::uint64_t address, std::size_t bytes) const {
  const Range* range = Find(address);
  if (range == nullptr || range->kind == RangeKind::kReserved) return false;
  return bytes <= range->size - (address - range->base);
}

std::uint64_t AddressSpace::FreeAll(const ContextState& context) {
  std::uint64_t charged = 0;
  for (auto it = ranges_.begin(); it != ranges_.end();) {
    const Range& range = it->second;
    if (range.context.get() != &context || !range.on_device()) {
      ++it;
      continue;
    }
    charged += range.charged;
    munmap(reinterpret_cast<void*>(range.base), range.size);
    it = ranges_.erase(it);
  }
  return charged;
}

}  // namespace divvy::device::cuda_simulator
