#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/lane.h"

namespace divvy::engine {

// The command line of divvy-worker. Parsed by hand: a worker is to build with a compiler and little
// more, on hosts where our other libraries are not.
struct Options {
  bool help = false;      // The rest is not looked at.
  bool describe = false;  // Print the metadata and go.
  std::string listen;
  std::string engine;  // "synthetic", or the path of a library.
  EngineConfig config;
  std::string latency_us;
  double spread = 0;
  std::uint64_t seed = 1;
  std::optional<int> parent_fd;
};

// `words` are argv without the program's name. kInvalidArgument names the flag, what it was given
// and what would be right.
[[nodiscard]] Result<Options> ParseOptions(std::span<const std::string_view> words);

[[nodiscard]] std::string_view HelpText();

// Makes the engine that the options ask for; to be called in the thread that runs it.
// kInvalidArgument already here when the options can never give one.
[[nodiscard]] Result<Lane::MakeEngine> EngineMaker(const Options& options);

}  // namespace divvy::engine
