#include "collocate_timeline.h"

#include <fmt/format.h>

#include <array>
#include <iterator>
#include <utility>

#include "base/csv.h"
#include "text_file.h"

namespace divvy::app {
namespace {

using Field = std::optional<double> measure::GpuFigures::*;
constexpr std::array<std::pair<const char*, Field>, 4> kColumns = {
    {{"busy", &measure::GpuFigures::busy},
     {"sm_active", &measure::GpuFigures::sm_active},
     {"memory_mib", &measure::GpuFigures::memory_mib},
     {"power_w", &measure::GpuFigures::power_w}}};
constexpr RealRange kAny{0, 1e15};

}  // namespace

Result<void> SaveTimeline(const std::string& path, const std::vector<GpuMoment>& moments) {
  std::string text = "from_s,to_s";
  for (const auto& [name, field] : kColumns) text += fmt::format(",{}", name);
  text += '\n';
  for (const GpuMoment& moment : moments) {
    // With all digits: rounded twice, here and where it is shown, it would be another number.
    fmt::format_to(std::back_inserter(text), "{},{}", moment.from_s, moment.to_s);
    for (const auto& [name, field] : kColumns) {
      const std::optional<double>& value = moment.figures.*field;
      text += value ? fmt::format(",{}", *value) : ",";
    }
    text += '\n';
  }
  return SaveText(path, text);
}

std::vector<GpuMoment> LoadTimeline(const std::string& path) {
  const auto text = ReadText(path);
  if (!text) return {};
  CsvReader reader(*text, path);
  const std::size_t from = reader.Require("from_s", "a timeline");
  const std::size_t to = reader.Require("to_s", "a timeline");
  std::vector<GpuMoment> moments;
  while (reader.NextRow()) {
    GpuMoment moment{
        .from_s = reader.Real(from, kAny), .to_s = reader.Real(to, kAny), .figures = {}};
    for (const auto& [name, field] : kColumns) {
      moment.figures.*field = reader.OptionalReal(reader.Find(name), kAny);
    }
    moments.push_back(moment);
  }
  if (!reader.ok()) return {};
  return moments;
}

}  // namespace divvy::app
