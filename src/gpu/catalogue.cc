#include "gpu/catalogue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string>

#include "base/spelling.h"

namespace divvy::gpu {
namespace {

// Lower case, without a leading "NVIDIA ", with '-' for spaces and without what
// follows a bracket or slash, so that product names and table headings match.
std::string Normalise(std::string_view name) {
  std::string key(name.substr(0, name.find_first_of("(/")));
  while (!key.empty() && key.back() == ' ') key.pop_back();
  for (char& c : key) {
    c = c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  constexpr std::string_view kMaker = "nvidia-";
  if (key.starts_with(kMaker)) key.erase(0, kMaker.size());
  return key;
}

}  // namespace

Result<const GpuModel*> FindGpuModel(std::string_view name) {
  const std::string key = Normalise(name);
  std::vector<const GpuModel*> matches;
  std::vector<std::string_view> names;
  for (const GpuModel& model : Catalogue()) {
    const std::string candidate = Normalise(model.name);
    names.push_back(model.name);
    if (candidate == key) return &model;
    if (!key.empty() && candidate.starts_with(key)) matches.push_back(&model);
  }
  if (matches.size() == 1) return matches.front();
  if (!matches.empty()) {
    std::vector<std::string_view> choices;
    for (const GpuModel* model : matches) choices.push_back(model->name);
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("GPU '{}' could be {}", name, OneOf(choices)));
  }
  std::string hint = DidYouMean(name, names);
  if (hint.empty()) hint = "; known are " + OneOf(names);
  return Fail(ErrorCode::kNotFound, fmt::format("no GPU is called '{}'{}", name, hint));
}

const GpuModel* FindGpuModelByPciId(std::uint32_t pci_device_id) {
  for (const GpuModel& model : Catalogue()) {
    if (std::ranges::find(model.pci_device_ids, pci_device_id) != model.pci_device_ids.end()) {
      return &model;
    }
  }
  return nullptr;
}

}  // namespace divvy::gpu
