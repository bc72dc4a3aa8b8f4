#include "table.h"

#include <fmt/format.h>

#include <algorithm>

namespace divvy::app {

std::string Table(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += i < left ? fmt::format("  {:<{}}", row[i], widths[i])
                       : fmt::format("  {:>{}}", row[i], widths[i]);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string FourDigits(double value) {
  return value < 1000 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

std::string Percent(double share) {
  if (share < 1 && share > 0.9995) return "99.9%";
  return fmt::format("{:.1f}%", share * 100);
}

std::string Count(std::size_t count, const std::string& what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace divvy::app
