#pragma once

#include <cstdint>
#include <string_view>

#include "base/time.h"

namespace divvy::serving {

enum class ModelId : std::uint32_t {};
enum class ReplicaId : std::uint32_t {};
enum class LaneId : std::uint32_t {};

// A request as routing sees it. What its tensors hold is the caller's; `tag` is
// how the caller knows it again.
struct Request {
  std::uint64_t tag = 0;
  ModelId model{};
  int batch = 1;     // Items that must run together.
  int priority = 0;  // 0 first. See Dispatcher for what a level means.
  TimePoint arrival{};
  TimePoint deadline{};
};

// Why a request was not answered.
enum class Refusal {
  kTooLarge,   // No replica of its model takes so many items.
  kNoReplica,  // No replica of its model is up.
  kHopeless,   // It can no longer be answered before its deadline.
  kLost,       // The worker that ran it failed, and no time is left to try again.
};

// "too large", "no replica", "hopeless", "lost".
[[nodiscard]] std::string_view Describe(Refusal refusal);

}  // namespace divvy::serving
