#include "server/log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <iterator>

#include "base/text_safety.h"

namespace divvy::server {
namespace {

void AppendJson(std::string& line, std::string_view text) {
  line += '"';
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      line += '\\';
      line += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      fmt::format_to(std::back_inserter(line), "\\u{:04x}", static_cast<unsigned>(c));
    } else {
      line += c;
    }
  }
  line += '"';
}

}  // namespace

void Log::Write(std::string_view level, std::string_view what,
                std::initializer_list<Field> fields) {
  const auto now = std::chrono::system_clock::now();
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch());
  const std::time_t seconds = static_cast<std::time_t>(ms.count() / 1000);
  std::string line;
  if (form_ == Form::kJson) {
    line = fmt::format("{{\"time\":\"{:%Y-%m-%dT%H:%M:%S}.{:03}Z\",\"level\":\"{}\",\"event\":",
                       fmt::gmtime(seconds), ms.count() % 1000, level);
    AppendJson(line, what);
    for (const auto& [name, value] : fields) {
      line += ',';
      AppendJson(line, name);
      line += ':';
      AppendJson(line, value);
    }
    line += "}\n";
  } else {
    line = fmt::format("{:%H:%M:%S}.{:03} {}{}", fmt::gmtime(seconds), ms.count() % 1000,
                       level == "info" ? "" : "warning: ", what);
    for (const auto& [name, value] : fields) line += fmt::format("  {}={}", name, value);
    line += '\n';
  }
  std::fputs(line.c_str(), to_);
  std::fflush(to_);
}

}  // namespace divvy::server
