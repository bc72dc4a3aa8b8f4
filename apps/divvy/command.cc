#include "command.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/text_safety.h"

namespace divvy::app {

void AddOutputOption(CLI::App& command, OutputFormat& format) {
  command
      .add_option_function<std::string>(
          "-o,--output",
          [&format](const std::string& word) {
            format = word == "json" ? OutputFormat::kJson : OutputFormat::kTable;
          },
          "table for people (default) or json for programs")
      ->check(CLI::IsMember({"table", "json"}).description(""))
      ->type_name("table|json");
}

CLI::Validator NumberIn(RealRange range) {
  return CLI::Validator(
      [range](const std::string& text) {
        const auto number = ParseReal(text);
        const bool inside = number && *number >= range.least && *number <= range.most;
        return inside ? "" : fmt::format("{} is not {}", Quoted(text), Describe(range));
      },
      "");
}

void Complain(Invocation& invocation, const Error& error) {
  std::fflush(stdout);
  // Not fmt::print, which throws when nobody can hear it any more.
  std::fprintf(stderr, "divvy: %s\n", error.message.c_str());
  const bool usage =
      error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNotFound;
  invocation.status = usage ? ExitStatus::kUsage : ExitStatus::kFailed;
}

void PrintStrip(std::string_view margin, std::string_view strip) {
  const std::size_t line = strip.find('\n');
  fmt::print("{}{}\n", margin, strip.substr(0, line));
  if (line == std::string_view::npos) return;
  fmt::print("{:{}}{}\n", "", margin.size(), strip.substr(line + 1));
}

}  // namespace divvy::app
