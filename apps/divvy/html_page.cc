#include "html_page.h"

#include <cmath>

#include "report_assets.h"

namespace divvy::app {
namespace {

using Json = nlohmann::ordered_json;

std::string Replaced(std::string_view text, std::string_view what, std::string_view by) {
  std::string replaced;
  while (true) {
    const std::size_t at = text.find(what);
    replaced += text.substr(0, at);
    if (at == std::string_view::npos) return replaced;
    replaced += by;
    text.remove_prefix(at + what.size());
  }
}

std::string EscapedForHtml(std::string_view text) {
  std::string escaped = Replaced(text, "&", "&amp;");
  escaped = Replaced(escaped, "<", "&lt;");
  return Replaced(escaped, ">", "&gt;");
}

std::string Dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

Json Rounded(double value) {
  if (value == 0 || !std::isfinite(value)) return value == 0 ? Json(0) : Json(nullptr);
  const double exponent = std::floor(std::log10(std::abs(value))) - 3;
  if (exponent >= 0) {
    const double unit = std::pow(10, exponent);
    return std::round(value / unit) * unit;
  }
  // Divided by a power of ten, not multiplied by a fraction: 0.7, not 0.7000000000000001.
  const double parts = std::pow(10, -exponent);
  return std::round(value * parts) / parts;
}

Json Rounded(const std::optional<double>& value) { return value ? Rounded(*value) : Json(nullptr); }

std::string HtmlPage(std::string_view title, std::string_view style, std::string_view script,
                     const Json& data) {
  // Through JSON and back, which makes any bytes UTF-8.
  const std::string name = Json::parse(Dumped(Json(title)));
  std::string page(kReportPage);
  page = Replaced(page, "{{title}}", EscapedForHtml(name));
  page = Replaced(page, "{{style}}", style);
  page = Replaced(page, "{{script}}", script);
  // A name could hold "</script>"; in JSON a '<' stands in strings only. Last, so that
  // no name is taken for a place to fill in.
  return Replaced(page, "{{data}}", Replaced(Dumped(data), "<", "\\u003c"));
}

}  // namespace divvy::app
