#include "base/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace divvy {
namespace {

template <typename T>
std::optional<T> ParseAll(std::string_view text) {
  T number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// YAML 1.1 reads 010 as eight; nobody who writes it is sure what they mean.
bool HasLeadingZero(std::string_view text) {
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  return digits.starts_with('0') && text != "0";
}

}  // namespace

std::string Describe(IntRange range) {
  return fmt::format("a whole number from {} to {}", range.least, range.most);
}

std::string Describe(RealRange range) {
  return fmt::format("a number from {} to {}", range.least, range.most);
}

std::optional<int> ParseInteger(std::string_view text) {
  if (HasLeadingZero(text)) return std::nullopt;
  return ParseAll<int>(text);
}

std::optional<std::uint64_t> ParseUnsigned(std::string_view text) {
  if (HasLeadingZero(text)) return std::nullopt;
  return ParseAll<std::uint64_t>(text);
}

std::optional<double> ParseReal(std::string_view text) {
  const auto number = ParseAll<double>(text);
  // from_chars reads "inf" and "nan".
  if (!number || !std::isfinite(*number)) return std::nullopt;
  return number;
}

}  // namespace divvy
