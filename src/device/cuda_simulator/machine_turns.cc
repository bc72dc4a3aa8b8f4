#include <algorithm>
#include <utility>

#include "device/cuda_simulator/machine_file.h"

// Whose turn it is on a GPU that processes have one after another.

namespace divvy::device::cuda_simulator {

int Machine::NextInLine(int gpu, Nanos now) const {
  int next = kNobody;
  const auto& clients = file_->gpus[gpu].clients;
  for (int i = 0; i < kMaxProcesses; ++i) {
    if (clients[i].waits == 0 || clients[i].seen + kPatience < now) continue;
    if (next == kNobody || clients[i].waiting_since < clients[next].waiting_since) next = i;
  }
  return next;
}

Nanos Machine::SliceOf(int gpu, int process) const {
  const Nanos own = file_->gpus[gpu].clients[process].slice;
  return std::max(own != 0 ? own : spec().slice, kLeastTurn);
}

// When the owner's turn may go to another.
Nanos Machine::TurnEnds(int gpu) const {
  const File::Gpu& state = file_->gpus[gpu];
  return state.turn_began + (state.turn_taken != 0 ? SliceOf(gpu, state.owner) : kLate);
}

// A turn that was passed to us begins when we come to know of it: on its way it was of no use.
void Machine::TakeTurn(int gpu, Nanos now) {
  File::Gpu& state = file_->gpus[gpu];
  if (state.owner != self_ || state.turn_taken != 0 || now < state.turn_began) return;
  state.turn_began = now;
  state.turn_taken = 1;
}

// The slices of an owner go one after another while nobody waits.
void Machine::RenewTurn(int gpu, Nanos now) {
  File::Gpu& state = file_->gpus[gpu];
  if (state.owner == kNobody || state.turn_taken == 0 || now < state.turn_began) return;
  if (NextInLine(gpu, now) != kNobody) return;
  const Nanos slice = SliceOf(gpu, state.owner);
  state.turn_began += (now - state.turn_began) / slice * slice;
}

void Machine::PassTurn(int gpu, int process, Nanos now) {
  File::Gpu& state = file_->gpus[gpu];
  if (state.owner != kNobody && process != kNobody) {
    // The GPU took it away when it was over and another waited, however late we come to see that.
    const Nanos over = std::max(TurnEnds(gpu), state.clients[process].waiting_since);
    state.clients[state.owner].turn_ended = std::min(over, now);
    // One that has not seen it thinks it still runs, and does not wait in line yet.
    if (state.owner != self_) {
      state.clients[state.owner].lost_turn = 1;
      RingBell(state.owner);
    }
  }
  state.owner = process;
  state.turn_began = now;
  state.turn_taken = 0;
  if (process == kNobody) return;
  if (state.last_owner != kNobody && state.last_owner != process) {
    state.turn_began += spec().switching;
  }
  state.last_owner = process;
  state.clients[process].waits = 0;
  state.clients[process].seen = now;
  if (process != self_) RingBell(process);
}

Turn Machine::HoldTurn(int gpu, Nanos now) {
  const Lock lock(*file_);
  File::Gpu& state = file_->gpus[gpu];
  Client& mine = Mine(gpu);
  const auto wait_in_line = [&] {
    if (state.owner == self_ || mine.waits != 0) return;
    mine.waits = 1;
    mine.waiting_since = now;
  };
  mine.seen = now;
  TakeTurn(gpu, now);
  RenewTurn(gpu, now);
  wait_in_line();
  // It must hear of that first, even if the turn is free again: others ran in between.
  if (std::exchange(mine.lost_turn, 0) != 0) return {false, mine.turn_ended, now};
  if (state.owner != self_) Reap(now);
  if (state.owner == kNobody || now >= TurnEnds(gpu)) {
    PassTurn(gpu, NextInLine(gpu, now), now);
    wait_in_line();
    TakeTurn(gpu, now);
  }
  if (state.owner != self_) return {false, mine.turn_ended, TurnEnds(gpu)};
  if (state.turn_taken == 0) return {false, mine.turn_ended, state.turn_began};
  const bool alone = NextInLine(gpu, now) == kNobody;
  return {true, TurnEnds(gpu), alone ? kNever : TurnEnds(gpu)};
}

void Machine::SetSlice(int gpu, Nanos slice, Nanos now) {
  const Lock lock(*file_);
  File::Gpu& state = file_->gpus[gpu];
  RenewTurn(gpu, now);
  Mine(gpu).slice = slice;
  if (state.owner != self_ || state.turn_taken == 0) return;
  // Shortened, it ends now at the earliest: what has run has run.
  state.turn_began = std::max(state.turn_began, now - SliceOf(gpu, self_));
  // The owner may have to give way sooner, and so may those who wait ask.
  Ring();
  RingWaiting(gpu);
}

Nanos Machine::Slice(int gpu) {
  const Lock lock(*file_);
  const Nanos own = Mine(gpu).slice;
  return own != 0 ? own : spec().slice;
}

void Machine::EndTurn(int gpu) {
  const Lock lock(*file_);
  Mine(gpu).waits = 0;
  Mine(gpu).lost_turn = 0;
  if (file_->gpus[gpu].owner != self_) return;
  const Nanos now = Now();
  PassTurn(gpu, NextInLine(gpu, now), now);
}

}  // namespace divvy::device::cuda_simulator
