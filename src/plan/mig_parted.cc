#include "plan/mig_parted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/spelling.h"
#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "base/yaml_tree.h"
#include "gpu/catalogue.h"

namespace divvy::plan {
namespace {

constexpr IntRange kDeviceIndices{0, 255};
constexpr IntRange kCounts{0, 32};

constexpr std::array<std::string_view, 2> kFileKeys = {"version", "mig-configs"};
constexpr std::array<std::string_view, 4> kEntryKeys = {"device-filter", "devices", "mig-enabled",
                                                        "mig-devices"};

struct Device {
  int index;
  int line;
};

struct ProfileCount {
  std::string profile;
  int count;
  int line;
};

// One entry of a config, its form checked.
struct Entry {
  int line;
  std::vector<std::uint32_t> filter = {};           // PCI ids; empty lets every GPU pass.
  std::optional<std::vector<Device>> devices = {};  // Nothing stands for "all".
  int devices_line = 0;
  bool mig = false;
  std::vector<ProfileCount> profiles = {};
};

struct Config {
  std::string name;
  std::vector<Entry> entries;
};

std::uint32_t ReadPciId(YamlReader& reader, const YamlNode& node) {
  std::uint32_t id = 0;
  std::string_view digits = node.text;
  const bool prefixed = digits.starts_with("0x") || digits.starts_with("0X");
  if (prefixed) digits.remove_prefix(2);
  const char* begin = digits.data();
  const char* end = begin + digits.size();
  const auto parsed = std::from_chars(begin, end, id, 16);
  if (!prefixed || digits.size() != 8 || parsed.ec != std::errc{} || parsed.ptr != end) {
    reader.Complain(node.line, fmt::format("device-filter: {} is not a PCI id such as '0x233510DE'",
                                           Quoted(node.text)));
  }
  return id;
}

std::vector<std::uint32_t> ReadFilter(YamlReader& reader, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar) return {ReadPciId(reader, node)};
  std::vector<std::uint32_t> ids;
  for (const YamlNode& item : reader.List("device-filter", node)) {
    ids.push_back(ReadPciId(reader, item));
  }
  if (ids.empty()) reader.Complain(node.line, "device-filter: names no PCI id");
  return ids;
}

std::optional<std::vector<Device>> ReadDevices(YamlReader& reader, const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kScalar && node.text == "all") return std::nullopt;
  if (node.kind != YamlNode::Kind::kSequence) {
    reader.Complain(node.line, "devices: is 'all' or a list of GPU indices such as [0, 1]");
    return std::nullopt;
  }
  std::vector<Device> devices;
  devices.reserve(node.items.size());
  for (const YamlNode& item : node.items) {
    devices.push_back({reader.Integer("devices", item, kDeviceIndices), item.line});
  }
  return devices;
}

std::vector<ProfileCount> ReadProfiles(YamlReader& reader, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kMapping) {
    reader.Complain(node.line, "mig-devices: is a mapping such as {1g.18gb: 2}");
    return {};
  }
  std::vector<ProfileCount> profiles;
  int all = 0;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    const int count = reader.Integer(node.keys[i], node.items[i], kCounts);
    all += count;
    if (count > 0) profiles.push_back({node.keys[i], count, node.key_lines[i]});
  }
  if (all == 0 && !node.keys.empty()) {
    reader.Complain(node.line, "mig-devices: all counts are 0; write {} for no instances");
  }
  return profiles;
}

Entry ReadEntry(YamlReader& reader, const YamlNode& node) {
  constexpr std::string_view kWhat = "an entry of a config";
  Entry entry{.line = node.line};
  if (!reader.ExpectMapping(node, kWhat, kEntryKeys)) return entry;
  if (const YamlNode* filter = node.Find("device-filter")) {
    entry.filter = ReadFilter(reader, *filter);
  }
  if (const YamlNode* devices = reader.Require(node, "devices", kWhat)) {
    entry.devices = ReadDevices(reader, *devices);
    entry.devices_line = devices->line;
  }
  if (const YamlNode* enabled = reader.Require(node, "mig-enabled", kWhat)) {
    entry.mig = reader.Boolean("mig-enabled", *enabled);
  }
  const YamlNode* profiles = node.Find("mig-devices");
  if (profiles != nullptr) entry.profiles = ReadProfiles(reader, *profiles);
  if (entry.mig && profiles == nullptr) {
    reader.Complain(node.line, "an entry with 'mig-enabled: true' needs the key 'mig-devices'");
  }
  if (profiles != nullptr && !entry.mig && !entry.profiles.empty()) {
    reader.Complain(profiles->line, "mig-devices: contradicts 'mig-enabled: false'");
  }
  return entry;
}

std::vector<Config> ReadConfigs(YamlReader& reader, const YamlNode& root) {
  constexpr std::string_view kWhat = "a mig-parted file";
  std::vector<Config> configs;
  if (!reader.ExpectMapping(root, kWhat, kFileKeys)) return configs;
  const YamlNode* version = reader.Require(root, "version", kWhat);
  if (version != nullptr && version->text != "v1") {
    reader.Complain(version->line,
                    fmt::format("version: {} is unknown; it is v1", Quoted(version->text)));
  }
  const YamlNode* all = reader.Require(root, "mig-configs", kWhat);
  if (all == nullptr) return configs;
  if (all->kind != YamlNode::Kind::kMapping || all->keys.empty()) {
    reader.Complain(all->line, "mig-configs: is a mapping with at least one config");
    return configs;
  }
  for (std::size_t i = 0; i < all->keys.size(); ++i) {
    Config config{all->keys[i], {}};
    for (const YamlNode& item : reader.List(config.name, all->items[i])) {
      config.entries.push_back(ReadEntry(reader, item));
    }
    if (config.entries.empty()) {
      reader.Complain(all->key_lines[i],
                      fmt::format("config {} has no entries", Quoted(config.name)));
    }
    configs.push_back(std::move(config));
  }
  return configs;
}

Result<const Config*> Select(const std::vector<Config>& configs, std::string_view file_name,
                             std::string_view name) {
  std::vector<std::string_view> names;
  for (const Config& config : configs) {
    if (config.name == name) return &config;
    names.push_back(config.name);
  }
  std::string hint = DidYouMean(name, names);
  if (hint.empty()) hint = "; it has " + OneOf(names);
  return Fail(ErrorCode::kNotFound,
              fmt::format("{} has no config {}{}", file_name, Quoted(name), hint));
}

// The one GPU kind that the config's device filters speak of.
Result<const gpu::GpuModel*> KindFromFilters(const Config& config) {
  std::set<const gpu::GpuModel*> kinds;
  for (const Entry& entry : config.entries) {
    for (const std::uint32_t id : entry.filter) {
      if (const gpu::GpuModel* model = gpu::FindGpuModelByPciId(id)) kinds.insert(model);
    }
  }
  if (kinds.size() == 1) return *kinds.begin();
  std::vector<std::string_view> names;
  for (const gpu::GpuModel& model : gpu::Catalogue()) {
    if (kinds.contains(&model)) names.push_back(model.name);
  }
  return Fail(
      ErrorCode::kInvalidArgument,
      fmt::format("config {} does not say for which GPU it is{}; name the kind (--kind)",
                  Quoted(config.name), names.empty() ? "" : ": its filters allow " + OneOf(names)));
}

bool Passes(const Entry& entry, const gpu::GpuModel& model) {
  return entry.filter.empty() || std::ranges::any_of(entry.filter, [&](std::uint32_t id) {
           return std::ranges::find(model.pci_device_ids, id) != model.pci_device_ids.end();
         });
}

// Turns the entries of one config into GPUs.
class PlanMaker {
 public:
  PlanMaker(YamlReader& reader, const gpu::GpuModel& model, std::optional<int> gpus)
      : reader_(reader), model_(model), gpus_(gpus) {}

  void Add(const Entry& entry) {
    PlannedGpu gpu{.kind = model_.name, .mig = entry.mig, .line = {entry.line}};
    for (const ProfileCount& profile : entry.profiles) {
      CheckProfile(profile);
      const PlannedInstance instance{.profile = profile.profile, .line = {profile.line}};
      gpu.instances.insert(gpu.instances.end(), static_cast<std::size_t>(profile.count), instance);
    }
    for (const Device& device : DevicesOf(entry)) AddDevice(device, gpu);
  }

  // By index.
  Plan Take() {
    Plan plan;
    for (auto& [index, gpu] : made_) plan.gpus.push_back(std::move(gpu));
    return plan;
  }

 private:
  void CheckProfile(const ProfileCount& profile) {
    if (model_.FindProfile(profile.profile)) return;
    std::vector<std::string_view> names;
    names.reserve(model_.profiles.size());
    for (const gpu::MigProfile& known : model_.profiles) names.push_back(known.name);
    std::string hint = DidYouMean(profile.profile, names);
    if (profile.profile.find("c.") != std::string::npos) {
      hint = "; a plan gives each GPU instance one compute instance of its full size";
    }
    if (hint.empty()) hint = "; it has " + OneOf(names);
    reader_.Complain(profile.line, fmt::format("{} has no profile {}{}", model_.name,
                                               Quoted(profile.profile), hint));
  }

  std::vector<Device> DevicesOf(const Entry& entry) {
    if (entry.devices) return *entry.devices;
    if (!gpus_) {
      reader_.Complain(entry.devices_line,
                       "devices: 'all' needs the number of GPUs in the node (--gpus)");
      return {};
    }
    std::vector<Device> devices;
    devices.reserve(static_cast<std::size_t>(*gpus_));
    for (int index = 0; index < *gpus_; ++index) devices.push_back({index, entry.devices_line});
    return devices;
  }

  void AddDevice(const Device& device, PlannedGpu gpu) {
    if (gpus_ && device.index >= *gpus_) {
      reader_.Complain(device.line, fmt::format("devices: there is no GPU {} in a node of {}",
                                                device.index, *gpus_));
    }
    const int line = gpu.line.number;
    gpu.gpu = device.index;
    const auto [first, is_new] = made_.emplace(device.index, std::move(gpu));
    if (is_new) return;
    reader_.Complain(device.line,
                     fmt::format("devices: the entry on line {} sets GPU {}, which the entry on "
                                 "line {} sets already",
                                 line, device.index, first->second.line.number));
  }

  YamlReader& reader_;
  const gpu::GpuModel& model_;
  std::optional<int> gpus_;
  std::map<int, PlannedGpu> made_;
};

}  // namespace

Result<Plan> ImportMigParted(std::string_view text, std::string_view file_name,
                             const MigPartedSelection& selection) {
  const auto root = ParseYaml(text, file_name);
  if (!root) return Fail(root.error());
  if (root->kind == YamlNode::Kind::kNull) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("{}: the file is empty; a mig-parted file begins with 'version: v1'",
                            file_name));
  }
  YamlReader reader(file_name);
  const std::vector<Config> configs = ReadConfigs(reader, *root);
  if (!reader.ok()) return Fail(reader.error());

  const auto config = Select(configs, file_name, selection.config);
  if (!config) return Fail(config.error());
  const auto model =
      selection.kind ? gpu::FindGpuModel(*selection.kind) : KindFromFilters(**config);
  if (!model) return Fail(model.error());

  PlanMaker maker(reader, **model, selection.gpus);
  for (const Entry& entry : (*config)->entries) {
    if (Passes(entry, **model)) maker.Add(entry);
  }
  if (!reader.ok()) return Fail(reader.error());
  Plan plan = maker.Take();
  if (plan.gpus.empty()) {
    return Fail(ErrorCode::kInvalidArgument, fmt::format("{}: config {} sets no {}", file_name,
                                                         Quoted(selection.config), (*model)->name));
  }
  return plan;
}

}  // namespace divvy::plan
