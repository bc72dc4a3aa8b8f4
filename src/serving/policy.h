#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "serving/board.h"
#include "serving/request.h"

namespace divvy::serving {

// Decides which replica takes a request. docs/design/routing.md says what each
// one assumes. Not thread-safe.
class Policy {
 public:
  // Where requests wait.
  enum class Binding {
    kEarly,  // At the replica that was chosen when they came.
    kLate,   // In one queue a model; a lane that is free takes from it.
  };

  virtual ~Policy() = default;

  virtual Binding binding() const = 0;

  // With early binding, the replica whose queue the request joins: one whose group
  // takes it; nothing when there is none. With late binding, a replica with an idle
  // lane that shall take it now; nothing means that it waits for a lane.
  [[nodiscard]] virtual std::optional<ReplicaId> Choose(const Board& board, const Request& request,
                                                        TimePoint now) = 0;
};

// A way of routing, as `--route` names it: a policy and what the dispatcher adds.
struct RouteOptions {
  std::string name = "divvy";  // Of the policy alone.
  bool merge = true;           // Requests that wait run together, up to the table's largest batch.
  bool shed = true;            // What cannot be answered in time is refused, not served late.
  bool learn = true;           // Estimates are corrected by what batches really took.
  bool by_deadline = true;     // Queues go by deadline, not by arrival.
};

// The policy `divvy`, or a baseline by its name followed by what to add to it,
// e.g. "elsa+merge+shed": as published, elsa, fifs, shortest-queue and weighted
// merge nothing and refuse nothing; "divvy-merge" takes from ours.
// kInvalidArgument names the known ones.
[[nodiscard]] Result<RouteOptions> ParseRoute(std::string_view text);

// As ParseRoute reads it.
[[nodiscard]] std::string Describe(const RouteOptions& options);

struct PolicyName {
  std::string_view name;
  std::string_view what;  // For --help.
};
[[nodiscard]] std::span<const PolicyName> PolicyNames();

// A policy by name. REQUIRES: one of PolicyNames().
[[nodiscard]] std::unique_ptr<Policy> MakePolicy(std::string_view name, const Setup& setup);

}  // namespace divvy::serving
