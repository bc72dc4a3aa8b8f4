#include "gate/costs.h"

#include <algorithm>

namespace divvy::gate {
namespace {

constexpr std::uint32_t kFirstSamples = 4;
constexpr std::uint32_t kSampleEvery = 512;
constexpr std::uint32_t kProbes = 32;

std::uint64_t Mix(std::uint64_t hash, std::uint64_t value) {
  hash ^= value;
  hash *= 0x9e3779b97f4a7c15U;
  return hash ^ (hash >> 29);
}

std::uint64_t Pair(std::uint32_t high, std::uint32_t low) {
  return static_cast<std::uint64_t>(high) << 32 | low;
}

}  // namespace

std::uint64_t KeyOf(const LaunchShape& shape) {
  std::uint64_t hash = Mix(0x2545f4914f6cdd1dU, shape.handle);
  hash = Mix(hash, Pair(shape.grid[0], shape.grid[1]));
  hash = Mix(hash, Pair(shape.grid[2], shape.shared_bytes));
  hash = Mix(hash, Pair(shape.block[0] ^ shape.block[2] << 16, shape.block[1]));
  return hash == 0 ? 1 : hash;
}

bool IsLight(const Cost& cost) {
  const std::uint32_t ns = cost.ns.load(std::memory_order_relaxed);
  return ns != 0 && ns <= kLightNs && cost.fill.load(std::memory_order_relaxed) <= kLightFill;
}

std::uint32_t PredictedNs(const Cost& cost) {
  const std::uint32_t ns = cost.ns.load(std::memory_order_relaxed);
  return ns == 0 ? kUnknownNs : ns;
}

std::uint32_t ChargedNs(const Cost& cost) {
  const std::uint32_t ns = cost.charged_ns.load(std::memory_order_relaxed);
  return ns == 0 ? PredictedNs(cost) : ns;
}

void Learn(Cost& cost, std::uint32_t measured_ns, bool shared) {
  const std::uint32_t measured = measured_ns == 0 ? 1 : measured_ns;
  const std::uint32_t known = cost.ns.load(std::memory_order_relaxed);
  if (known == 0 || measured < known) {
    cost.ns.store(measured, std::memory_order_relaxed);
  } else {
    cost.ns.store(known + (measured - known) / 16, std::memory_order_relaxed);
  }
  // The first few samples of a kind make it known, beside others too.
  if (cost.samples.fetch_add(1, std::memory_order_relaxed) < kFirstSamples || !shared)
    cost.charged_ns.store(cost.ns.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

bool WantsSample(Cost& cost) {
  const std::uint32_t before = cost.launches.fetch_add(1, std::memory_order_relaxed);
  // The very first launch pays for loading its code and says nothing about the later ones.
  if (before == 0) return false;
  return cost.samples.load(std::memory_order_relaxed) < kFirstSamples || before % kSampleEvery == 0;
}

Cost* CostTable::Find(std::uint64_t key, bool* fresh) {
  *fresh = false;
  for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
    Cost& entry = entries_[(key + probe) % kEntries];
    std::uint64_t found = entry.key.load(std::memory_order_acquire);
    if (found == key) return &entry;
    if (found != 0) continue;
    if (entry.key.compare_exchange_strong(found, key, std::memory_order_acq_rel)) {
      *fresh = true;
      return &entry;
    }
    if (found == key) return &entry;
  }
  return nullptr;
}

void CostTable::Forget(std::uint64_t key) {
  for (std::uint32_t probe = 0; probe < kProbes; ++probe) {
    Cost& entry = entries_[(key + probe) % kEntries];
    if (entry.key.load(std::memory_order_acquire) != key) continue;
    // The entry keeps its place: others may have probed past it.
    entry.ns.store(0, std::memory_order_relaxed);
    entry.charged_ns.store(0, std::memory_order_relaxed);
    entry.samples.store(0, std::memory_order_relaxed);
    entry.launches.store(0, std::memory_order_relaxed);
    entry.kind.store(0, std::memory_order_relaxed);
    return;
  }
}

void CostTable::Rescale(std::uint32_t scale) {
  for (Cost& entry : entries_) {
    const std::uint64_t ns = entry.charged_ns.load(std::memory_order_relaxed);
    if (ns == 0) continue;
    const std::uint64_t scaled = std::clamp<std::uint64_t>(ns * scale / 1'024, 1, UINT32_MAX);
    entry.charged_ns.store(static_cast<std::uint32_t>(scaled), std::memory_order_relaxed);
  }
}

void CostTable::TimeAnew() {
  for (Cost& entry : entries_) {
    if (entry.samples.load(std::memory_order_relaxed) == 0) continue;
    entry.samples.store(0, std::memory_order_relaxed);
  }
}

void CostTable::ForgetKinds() {
  for (Cost& entry : entries_) {
    // Read before it is written: after a fork every page written is a page copied.
    if (entry.kind.load(std::memory_order_relaxed) == 0) continue;
    entry.kind.store(0, std::memory_order_relaxed);
    entry.samples.store(0, std::memory_order_relaxed);
  }
}

}  // namespace divvy::gate
