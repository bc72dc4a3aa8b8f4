#include "server/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iterator>

namespace divvy::server {
namespace {

std::string Escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

void Head(std::string& text, std::string_view family, std::string_view type,
          std::string_view help) {
  fmt::format_to(std::back_inserter(text), "# HELP {} {}\n# TYPE {} {}\n", family, help, family,
                 type);
}

std::uint64_t Ns(Duration duration) {
  return static_cast<std::uint64_t>(std::max<Duration::rep>(duration.count(), 0));
}

void Count(kserve::DurationStat& stat, std::uint64_t ns, std::uint64_t count = 1) {
  stat.count += count;
  stat.ns += ns;
}

template <typename Item>
std::size_t FindOrAdd(std::vector<Item>& items, auto matches, auto make) {
  const auto found = std::ranges::find_if(items, matches);
  if (found != items.end()) return static_cast<std::size_t>(found - items.begin());
  items.push_back(make());
  return items.size() - 1;
}

}  // namespace

void Metrics::Histogram::Add(Duration duration) {
  const double ms = Milliseconds(duration);
  const auto bucket = std::ranges::lower_bound(kBounds, ms) - kBounds.begin();
  ++counts[static_cast<std::size_t>(bucket)];
  sum_ms += ms;
  ++count;
}

Tally::Tally(Metrics& metrics, const std::vector<std::string>& models,
             const std::vector<Metrics::Partition>& partitions)
    : metrics_(metrics) {
  for (const std::string& name : models) {
    model_at_.push_back(FindOrAdd(
        metrics_.models_, [&](const Metrics::Model& model) { return model.name == name; },
        [&] {
          Metrics::Model model;
          model.name = name;
          model.statistics.name = name;
          return model;
        }));
  }
  for (const Metrics::Partition& partition : partitions) {
    lane_at_.push_back(FindOrAdd(
        metrics_.lanes_,
        [&](const Metrics::Lane& lane) {
          return lane.partition.name == partition.name && lane.partition.model == partition.model;
        },
        [&] {
          Metrics::Lane lane;
          lane.partition = partition;
          return lane;
        }));
  }
}

void Tally::Started(serving::ReplicaId replica, int items) {
  Metrics::Lane& lane = LaneOf(replica);
  ++lane.batches;
  lane.items += static_cast<std::uint64_t>(items);
}

void Tally::Lost(serving::ReplicaId replica) { ++LaneOf(replica).lost; }
void Tally::Restarted(serving::ReplicaId replica) { ++LaneOf(replica).restarts; }

void Tally::Answered(const serving::Request& request, const serving::Service& service, int status) {
  Metrics::Model& model = ModelOf(request.model);
  Metrics::Lane& lane = LaneOf(service.replica);
  const auto level = static_cast<std::size_t>(request.priority);
  const Duration total = service.finished - request.arrival;
  const Duration queue = service.started - request.arrival;
  lane.queue.Add(queue);
  lane.compute.Add(service.finished - service.started);
  kserve::ModelStatistics& statistics = model.statistics;
  if (status != 200) {
    // What the worker finds wrong with a request is the client's doing, as what we find is.
    ++(status >= 400 && status < 500 ? model.rejected : model.failed);
    Count(statistics.fail, Ns(total));
    return;
  }
  model.latency[level].Add(total);
  if (service.finished <= request.deadline) {
    ++model.in_time;
  } else {
    ++model.late;
  }
  statistics.inference_count += static_cast<std::uint64_t>(request.batch);
  statistics.last_inference_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(
                                     std::chrono::system_clock::now().time_since_epoch())
                                     .count());
  Count(statistics.success, Ns(total));
  Count(statistics.queue, Ns(queue));
}

void Tally::Took(serving::ReplicaId replica, Duration expected, Duration took) {
  if (took.count() <= 0) return;
  Metrics::Lane& lane = LaneOf(replica);
  const double ratio = static_cast<double>(expected.count()) / static_cast<double>(took.count());
  lane.error_sum += ratio > 1 ? ratio - 1 : 1 - ratio;
  ++lane.errors;
}

void Tally::Computed(serving::ReplicaId replica, int items, std::array<std::uint64_t, 3> ns) {
  Metrics::Lane& lane = LaneOf(replica);
  const auto model = std::ranges::find_if(metrics_.models_, [&](const Metrics::Model& one) {
    return one.name == lane.partition.model;
  });
  if (model == metrics_.models_.end()) return;
  kserve::ModelStatistics& statistics = model->statistics;
  ++statistics.execution_count;
  kserve::ModelStatistics::Batch& batch = statistics.batches[static_cast<std::uint64_t>(items)];
  Count(batch.compute_input, ns[0]);
  Count(batch.compute_infer, ns[1]);
  Count(batch.compute_output, ns[2]);
  Count(statistics.compute_input, ns[0]);
  Count(statistics.compute_infer, ns[1]);
  Count(statistics.compute_output, ns[2]);
}

void Tally::Refused(const serving::Request& request, serving::Refusal why, TimePoint now) {
  Metrics::Model& model = ModelOf(request.model);
  ++model.refused[static_cast<std::size_t>(why)];
  Count(model.statistics.fail, Ns(now - request.arrival));
}

void Metrics::Rejected(std::string_view name) {
  const auto model =
      std::ranges::find_if(models_, [&](const Model& one) { return one.name == name; });
  ++(model == models_.end() ? unknown_ : model->rejected);
}

void Metrics::Canceled(std::string_view name, Duration took, bool in_time) {
  if (Model* const model = NotAnswered(name, took, in_time)) ++model->canceled;
}

void Metrics::NoRoom(std::string_view name, Duration took, bool in_time) {
  if (Model* const model = NotAnswered(name, took, in_time)) ++model->no_room;
}

Metrics::Model* Metrics::NotAnswered(std::string_view name, Duration took, bool in_time) {
  const auto model =
      std::ranges::find_if(models_, [&](const Model& one) { return one.name == name; });
  if (model == models_.end()) return nullptr;
  --(in_time ? model->in_time : model->late);
  --model->statistics.success.count;
  model->statistics.success.ns -= Ns(took);
  Count(model->statistics.fail, Ns(took));
  return &*model;
}

kserve::ModelStatistics Metrics::Statistics(std::string_view name) const {
  const auto model =
      std::ranges::find_if(models_, [&](const Model& one) { return one.name == name; });
  return model == models_.end() ? kserve::ModelStatistics{} : model->statistics;
}

std::string Metrics::Render(const Gauges& gauges) const {
  std::string text;
  RenderModels(text);
  RenderLanes(text, gauges);
  const auto gauge = [&](std::string_view name, std::string_view help, std::size_t value) {
    Head(text, name, "gauge", help);
    fmt::format_to(std::back_inserter(text), "{} {}\n", name, value);
  };
  gauge("divvy_pending_requests", "Requests that came and are not answered.", gauges.pending);
  gauge("divvy_waiting_requests", "Of them, those that wait for a partition.", gauges.waiting);
  gauge("divvy_held_bytes", "Of requests that come or are under way, and of answers not taken.",
        gauges.held_bytes);
  gauge("divvy_http_connections", "Open HTTP connections.", gauges.http_connections);
  gauge("divvy_grpc_connections", "Open gRPC connections.", gauges.grpc_connections);
  Head(text, "divvy_unknown_requests_total", "counter",
       "Requests for models that are not served, and such as could not be read.");
  fmt::format_to(std::back_inserter(text), "divvy_unknown_requests_total {}\n", unknown_);
  return text;
}

void Metrics::RenderModels(std::string& text) const {
  const auto out = [&] { return std::back_inserter(text); };
  const auto each = [&](std::string_view family, std::string_view help, auto value) {
    Head(text, family, "counter", help);
    for (const Model& model : models_) {
      fmt::format_to(out(), "{}{{model=\"{}\",version=\"1\"}} {}\n", family, Escaped(model.name),
                     value(model));
    }
  };
  each("nv_inference_request_success", "Requests answered with a result.",
       [](const Model& m) { return m.statistics.success.count; });
  Head(text, "nv_inference_request_failure", "counter", "Requests that got no result.");
  for (const Model& model : models_) {
    const auto refused = [&](serving::Refusal why) {
      return model.refused[static_cast<std::size_t>(why)];
    };
    const std::uint64_t lost = refused(serving::Refusal::kLost);
    const std::uint64_t shed =
        refused(serving::Refusal::kTooLarge) + refused(serving::Refusal::kNoReplica) +
        refused(serving::Refusal::kHopeless) + model.rejected + model.no_room;
    for (const auto& [reason, count] : {std::pair<const char*, std::uint64_t>{"REJECTED", shed},
                                        {"CANCELED", model.canceled},
                                        {"BACKEND", model.failed + lost},
                                        {"OTHER", 0}}) {
      fmt::format_to(
          out(), "nv_inference_request_failure{{model=\"{}\",version=\"1\",reason=\"{}\"}} {}\n",
          Escaped(model.name), reason, count);
    }
  }
  each("nv_inference_count", "Items inferred.",
       [](const Model& m) { return m.statistics.inference_count; });
  each("nv_inference_exec_count", "Batches run.",
       [](const Model& m) { return m.statistics.execution_count; });
  each("nv_inference_request_duration_us", "Time of requests, added up.",
       [](const Model& m) { return (m.statistics.success.ns + m.statistics.fail.ns) / 1000; });
  each("nv_inference_queue_duration_us", "Time in queues, added up.",
       [](const Model& m) { return m.statistics.queue.ns / 1000; });
  each("nv_inference_compute_input_duration_us", "Time to join inputs, added up over batches.",
       [](const Model& m) { return m.statistics.compute_input.ns / 1000; });
  each("nv_inference_compute_infer_duration_us", "Time to run models, added up over batches.",
       [](const Model& m) { return m.statistics.compute_infer.ns / 1000; });
  each("nv_inference_compute_output_duration_us", "Time to split outputs, added up over batches.",
       [](const Model& m) { return m.statistics.compute_output.ns / 1000; });
  each("divvy_slo_in_time_total", "Requests answered before their deadline: goodput.",
       [](const Model& m) { return m.in_time; });
  each("divvy_slo_late_total", "Requests answered after their deadline.",
       [](const Model& m) { return m.late; });
  Head(text, "divvy_shed_total", "counter", "Requests that were refused, by reason.");
  for (const Model& model : models_) {
    for (std::size_t i = 0; i < model.refused.size(); ++i) {
      fmt::format_to(out(), "divvy_shed_total{{model=\"{}\",reason=\"{}\"}} {}\n",
                     Escaped(model.name), serving::Describe(static_cast<serving::Refusal>(i)),
                     model.refused[i]);
    }
    fmt::format_to(out(), "divvy_shed_total{{model=\"{}\",reason=\"{}\"}} {}\n",
                   Escaped(model.name), kNoRoom, model.no_room);
  }
  Head(text, "divvy_request_latency_ms", "histogram",
       "From arrival to answer, of requests with a result, by priority (0 is highest).");
  for (const Model& model : models_) {
    for (int level = 0; level < kPriorities; ++level) {
      const Histogram& histogram = model.latency[static_cast<std::size_t>(level)];
      if (histogram.count == 0) continue;
      RenderHistogram(text, "divvy_request_latency_ms",
                      fmt::format("model=\"{}\",priority=\"{}\"", Escaped(model.name), level),
                      histogram);
    }
  }
}

void Metrics::RenderLanes(std::string& text, const Gauges& gauges) const {
  const auto out = [&] { return std::back_inserter(text); };
  const auto labels = [](const Lane& lane) {
    return fmt::format("model=\"{}\",partition=\"{}\"", Escaped(lane.partition.model),
                       Escaped(lane.partition.name));
  };
  const auto each = [&](std::string_view family, std::string_view help, auto value) {
    Head(text, family, "counter", help);
    for (const Lane& lane : lanes_) {
      fmt::format_to(out(), "{}{{{}}} {}\n", family, labels(lane), value(lane));
    }
  };
  each("divvy_partition_batches_total", "Batches begun.", [](const Lane& l) { return l.batches; });
  each("divvy_partition_items_total", "Items in them.", [](const Lane& l) { return l.items; });
  each("divvy_partition_lost_total", "Batches lost with their worker, or with the way to it.",
       [](const Lane& l) { return l.lost; });
  each("divvy_partition_restarts_total", "Times its worker was started again.",
       [](const Lane& l) { return l.restarts; });
  Head(text, "divvy_estimate_error_ratio", "gauge",
       "Mean of |expected - took| / took over the partition's batches.");
  for (const Lane& lane : lanes_) {
    if (lane.errors == 0) continue;
    fmt::format_to(out(), "divvy_estimate_error_ratio{{{}}} {:.4g}\n", labels(lane),
                   lane.error_sum / static_cast<double>(lane.errors));
  }
  Head(text, "divvy_partition_queue_ms", "histogram", "Wait of requests before they ran there.");
  for (const Lane& lane : lanes_) {
    RenderHistogram(text, "divvy_partition_queue_ms", labels(lane), lane.queue);
  }
  Head(text, "divvy_partition_compute_ms", "histogram", "Time of the batches they ran in.");
  for (const Lane& lane : lanes_) {
    RenderHistogram(text, "divvy_partition_compute_ms", labels(lane), lane.compute);
  }
  Head(text, "divvy_partition_up", "gauge", "1 where its worker takes requests.");
  for (const auto& [partition, is_up] : gauges.up) {
    fmt::format_to(out(), "divvy_partition_up{{model=\"{}\",partition=\"{}\"}} {}\n",
                   Escaped(partition.model), Escaped(partition.name), is_up ? 1 : 0);
  }
}

void Metrics::RenderHistogram(std::string& text, std::string_view family, std::string_view labels,
                              const Histogram& histogram) {
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < histogram.counts.size(); ++i) {
    below += histogram.counts[i];
    const std::string bound = i < kBounds.size() ? fmt::format("{}", kBounds[i]) : "+Inf";
    fmt::format_to(std::back_inserter(text), "{}_bucket{{{},le=\"{}\"}} {}\n", family, labels,
                   bound, below);
  }
  fmt::format_to(std::back_inserter(text), "{}_sum{{{}}} {:.6g}\n{}_count{{{}}} {}\n", family,
                 labels, histogram.sum_ms, family, labels, histogram.count);
}

}  // namespace divvy::server
