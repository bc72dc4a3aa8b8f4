#include "server/service.h"

#include <fmt/format.h>

#include <utility>

namespace divvy::server {
namespace {

// Bytes that were taken off a budget, and what keeps them alive.
class Held {
 public:
  Held(std::shared_ptr<net::ByteBudget> budget, std::size_t bytes,
       std::shared_ptr<const void> owner = nullptr)
      : budget_(std::move(budget)), bytes_(bytes), owner_(std::move(owner)) {}
  ~Held() { budget_->GiveBack(bytes_); }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

 private:
  std::shared_ptr<net::ByteBudget> budget_;
  std::size_t bytes_;
  std::shared_ptr<const void> owner_;
};

}  // namespace

Result<std::shared_ptr<const void>> Service::Hold(std::size_t bytes) const {
  bytes += kPerRequest;
  if (!budget->Take(bytes)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("requests of {} bytes are under way already", budget->taken()));
  }
  return std::make_shared<const Held>(budget, bytes);
}

Result<void> Service::HoldAnswer(std::vector<net::Slice>& body) const {
  std::size_t bytes = 0;
  for (const net::Slice& slice : body) bytes += slice.size() + kPerSlice;
  if (!budget->Take(bytes)) {
    return Fail(ErrorCode::kResourceExhausted,
                fmt::format("requests of {} bytes are under way already: no room for an answer of "
                            "{}",
                            budget->taken(), bytes));
  }
  for (net::Slice& slice : body) {
    slice =
        net::Slice(std::make_shared<const Held>(budget, slice.size() + kPerSlice, slice.owner()),
                   slice.view());
  }
  return {};
}

void Service::LogAccess(std::string_view protocol, std::string_view model, std::string_view status,
                        Duration took) const {
  if (access_log == nullptr) return;
  access_log->Info("request", {{"protocol", std::string(protocol)},
                               {"model", std::string(model)},
                               {"status", std::string(status)},
                               {"ms", fmt::format("{:.3f}", Milliseconds(took))}});
}

kserve::ServerMetadata Service::Describe() const {
  return {.name = options.name,
          .version = options.version,
          .extensions = {"model_repository", "schedule_policy", "model_configuration",
                         "binary_tensor_data", "parameters", "statistics"}};
}

kserve::ModelConfig Service::ConfigOf(const Generation::Model& model) const {
  kserve::ModelConfig config;
  if (model.metadata) config.metadata = *model.metadata;
  config.metadata.name = model.spec.name;
  if (config.metadata.max_batch > 0) config.metadata.max_batch = model.most_items;
  config.backend = config.metadata.platform == "divvy_synthetic" ? "synthetic" : "pytorch";
  config.dynamic_batching = config.metadata.max_batch > 0;
  config.instances = generation->router().up(model.id);
  return config;
}

std::vector<kserve::ModelStatistics> Service::Statistics(const Generation::Model* model) const {
  std::vector<kserve::ModelStatistics> all;
  for (const Generation::Model& one : generation->models()) {
    if (model == nullptr || model == &one) all.push_back(metrics.Statistics(one.spec.name));
  }
  return all;
}

std::vector<kserve::IndexEntry> Service::Index(bool ready_only) const {
  std::vector<kserve::IndexEntry> index;
  for (const Generation::Model& model : generation->models()) {
    const bool is_ready = generation->IsReady(model);
    if (ready_only && !is_ready) continue;
    index.push_back({.name = model.spec.name,
                     .version = "1",
                     .state = is_ready         ? "READY"
                              : model.metadata ? "UNAVAILABLE"
                                               : "LOADING",
                     .reason = is_ready ? "" : "no worker is up"});
  }
  return index;
}

bool HasToken(std::string_view given, std::string_view token) {
  constexpr std::string_view kScheme = "bearer ";
  if (given.size() < kScheme.size()) return false;
  for (std::size_t i = 0; i < kScheme.size(); ++i) {
    if ((given[i] | 0x20) != kScheme[i]) return false;
  }
  given.remove_prefix(kScheme.size());
  unsigned difference = given.size() == token.size() ? 0 : 1;
  for (std::size_t i = 0; i < token.size(); ++i) {
    const char c = given.empty() ? '\0' : given[i % given.size()];
    difference |= static_cast<unsigned char>(c ^ token[i]);
  }
  return difference == 0;
}

kserve::Parameters TimingOf(const Answer& answer, TimePoint arrival, TimePoint deadline,
                            const std::string& partition) {
  const auto us = [](Duration duration) {
    return static_cast<std::int64_t>(duration.count() / 1000);
  };
  return {{"divvy_queue_us", us(answer.started - arrival)},
          {"divvy_compute_us", us(answer.finished - answer.started)},
          {"divvy_deadline_us", us(deadline - arrival)},
          {"divvy_batch_items", static_cast<std::int64_t>(answer.batch_items)},
          {"divvy_partition", partition}};
}

Error ErrorOf(serving::Refusal why, const Generation::Model& model) {
  switch (why) {
    case serving::Refusal::kTooLarge:
      return {ErrorCode::kInvalidArgument,
              fmt::format("inference request batch-size must be <= {} for '{}'", model.most_items,
                          model.spec.name)};
    case serving::Refusal::kNoReplica:
      return {ErrorCode::kUnavailable,
              fmt::format("model '{}' has no worker that is up", model.spec.name)};
    case serving::Refusal::kHopeless:
      return {
          ErrorCode::kResourceExhausted,
          fmt::format("model '{}' cannot answer the request before its deadline", model.spec.name)};
    case serving::Refusal::kLost:
      return {ErrorCode::kUnavailable,
              fmt::format("the worker of '{}' failed, and no time is left to try another",
                          model.spec.name)};
  }
  return {ErrorCode::kUnavailable, "refused"};
}

}  // namespace divvy::server
