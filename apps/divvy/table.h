#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace divvy::app {

// Rows in columns as wide as they must be, indented by two: the first `left` columns
// begin at the left, the others end at the right. A line a row, no blanks at its end.
[[nodiscard]] std::string Table(const std::vector<std::vector<std::string>>& rows,
                                std::size_t left);

// Four digits, or all that stand before the point: "0.25", "12.5", "60000".
[[nodiscard]] std::string FourDigits(double value);

// "12.5%". What is not all does not read as all.
[[nodiscard]] std::string Percent(double share);

// "1 model", "3 models".
[[nodiscard]] std::string Count(std::size_t count, const std::string& what);

}  // namespace divvy::app
