#pragma once

#include <CLI/CLI.hpp>

#include "command.h"

namespace divvy::app {

// The hidden command that `divvy run` starts: `divvy mps-keeper DIR PROGRAM DEVICES [GATE]`.
inline constexpr const char* kKeeperCommand = "mps-keeper";

// On which it finds DIR/keeper, locked.
inline constexpr int kKeeperLockFd = 3;

// The keeper runs an MPS daemon as its child for the users of a home (run_home.h), starts
// it anew when it dies or hangs, ends it when nobody uses it any more, and removes the home.
// Killed, it takes the daemon along.
//
// GATE is the gate's library, for the daemon and so for MPS' server: batch jobs run in the server's
// turns on the GPU, which the gate there makes short beside a latency job of its own turns. DEVICES
// is then the GPU's UUID. Without GATE the daemon is as NVIDIA made it.
void AddKeeperCommand(CLI::App& app, Invocation& invocation);

}  // namespace divvy::app
