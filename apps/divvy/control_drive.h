#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "control/loop.h"
#include "control_lines.h"
#include "control_node.h"
#include "control_observe.h"
#include "control_stop.h"

namespace divvy::app {

// Where a run keeps what others need of it.
struct KeptFiles {
  std::string plan;   // The plan in force.
  std::string state;  // What the next process needs to go on.
};

struct DriveOptions {
  bool real_pace = true;          // Slots take their time; else none.
  std::optional<int> slots = {};  // Ends after so many.
  bool show_steps = false;        // Of each change.
  std::string_view policy = {};   // Its name, for the state.
  std::optional<KeptFiles> files = {};
};

// Runs a control loop slot by slot: looks at what came, lets the loop decide, keeps what
// is in force on disk and tells of it all. Not thread-safe.
class Drive {
 public:
  // All but `options` outlive it.
  Drive(const control::Estate& estate, control::Policy& policy, NodePlant& plant,
        Observation& observation, StopSignal& stop, EventLines& lines, DriveOptions options);

  // Goes on where another process ended.
  void Resume(const control::View& view);

  // Until a stop, or the last slot. The layout stays as it is then.
  void Run();

 private:
  void Hear(const control::LoopEvent& event);
  void BeginSlots(int from, int to);
  void LookForMissing(int slot);
  void Keep(bool at_end);
  void Save(const std::string& path, const std::string& text, std::string& saved);

  const control::Estate& estate_;
  NodePlant& plant_;
  Observation& observation_;
  StopSignal& stop_;
  EventLines& lines_;
  DriveOptions options_;
  control::Loop loop_;
  WindowSummary summary_;
  int next_slot_ = 0;
  bool had_news_ = true;
  bool looked_ = false;  // For missing instances, ever.
  int changes_ = 0;
  int kept_ = 0;
  std::string saved_plan_;  // As it is on disk.
  std::string saved_state_;
  int saved_slot_ = 0;  // When the state was last to be saved.
};

}  // namespace divvy::app
