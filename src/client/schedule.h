#pragma once

#include <optional>
#include <vector>

#include "base/time.h"
#include "workload/load.h"

namespace divvy::client {

// A request to be sent: when, counted from where measuring begins, of which model and how large.
struct Due {
  Duration at{};  // Below zero while the server is warmed up.
  int model = 0;
  int items = 1;

  friend bool operator==(const Due&, const Due&) = default;
};

// All models' arrivals in one order of time: first those that warm the server up, which are not
// counted, then those that are measured. What is measured is the same with and without a warm-up.
class Schedule {
 public:
  // Arrivals from 0 (included) to `length` (excluded) of `measured`, one stream a model, after
  // those within `warm_up_length` of `warm_up`.
  Schedule(std::vector<workload::ArrivalStream> measured, Duration length,
           std::vector<workload::ArrivalStream> warm_up = {}, Duration warm_up_length = {});

  // The next one, in order of time and, at one time, of models; nothing when all is over.
  [[nodiscard]] std::optional<Due> Next();

  Duration length() const { return measured_.length; }
  Duration warm_up_length() const { return warm_up_.length; }

 private:
  struct Part {
    std::vector<workload::ArrivalStream> streams;
    Duration length;
    std::vector<Due> heads = {};  // A heap: the next arrival of each stream that has one.

    void Pull(int model);
    [[nodiscard]] std::optional<Due> Next();
  };

  Part warm_up_;
  Part measured_;
};

}  // namespace divvy::client
