#include "plan/drawing.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gpu/catalogue.h"

namespace divvy::plan {
namespace {

using gpu::GpuModel;
using gpu::StripCell;

constexpr int kMaxColumns = 100;
constexpr int kIndent = 2;

// One GPU and the data it is drawn from.
struct Drawn {
  const PlannedGpu* gpu;
  const GpuModel* model;
};

struct SliceUse {
  int compute = 0;
  int compute_of = 0;
  int memory = 0;
  int memory_of = 0;
};

gpu::ProfileIndex IndexOf(const GpuModel& model, const PlannedInstance& instance) {
  const auto index = model.FindProfile(instance.profile);
  Check(index.has_value(), "a plan is validated before it is drawn");
  return index.value_or(gpu::ProfileIndex{});
}

const gpu::MigProfile& ProfileOf(const GpuModel& model, const PlannedInstance& instance) {
  return model.profile(IndexOf(model, instance));
}

SliceUse UseOf(const Drawn& drawn) {
  SliceUse use{0, drawn.model->compute_slices, 0, drawn.model->memory_slices};
  for (const PlannedInstance& instance : drawn.gpu->instances) {
    const gpu::MigProfile& profile = ProfileOf(*drawn.model, instance);
    use.compute += profile.compute_slices;
    use.memory += profile.memory_slices;
  }
  return use;
}

std::string DescribeUse(const SliceUse& use) {
  return fmt::format("{} of {} compute slices, {} of {} memory slices", use.compute, use.compute_of,
                     use.memory, use.memory_of);
}

// "resnet50", for a strip.
std::string NamesOf(const std::vector<Assignment>& runs) {
  std::string names;
  for (const Assignment& run : runs) names += (names.empty() ? "" : ", ") + run.name;
  return names;
}

// "resnet50: 2 processes, at most 50% each, batch 8"; the name alone when there is no more
// to say.
std::string DetailOf(const Assignment& run) {
  std::vector<std::string> facts;
  if (run.processes != 1) facts.push_back(fmt::format("{} processes", run.processes));
  if (run.mps_share) {
    facts.push_back(fmt::format("at most {}%{}", *run.mps_share, run.processes > 1 ? " each" : ""));
  }
  if (run.batch) facts.push_back(fmt::format("batch {}", *run.batch));
  if (facts.empty()) return run.name;
  return fmt::format("{}: {}", run.name, fmt::join(facts, ", "));
}

std::string DetailOf(const std::vector<Assignment>& runs) {
  std::vector<std::string> details;
  details.reserve(runs.size());
  for (const Assignment& run : runs) details.push_back(DetailOf(run));
  // With several runs a comma between them would look like one between facts.
  const bool plain = NamesOf(runs) == fmt::format("{}", fmt::join(details, ", "));
  return fmt::format("{}", fmt::join(details, plain ? ", " : "; "));
}

std::vector<StripCell> CellsOf(const Drawn& drawn) {
  std::vector<StripCell> cells;
  for (const PlannedInstance& instance : drawn.gpu->instances) {
    if (!instance.start) continue;
    cells.push_back({{*instance.start, IndexOf(*drawn.model, instance)}, NamesOf(instance.runs)});
  }
  std::ranges::sort(cells, {}, &StripCell::instance);
  return cells;
}

// Columns a slice: enough for the labels where 100 columns allow it, and for the
// profile names in any case.
int ScaleOf(const Drawn& drawn) {
  const std::vector<StripCell> cells = CellsOf(drawn);
  int wanted = 0;
  for (const StripCell& cell : cells) {
    const int slices = drawn.model->profile(cell.instance.profile).memory_slices;
    // A border and a blank, as around the profile names.
    const int columns = static_cast<int>(cell.label.size()) + 2;
    wanted = std::max(wanted, (columns + slices - 1) / slices);
  }
  const int roomy = (kMaxColumns - kIndent - 1) / drawn.model->memory_slices;
  return std::max(gpu::StripScale(*drawn.model, cells), std::min(wanted, roomy));
}

void AppendIndented(std::string& text, std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    fmt::format_to(std::back_inserter(text), "{:{}}{}\n", "", kIndent, lines.substr(0, end));
    lines = end == std::string_view::npos ? "" : lines.substr(end + 1);
  }
}

// What the strip's labels leave out.
void AppendDetails(std::string& text, const Drawn& drawn, int scale) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const PlannedInstance& instance : drawn.gpu->instances) {
    if (!instance.start) continue;
    const int slices = ProfileOf(*drawn.model, instance).memory_slices;
    const std::string detail = DetailOf(instance.runs);
    const bool cut = static_cast<int>(detail.size()) > scale * slices - 1;
    if (detail == NamesOf(instance.runs) && !cut) continue;
    rows.emplace_back(fmt::format("{} at {}", instance.profile, *instance.start), detail);
  }
  std::size_t widest = 0;
  for (const auto& [place, detail] : rows) widest = std::max(widest, place.size());
  for (const auto& [place, detail] : rows) {
    AppendIndented(text, fmt::format("{:<{}}  {}", place, widest, detail));
  }
}

// "anywhere: 3x 1g.18gb", a line for each kind of instance without a start.
void AppendUnplaced(std::string& text, const PlannedGpu& gpu) {
  std::vector<std::pair<const PlannedInstance*, int>> groups;
  for (const PlannedInstance& instance : gpu.instances) {
    if (instance.start) continue;
    const auto same =
        std::ranges::find_if(groups, [&](const auto& group) { return *group.first == instance; });
    if (same == groups.end()) {
      groups.emplace_back(&instance, 1);
    } else {
      ++same->second;
    }
  }
  for (const auto& [instance, count] : groups) {
    std::string line = "anywhere: ";
    if (count > 1) line += fmt::format("{}x ", count);
    line += instance->profile;
    if (!instance->runs.empty()) line += "  " + DetailOf(instance->runs);
    AppendIndented(text, line);
  }
}

std::string Draw(const Drawn& drawn, int scale, gpu::Ink ink) {
  const std::string head = fmt::format("{}  {}  ", Describe(drawn.gpu->gpu), drawn.model->name);
  if (!drawn.gpu->mig) {
    const int columns = scale * drawn.model->memory_slices - 1;
    std::string text = head + "whole\n";
    AppendIndented(text, fmt::format("|{:<{}}|", "whole GPU", columns));
    for (const Assignment& run : drawn.gpu->runs) AppendIndented(text, " " + DetailOf(run));
    return text;
  }
  std::string text = head + DescribeUse(UseOf(drawn)) + "\n";
  AppendIndented(text, gpu::DrawStrip(*drawn.model, CellsOf(drawn), scale, ink));
  AppendDetails(text, drawn, scale);
  AppendUnplaced(text, *drawn.gpu);
  return text;
}

// "3 GPUs (1 whole): 13 of 14 compute slices, 15 of 16 memory slices".
std::string Totals(const std::vector<Drawn>& all) {
  SliceUse sum;
  int whole = 0;
  for (const Drawn& drawn : all) {
    if (!drawn.gpu->mig) {
      ++whole;
      continue;
    }
    const SliceUse use = UseOf(drawn);
    sum.compute += use.compute;
    sum.compute_of += use.compute_of;
    sum.memory += use.memory;
    sum.memory_of += use.memory_of;
  }
  const std::string count = fmt::format("{} GPU{}", all.size(), all.size() == 1 ? "" : "s");
  if (whole == static_cast<int>(all.size())) return count + ", all whole\n";
  return fmt::format("{}{}: {} given out\n", count,
                     whole == 0 ? "" : fmt::format(", {} whole", whole), DescribeUse(sum));
}

}  // namespace

std::string DrawPlan(const Plan& plan, gpu::Ink ink) {
  std::vector<Drawn> all;
  std::map<int, int> scales;  // By memory slices, so that equal GPUs line up.
  for (const PlannedGpu& gpu : plan.gpus) {
    const auto model = gpu::FindGpuModel(gpu.kind);
    Check(model.has_value(), "a plan is validated before it is drawn");
    const Drawn& drawn = all.emplace_back(Drawn{&gpu, *model});
    int& scale = scales[drawn.model->memory_slices];
    scale = std::max(scale, ScaleOf(drawn));
  }
  if (all.empty()) return "no GPUs\n";
  std::string text;
  for (const Drawn& drawn : all) {
    text += Draw(drawn, scales[drawn.model->memory_slices], ink) + "\n";
  }
  return text + Totals(all);
}

std::string DrawGpu(const PlannedGpu& gpu, const GpuModel& model, gpu::Ink ink) {
  const Drawn drawn{&gpu, &model};
  return Draw(drawn, ScaleOf(drawn), ink);
}

}  // namespace divvy::plan
