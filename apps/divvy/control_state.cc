#include "control_state.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/text_safety.h"

namespace divvy::app {
namespace {

using control::Cell;
using control::CellState;
using control::Estate;
using control::View;
using nlohmann::json;
using planner::Work;

constexpr int kFormat = 1;
constexpr int kMostSlots = 1'000'000'000;

// A number that two estates share only if decisions for one make sense for the other
// (FNV-1a over what they are made of).
class Fingerprint {
 public:
  void Add(std::string_view text) {
    for (const char c : text) Mix(static_cast<unsigned char>(c));
    Mix(0);
  }
  void Add(double number) { Add(fmt::format("{:a}", number)); }

  std::string Text() const { return fmt::format("{:016x}", hash_); }

 private:
  void Mix(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }

  std::uint64_t hash_ = 0xcbf29ce484222325ULL;
};

std::string FingerprintOf(const Estate& estate) {
  Fingerprint print;
  print.Add(estate.gpu->name);
  print.Add(estate.gpus);
  print.Add(Seconds(estate.slot));
  print.Add(estate.window);
  print.Add(estate.restart);
  for (const control::EstateTenant& tenant : estate.tenants) {
    print.Add(tenant.name);
    print.Add(tenant.weight);
    print.Add(tenant.mean_load);
    for (const control::Offer& offer : tenant.by_profile) {
      print.Add(offer.capacity);
      for (const double slots : offer.retraining_slots) print.Add(slots);
    }
    if (!tenant.learning) continue;
    print.Add(tenant.learning->accuracy);
    for (const auto& option : tenant.learning->options) {
      print.Add(option.name);
      print.Add(option.accuracy);
    }
  }
  return print.Text();
}

json CellJson(const Estate& estate, const CellState& state) {
  const auto& place = std::get<gpu::MigInstance>(state.cell.where);
  json cell = {{"gpu", state.cell.gpu},
               {"profile", estate.gpu->profile(place.profile).name},
               {"start", place.start},
               {"tenant", state.cell.work.tenant},
               {"ready_at", state.ready_at}};
  if (state.cell.work.kind == Work::Kind::kRetrain) {
    cell["retraining"] = state.cell.work.retraining;
    cell["progress"] = state.progress;
  }
  return cell;
}

// Fields of an object that may hold anything. The first that is not as it should be makes
// the rest placeholders.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  bool ok() const { return ok_; }

  double Number(const char* name, double least, double most) {
    const json* const field = Find(name);
    if (field == nullptr || !field->is_number()) return Fault();
    const double value = field->get<double>();
    return value >= least && value <= most ? value : Fault();
  }

  int Integer(const char* name, int least, int most) {
    const double value = Number(name, least, most);
    return value == std::floor(value) ? static_cast<int>(value) : static_cast<int>(Fault());
  }

  std::string Text(const char* name) {
    const json* const field = Find(name);
    if (field == nullptr || !field->is_string()) {
      Fault();
      return {};
    }
    return field->get<std::string>();
  }

  bool Has(const char* name) const { return Find(name) != nullptr; }

 private:
  const json* Find(const char* name) const {
    if (!object_.is_object()) return nullptr;
    const auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  double Fault() {
    ok_ = false;
    return 0;
  }

  const json& object_;
  bool ok_ = true;
};

std::optional<CellState> ReadCell(const json& object, const Estate& estate) {
  Fields fields(object);
  const auto profile = estate.gpu->FindProfile(fields.Text("profile"));
  if (!profile) return std::nullopt;
  CellState state;
  state.cell.gpu = fields.Integer("gpu", 0, estate.gpus - 1);
  state.cell.where = gpu::MigInstance{fields.Integer("start", 0, 31), *profile};
  state.cell.work.tenant = static_cast<std::size_t>(
      fields.Integer("tenant", 0, static_cast<int>(estate.tenants.size()) - 1));
  state.ready_at = fields.Number("ready_at", 0, 2.0 * kMostSlots);
  if (fields.Has("retraining")) {
    state.cell.work.kind = Work::Kind::kRetrain;
    state.cell.work.retraining = static_cast<std::size_t>(fields.Integer("retraining", 0, 1000));
    state.progress = fields.Number("progress", 0, 1);
  }
  if (!fields.ok()) return std::nullopt;
  return state;
}

bool ReadTenants(const json& array, const Estate& estate, View& view) {
  if (!array.is_array() || array.size() != estate.tenants.size()) return false;
  for (const json& object : array) {
    Fields fields(object);
    control::TenantState& tenant = view.tenants.emplace_back();
    tenant.trained = fields.Number("trained", 0, 1);
    tenant.data_slot = fields.Integer("data_slot", -kMostSlots, view.slot);
    tenant.retrained = fields.Integer("retrained", 0, 1) == 1;
    if (!fields.ok()) return false;
  }
  return true;
}

bool ReadCells(const json& array, const Estate& estate, View& view) {
  if (!array.is_array()) return false;
  std::vector<Cell> cells;
  for (const json& object : array) {
    const auto state = ReadCell(object, estate);
    if (!state) return false;
    cells.push_back(state->cell);
    view.cells.push_back(*state);
  }
  // What runs must be what could be decided now.
  return !control::FindFault(estate, view, cells);
}

}  // namespace

std::string FormatControlState(const Estate& estate, std::string_view policy, const View& view) {
  json tenants = json::array();
  for (const control::TenantState& tenant : view.tenants) {
    tenants.push_back({{"trained", tenant.trained},
                       {"data_slot", tenant.data_slot},
                       {"retrained", tenant.retrained ? 1 : 0}});
  }
  json cells = json::array();
  for (const CellState& state : view.cells) cells.push_back(CellJson(estate, state));
  const json state = {{"divvy_control", kFormat},       {"policy", policy},
                      {"fleet", FingerprintOf(estate)}, {"slot", view.slot},
                      {"tenants", std::move(tenants)},  {"cells", std::move(cells)}};
  return state.dump(1) + "\n";
}

Result<View> ParseControlState(std::string_view text, const Estate& estate,
                               std::string_view policy) {
  const auto damaged = [] { return Fail(ErrorCode::kInvalidArgument, "it is damaged"); };
  const json state = json::parse(text, nullptr, false);
  Fields fields(state);
  if (fields.Integer("divvy_control", kFormat, kFormat) != kFormat) return damaged();
  const std::string by = fields.Text("policy");
  const std::string fleet = fields.Text("fleet");
  View view;
  view.slot = fields.Integer("slot", 0, kMostSlots);
  if (!fields.ok() || !state.contains("tenants") || !state.contains("cells")) return damaged();
  if (fleet != FingerprintOf(estate)) {
    return Fail(ErrorCode::kFailedPrecondition, "it is of another fleet");
  }
  if (by != policy) {
    return Fail(ErrorCode::kFailedPrecondition, fmt::format("it is of the policy {}", Quoted(by)));
  }
  if (!ReadTenants(state["tenants"], estate, view)) return damaged();
  for (std::size_t m = 0; m < view.tenants.size(); ++m) {
    view.tenants[m].accuracy = control::AccuracyAt(estate, view, m, view.slot);
  }
  if (!ReadCells(state["cells"], estate, view)) return damaged();
  return view;
}

}  // namespace divvy::app
