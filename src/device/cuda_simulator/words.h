#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

// Taking text apart. The simulated driver is loaded into any program, sanitised or not, so it links
// none of our libraries; this is the little it would have needed of them.

namespace divvy::device::cuda_simulator {

// The next word of `text`, up to one of `separators`, which is cut off with it; empty at the end.
inline std::string_view TakeWord(std::string_view& text, std::string_view separators) {
  const std::size_t begin = text.find_first_not_of(separators);
  if (begin == std::string_view::npos) {
    text = {};
    return {};
  }
  const std::size_t end = std::min(text.find_first_of(separators, begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

// `key=value`; no value where there is no '='.
inline std::pair<std::string_view, std::optional<std::string_view>> SplitKey(
    std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {word, std::nullopt};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

// The whole of `text` as a number, or nothing.
template <typename T>
std::optional<T> ToNumber(std::string_view text) {
  T number{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace divvy::device::cuda_simulator
