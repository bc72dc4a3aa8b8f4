#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace divvy {

// A range of whole numbers, both ends included.
struct IntRange {
  int least;
  int most;
};

// A range of numbers, both ends included.
struct RealRange {
  double least;
  double most;
};

// "a whole number from 1 to 7" and "a number from 0.5 to 1", for errors.
[[nodiscard]] std::string Describe(IntRange range);
[[nodiscard]] std::string Describe(RealRange range);

// The whole decimal number that `text` is, without leading zeros or plus sign;
// nothing for anything else or for what the type cannot hold.
[[nodiscard]] std::optional<int> ParseInteger(std::string_view text);
[[nodiscard]] std::optional<std::uint64_t> ParseUnsigned(std::string_view text);

// The decimal number that `text` is: "12", "0.5", "1e-3". Nothing for anything
// else, infinities and what is no number among it.
[[nodiscard]] std::optional<double> ParseReal(std::string_view text);

}  // namespace divvy
