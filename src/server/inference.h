#pragma once

#include <functional>
#include <string>
#include <variant>

#include "base/time.h"
#include "net/http.h"
#include "serving/request.h"

namespace divvy::server {

// What a worker answered, be it a result or an error of its own, and when it ran.
struct Answer {
  net::HttpResponse response;
  serving::ReplicaId replica{};
  TimePoint started{};
  TimePoint finished{};
  int batch_items = 0;  // Of the whole batch it ran in.
};

using Outcome = std::variant<Answer, serving::Refusal>;

// A request under way, whichever way it came in.
struct Inference {
  serving::ModelId model{};
  int items = 1;
  int priority = 0;
  TimePoint arrival{};
  TimePoint deadline{};
  int losses = 0;                   // Workers that failed while they ran it.
  net::HttpQuestion question = {};  // What the worker is sent; may be sent again to another.
  // Called exactly once, from the loop's thread.
  std::function<void(Outcome)> done = {};
};

}  // namespace divvy::server
