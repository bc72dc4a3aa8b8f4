#pragma once

#include <string>

#include "base/result.h"
#include "run_sharing.h"

// How workers are found, by all commands that start some.

namespace divvy::app {

// The program divvy-worker: `given` by --worker, or, empty, beside this program.
//   kNotFound         it is not there; the message says where it was looked for;
//   kInvalidArgument  what was given is no program.
[[nodiscard]] Result<std::string> FindWorkerProgram(const std::string& given);

// What divvy-worker's --engine takes for `engine`: "torch" is a library in `folder` (of --engines),
// or beside this program; anything else stays as it is. kNotFound where the library is not.
[[nodiscard]] Result<std::string> FindEngine(const std::string& engine, const std::string& folder);

// Joins the MPS daemon of a GPU for workers, or starts one: its environment is theirs, and it must
// live as long as they do. `gpu` is an index or a UUID; empty: the only one.
//   kFailedPrecondition  there is no MPS to be had; the message says why;
//   kNotFound, kInvalidArgument  `gpu` is wrong.
[[nodiscard]] Result<Sharing> JoinMps(const std::string& gpu, const std::string& nvml);

}  // namespace divvy::app
