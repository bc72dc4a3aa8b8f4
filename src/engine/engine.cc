#include "engine/engine.h"

#include <algorithm>
#include <new>

namespace divvy::engine {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

kserve::Shape WithBatch(const kserve::Shape& shape, int max_batch) {
  kserve::Shape with;
  if (max_batch > 0) with.push_back(-1);
  with.insert(with.end(), shape.begin(), shape.end());
  return with;
}

std::shared_ptr<char[]> AllocateBytes(std::size_t bytes) {
  // Not make_shared: it would clear the bytes, which the engine is about to write anyway.
  void* const room = ::operator new(std::max<std::size_t>(bytes, 1), kAlignment);
  return {static_cast<char*>(room), [](char* p) { ::operator delete(p, kAlignment); }};
}

}  // namespace divvy::engine
