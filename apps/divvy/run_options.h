#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace divvy::app {

// The words of a `divvy run` command line, as they stand there.
struct RunWords {
  std::string job_class;
  std::string slo;
  std::string protect;
  std::string weight;
  std::string memory;
  std::optional<int> sm_percent;
  bool mps = false;
  bool no_mps = false;
  std::string gpu;
  std::string name;
  std::optional<std::string> report;  // Empty: asked for, without a file.
  std::string library;
  std::string ops;
  std::vector<std::string> stray;  // Neither options nor behind the dashes.
};

// The same, checked.
struct RunOptions {
  bool latency = false;  // Else a batch job.
  std::optional<Duration> slo;
  std::string protect;        // Of a latency job without SLO: a preset's name.
  std::optional<int> weight;  // Of a batch job, in hundredths.
  std::optional<std::uint64_t> memory_bytes;
  std::optional<int> sm_percent;
  bool mps = true;
  bool asks_for_mps = false;  // By --mps.
  // A latency job outside of MPS, with time slices of its own that interrupt batch jobs'. Where MPS
  // is the node's or the user's it is a client all the same, unless `mps` is false.
  bool apart = false;
  std::string gpu;  // As given; empty if not.
  std::string name;
  std::optional<std::string> report;  // An absolute path, or "-" for standard error.
  std::string library;                // Absolute; empty if not given.
  std::string ops;                    // Absolute; empty if not given.
  std::vector<std::string> command;   // Not empty.
};

// Adds the options of `divvy run` to its command. `words` outlives the parse.
void AddRunOptions(CLI::App& command, RunWords& words);

// kInvalidArgument for words that are wrong, or do not go together; kNotFound for
// files that are not there. The message names the option and what would be right.
[[nodiscard]] Result<RunOptions> CheckRunWords(const RunWords& words,
                                               std::vector<std::string> command);

}  // namespace divvy::app
