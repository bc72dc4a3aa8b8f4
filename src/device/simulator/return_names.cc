#include "device/simulator/return_names.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>

#include "device/nvml_return_names.h"

namespace divvy::device::simulator {
namespace {

const nvml::ReturnName* FindRow(nvml::Return code) {
  for (const nvml::ReturnName& row : nvml::kReturnNames) {
    if (row.code == code) return &row;
  }
  return nullptr;
}

}  // namespace

std::string ReturnName(nvml::Return code) {
  const nvml::ReturnName* row = FindRow(code);
  return row != nullptr ? std::string(row->name) : fmt::format("{}", static_cast<unsigned>(code));
}

std::optional<nvml::Return> ParseReturn(std::string_view text) {
  std::string name(text);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  constexpr std::string_view kPrefix = "NVML_ERROR_";
  if (name.starts_with(kPrefix)) name.erase(0, kPrefix.size());
  for (const nvml::ReturnName& row : nvml::kReturnNames) {
    if (row.name == name) return row.code;
  }
  unsigned number = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  const nvml::ReturnName* row = FindRow(static_cast<nvml::Return>(number));
  if (row == nullptr) return std::nullopt;
  return row->code;
}

const char* DescribeReturn(nvml::Return code) {
  const nvml::ReturnName* row = FindRow(code);
  return row != nullptr ? row->name : "UNKNOWN";
}

}  // namespace divvy::device::simulator
