#include "server/admission.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text_safety.h"

namespace divvy::server {
namespace {

constexpr int kLevels = Metrics::kPriorities;
constexpr double kMostMs = 24 * 3600 * 1000.0;
constexpr std::size_t kMostItems = 1 << 20;

// A number of either kind; nothing for a text or a truth.
std::optional<double> Number(const kserve::Parameter& parameter) {
  if (const auto* value = std::get_if<std::int64_t>(&parameter)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&parameter)) {
    return static_cast<double>(*value);
  }
  if (const auto* value = std::get_if<double>(&parameter)) return *value;
  return {};
}

[[nodiscard]] Result<std::optional<Duration>> TimeOf(const kserve::InferRequest& request,
                                                     const char* name, double per_ms) {
  const kserve::Parameter* parameter = kserve::Find(request.parameters, name);
  if (parameter == nullptr) return std::optional<Duration>();
  const std::optional<double> value = Number(*parameter);
  const double ms = value ? *value / per_ms : -1;
  if (!(ms >= 0)) {
    return Fail(ErrorCode::kInvalidArgument,
                fmt::format("parameter '{}' must be a number from 0 up", name));
  }
  return std::optional<Duration>(FromMilliseconds(std::min(ms, kMostMs)));
}

[[nodiscard]] Result<int> PriorityOf(const kserve::InferRequest& request, int usual) {
  const kserve::Parameter* parameter = kserve::Find(request.parameters, "priority");
  if (parameter == nullptr) return usual;
  const std::optional<double> value = Number(*parameter);
  if (!value || *value < 0 || *value != std::floor(*value)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        "parameter 'priority' must be a whole number, 1 (highest) to 8, or 0 for the model's "
        "own");
  }
  if (*value == 0 || *value > kLevels) return usual;
  return static_cast<int>(*value) - 1;
}

[[nodiscard]] Result<int> ItemsOf(const Generation::Model& model,
                                  const kserve::InferRequest& request) {
  const bool batches = model.metadata && model.metadata->max_batch > 0;
  if (!batches || request.inputs.empty()) return 1;
  const kserve::Shape& shape = request.inputs.front().shape;
  const std::int64_t items = shape.empty() ? 0 : shape.front();
  if (items < 1 || items > static_cast<std::int64_t>(kMostItems)) {
    return Fail(
        ErrorCode::kInvalidArgument,
        fmt::format("input {} of model '{}' must have a batch of 1 to {} as its first "
                    "dimension",
                    Quoted(request.inputs.front().name), model.spec.name, model.most_items));
  }
  return static_cast<int>(items);
}

}  // namespace

Result<const Generation::Model*> FindModel(const Generation& generation, const std::string& name,
                                           const std::string& version) {
  const Generation::Model* model = generation.Find(name);
  if (model == nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("Request for unknown model: {} is not found", Quoted(name)));
  }
  if (!version.empty() && version != "1") {
    return Fail(ErrorCode::kNotFound, fmt::format("Request for unknown model: '{}' version {} is "
                                                  "not found",
                                                  name, Quoted(version)));
  }
  return model;
}

bool WantsTiming(const kserve::InferRequest& request) {
  const kserve::Parameter* parameter = kserve::Find(request.parameters, "divvy_timing");
  const bool* wants = parameter == nullptr ? nullptr : std::get_if<bool>(parameter);
  return wants != nullptr && *wants;
}

Result<Inference> Admit(const Generation& generation, const kserve::InferRequest& request,
                        TimePoint arrival, std::optional<TimePoint> transport_deadline) {
  const auto model = FindModel(generation, request.model, request.version);
  if (!model) return Fail(model.error());
  const auto items = ItemsOf(**model, request);
  if (!items) return Fail(items.error());
  const auto priority = PriorityOf(request, (*model)->spec.priority);
  if (!priority) return Fail(priority.error());
  const auto deadline = TimeOf(request, "deadline_ms", 1);
  if (!deadline) return Fail(deadline.error());
  const auto slo = TimeOf(request, "slo_ms", 1);
  if (!slo) return Fail(slo.error());
  const auto timeout = TimeOf(request, "timeout", 1000);
  if (!timeout) return Fail(timeout.error());

  Duration time = (*model)->spec.slo;
  if (*deadline) time = **deadline;
  if (*slo) time = *deadline ? std::min(time, **slo) : **slo;
  // Triton: no timeout is 0.
  if (*timeout && **timeout > Duration::zero()) time = std::min(time, **timeout);
  Inference inference;
  inference.model = (*model)->id;
  inference.items = *items;
  inference.priority = *priority;
  inference.arrival = arrival;
  inference.deadline = arrival + time;
  if (transport_deadline) {
    inference.deadline = std::max(arrival, std::min(inference.deadline, *transport_deadline));
  }
  return inference;
}

}  // namespace divvy::server
