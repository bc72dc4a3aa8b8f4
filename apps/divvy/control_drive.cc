#include "control_drive.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>
#include <vector>

#include "control_state.h"
#include "plan/plan_file.h"
#include "text_file.h"

namespace divvy::app {

using control::LoopEvent;
using Clock = std::chrono::steady_clock;

Drive::Drive(const control::Estate& estate, control::Policy& policy, NodePlant& plant,
             Observation& observation, StopSignal& stop, EventLines& lines, DriveOptions options)
    : estate_(estate),
      plant_(plant),
      observation_(observation),
      stop_(stop),
      lines_(lines),
      options_(std::move(options)),
      loop_(estate, policy, plant, [this](const LoopEvent& event) { Hear(event); }),
      summary_(estate) {}

void Drive::Resume(const control::View& view) {
  loop_.Resume(view);
  plant_.Resume(view.cells);
  next_slot_ = view.slot + 1;
}

void Drive::Run() {
  const int first = next_slot_;
  const int end = options_.slots ? first + *options_.slots : std::numeric_limits<int>::max();
  const Clock::time_point start = Clock::now() - estate_.slot * first;
  int due = first;
  while (next_slot_ < end && !stop_.Heard()) {
    const int from = next_slot_;
    next_slot_ = std::min(due + 1, end);
    BeginSlots(from, next_slot_ - 1);
    if (!options_.real_pace) {
      due = next_slot_;
    } else if (next_slot_ < end && !stop_.SleepUntil(start + estate_.slot * next_slot_)) {
      // More than one when a decision, or the machine, took longer than a slot.
      due = static_cast<int>((Clock::now() - start) / estate_.slot);
    }
  }
  if (next_slot_ > first) Keep(true);
  summary_.Tell(next_slot_, lines_);
  lines_.Tell(next_slot_, "ended",
              fmt::format("{}: {} changes, {} starts, {} retrained, {} decisions not carried out; "
                          "the layout stays as it is",
                          stop_.Heard() ? "by a signal" : "after the last slot", changes_,
                          loop_.starts(), loop_.retrained(), kept_));
}

void Drive::Hear(const LoopEvent& event) {
  switch (event.kind) {
    case LoopEvent::Kind::kChanged:
      ++changes_;
      lines_.Forget("kept");
      return lines_.TellChange(event.slot, event.text, loop_.view().cells, plant_.last_change(),
                               options_.show_steps);
    case LoopEvent::Kind::kRetrained:
      return lines_.Tell(event.slot, "retrained", event.text);
    case LoopEvent::Kind::kGivenUp:
      return lines_.Tell(event.slot, "given up", event.text);
    case LoopEvent::Kind::kKept:
      // What a stop cut short did not fail.
      if (stop_.Heard()) return;
      ++kept_;
      return lines_.TellOnce(event.slot, "kept", event.text);
  }
}

// Begins the slots that are due. Only the last of them decides: the others are past.
void Drive::BeginSlots(int from, int to) {
  const auto look = observation_.Look(to);
  if (!look && had_news_) {
    lines_.Tell(to, "no news", look.error().message + "; nothing is decided until there is some");
  } else if (look && !had_news_) {
    lines_.Tell(to, "news", "there is some again");
  }
  had_news_ = look.has_value();
  std::vector<double> arrivals;
  if (look && *look) arrivals = **look;
  for (int slot = from; slot <= to; ++slot) {
    if (slot > 0) summary_.Ended(arrivals);
    if (slot > 0 && slot % estate_.window == 0) summary_.Tell(slot, lines_);
    if (slot < to) {
      loop_.Pass(slot, arrivals);
    } else {
      if (to / estate_.every != (from - 1) / estate_.every || !looked_) LookForMissing(slot);
      // The first slot of all needs no arrivals, but a source that works.
      if (!arrivals.empty() || (look && slot == 0)) {
        loop_.Begin(slot, arrivals);
      } else {
        loop_.Pass(slot);
      }
    }
    summary_.Began(loop_.view());
  }
  Keep(false);
}

void Drive::LookForMissing(int slot) {
  looked_ = true;
  const std::vector<control::Cell> missing = plant_.TakeMissing();
  if (missing.empty()) return;
  loop_.Lose(missing);
  for (const control::Cell& cell : missing) {
    lines_.Tell(slot, "lost",
                fmt::format("GPU {}: {} is not there any more, by no change of ours", cell.gpu,
                            gpu::Describe(*estate_.gpu, std::get<gpu::MigInstance>(cell.where))));
  }
}

void Drive::Keep(bool at_end) {
  if (!options_.files) return;
  const control::View& view = loop_.view();
  const std::string before = saved_plan_;
  Save(options_.files->plan, plan::FormatPlan(plant_.InForce(view.cells)), saved_plan_);
  const bool due = view.slot - saved_slot_ >= estate_.every || at_end;
  if (!due && saved_plan_ == before) return;
  const std::string state = FormatControlState(estate_, options_.policy, view);
  Save(options_.files->state, state, saved_state_);
  // What could not be written is due again with the next slot.
  saved_slot_ = saved_state_ == state ? view.slot : view.slot - estate_.every;
}

// What cannot be written is tried again after the next slot.
void Drive::Save(const std::string& path, const std::string& text, std::string& saved) {
  if (text == saved) return;
  if (const auto written = SaveText(path, text); !written) {
    return lines_.TellOnce(loop_.view().slot, "not saved", written.error().message);
  }
  lines_.Forget("not saved");
  saved = text;
}

}  // namespace divvy::app
