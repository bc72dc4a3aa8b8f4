#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace divvy::net {

// Bytes that are shared and never change: a view, and what keeps it alive. Copying one copies no
// bytes, so a tensor goes from socket to socket as it came.
class Slice {
 public:
  Slice() = default;
  // Takes over a text, or copies one.
  explicit Slice(std::string text) {
    auto owner = std::make_shared<const std::string>(std::move(text));
    view_ = *owner;
    owner_ = std::move(owner);
  }
  // A view of what `owner` keeps alive.
  Slice(std::shared_ptr<const void> owner, std::string_view view)
      : owner_(std::move(owner)), view_(view) {}
  // REQUIRES: lives for ever, such as a literal.
  static Slice Static(std::string_view view) { return {nullptr, view}; }

  // REQUIRES: offset + size <= this->size().
  Slice Sub(std::size_t offset, std::size_t size) const {
    return {owner_, view_.substr(offset, size)};
  }

  std::string_view view() const { return view_; }
  const char* data() const { return view_.data(); }
  std::size_t size() const { return view_.size(); }
  bool empty() const { return view_.empty(); }
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  std::shared_ptr<const void> owner_;
  std::string_view view_;
};

}  // namespace divvy::net
