#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace divvy::app {

// To four digits: more cannot be seen, and a page stays small. Null for what is no
// number, and for nothing.
[[nodiscard]] nlohmann::ordered_json Rounded(double value);
[[nodiscard]] nlohmann::ordered_json Rounded(const std::optional<double>& value);

// A page that opens without a network: report/report.html with its style and script,
// and `data` as JSON for the script to draw. Title and data may hold any bytes.
[[nodiscard]] std::string HtmlPage(std::string_view title, std::string_view style,
                                   std::string_view script, const nlohmann::ordered_json& data);

}  // namespace divvy::app
