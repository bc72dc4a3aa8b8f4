#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "control/policy.h"
#include "device/plan_match.h"

namespace divvy::app {

// Tells standard output what a controller does: one line an event, for people or as JSON.
class EventLines {
 public:
  enum class Form { kText, kJson };

  EventLines(const control::Estate& estate, Form form) : estate_(estate), form_(form) {}

  // `facts` are for programs only.
  void Tell(int slot, std::string_view event, std::string_view text,
            const nlohmann::json& facts = nlohmann::json::object());

  // The same, unless the last Tell of this event had the same text: what goes on being
  // wrong is said once.
  void TellOnce(int slot, std::string_view event, std::string_view text);

  // Forgets what was said of an event.
  void Forget(std::string_view event);

  // A new layout, by these steps. People are shown the steps if `with_steps`.
  void TellChange(int slot, std::string_view why, std::span<const control::CellState> cells,
                  const std::vector<device::GpuChange>& steps, bool with_steps);

 private:
  const control::Estate& estate_;
  Form form_;
  std::map<std::string, std::string, std::less<>> said_;  // By event.
};

// What came in and what was ready for it since the last summary.
class WindowSummary {
 public:
  explicit WindowSummary(const control::Estate& estate);

  // The slot that ended: requests by tenant; empty when they are not known.
  void Ended(std::span<const double> arrivals);

  // The slot that begins, once it is known what runs in it.
  void Began(const control::View& view);

  // Tells, and begins anew. Nothing to tell: does nothing.
  void Tell(int slot, EventLines& lines);

 private:
  struct Sums {
    double offered = 0;
    double capacity = 0;  // Requests that ready instances could answer.
    double accuracy = 0;
  };

  const control::Estate& estate_;
  std::vector<Sums> sums_;  // By tenant.
  int ended_ = 0;           // Slots with known arrivals.
  int began_ = 0;
};

}  // namespace divvy::app
