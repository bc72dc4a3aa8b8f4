#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <utility>

namespace divvy::device::cuda_simulator {

// Handles that stand for objects of type T. A handle is a number in the form of a pointer that
// points nowhere, and none is used twice: one that was freed, is of another kind, or was never
// given is found out. Not thread-safe.
template <typename Handle, typename T>
class HandleTable {
 public:
  // `kind` tells the handles of tables apart.
  explicit HandleTable(std::uint64_t kind) : next_((kind << 36) + kStep) {}

  Handle Add(std::shared_ptr<T> object) {
    const std::uint64_t number = next_;
    next_ += kStep;
    objects_.emplace(number, std::move(object));
    return reinterpret_cast<Handle>(number);
  }

  // Null where there is none.
  std::shared_ptr<T> Find(Handle handle) const {
    const auto found = objects_.find(reinterpret_cast<std::uint64_t>(handle));
    return found == objects_.end() ? nullptr : found->second;
  }

  bool Remove(Handle handle) {
    return objects_.erase(reinterpret_cast<std::uint64_t>(handle)) != 0;
  }

  template <typename Predicate>
  void RemoveIf(Predicate predicate) {
    std::erase_if(objects_, [&](const auto& item) { return predicate(*item.second); });
  }

  const auto& objects() const { return objects_; }

 private:
  static constexpr std::uint64_t kStep = 64;

  std::uint64_t next_;
  std::unordered_map<std::uint64_t, std::shared_ptr<T>> objects_;  // Shared with what runs.
};

}  // namespace divvy::device::cuda_simulator
