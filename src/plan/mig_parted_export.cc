#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <vector>

#include "base/text_safety.h"
#include "plan/mig_parted.h"

namespace divvy::plan {
namespace {

constexpr std::string_view kLosses =
    "# Written by divvy. mig-parted files cannot hold these parts of the plan:\n"
    "#   - places: mig-parted chooses where each instance begins;\n"
    "#   - workloads: what runs on each instance, and its MPS shares.\n"
    "# mig-parted apply destroys every instance of a GPU before it creates these.\n";

// What mig-parted is to do with a GPU; GPUs with equal content share an entry.
struct Content {
  std::string kind;
  bool mig;
  std::map<std::string, int> profiles;

  friend bool operator==(const Content&, const Content&) = default;
};

Content ContentOf(const PlannedGpu& gpu) {
  Content content{gpu.kind, gpu.mig, {}};
  for (const PlannedInstance& instance : gpu.instances) ++content.profiles[instance.profile];
  return content;
}

bool IsLabelValue(std::string_view name) {
  constexpr std::size_t kLongest = 63;
  const auto is_alnum = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  return !name.empty() && name.size() <= kLongest && is_alnum(name.front()) &&
         is_alnum(name.back()) && std::ranges::all_of(name, [&](char c) {
           return is_alnum(c) || c == '-' || c == '_' || c == '.';
         });
}

void AppendEntry(std::string& text, const Content& content, std::vector<int> devices) {
  const auto out = std::back_inserter(text);
  std::ranges::sort(devices);
  fmt::format_to(out, "    # {}\n", content.kind);
  fmt::format_to(out, "    - devices: [{}]\n", fmt::join(devices, ", "));
  fmt::format_to(out, "      mig-enabled: {}\n", content.mig);
  if (!content.mig) return;
  text += content.profiles.empty() ? "      mig-devices: {}\n" : "      mig-devices:\n";
  for (const auto& [profile, count] : content.profiles) {
    fmt::format_to(out, "        \"{}\": {}\n", profile, count);
  }
}

}  // namespace

Result<std::string> ExportMigParted(const Plan& plan, std::string_view config_name) {
  std::string name(config_name);
  std::ranges::replace(name, '+', '.');
  if (!IsLabelValue(name)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("config name {}: 1 to 63 letters, digits, '-', '_' and '.', a letter "
                            "or digit at both ends",
                            Quoted(config_name)));
  }
  if (plan.gpus.empty()) {
    return Fail(ErrorCode::kInvalidArgument,
                "the plan has no GPUs; a mig-parted config needs at least one entry");
  }
  // Entries in the order in which the plan first has such a GPU.
  std::vector<std::pair<Content, std::vector<int>>> entries;
  for (const PlannedGpu& gpu : plan.gpus) {
    const int* index = std::get_if<int>(&gpu.gpu);
    if (index == nullptr) {
      return Fail(ErrorCode::kInvalidArgument,
                  fmt::format("{}: mig-parted knows GPUs by index only; write the plan with the "
                              "index that nvidia-smi -L prints for it",
                              Describe(gpu.gpu)));
    }
    const Content content = ContentOf(gpu);
    auto entry = std::ranges::find(entries, content, &decltype(entries)::value_type::first);
    if (entry == entries.end()) entry = entries.insert(entry, {content, {}});
    entry->second.push_back(*index);
  }
  // Quoted, since a name of digits alone would be a number.
  std::string text = fmt::format("{}version: v1\nmig-configs:\n  \"{}\":\n", kLosses, name);
  for (const auto& [content, devices] : entries) AppendEntry(text, content, devices);
  return text;
}

}  // namespace divvy::plan
