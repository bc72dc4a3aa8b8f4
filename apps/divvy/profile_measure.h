#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "client/url.h"
#include "command.h"
#include "kserve/tensor.h"
#include "profile_measure_place.h"

namespace divvy::app {

// The options of `divvy profile MODEL`, as they stand on the command line.
struct MeasureOptions {
  std::string source;     // A file, or the URL of a server.
  std::string name;       // Of the model.
  std::string synthetic;  // Microseconds by items.
  std::string engine;     // "torch", or a library; empty: by the source.
  std::string command;    // A program of the user's that serves the model.
  std::vector<std::string> inputs;
  std::vector<std::string> outputs;
  std::vector<std::string> engine_options;
  PlaceChoice place;
  std::vector<int> processes = {1};
  int max_batch = 64;
  bool all_points = false;
  double precision_percent = 1;
  double point_limit_s = 2;
  std::string save;
  bool restart = false;
  std::string format = "table";
  std::string worker;
  std::string engines;
};

// What is measured.
struct MeasureSource {
  std::string model;                      // Its name.
  std::vector<std::string> command = {};  // Of a worker, without what depends on the partition.
  bool places_itself = false;             // A command of the user's: no --device, no --threads.
  std::optional<client::Url> url = {};    // In place of a command.
  std::string identity = {};              // Tells this source from others: file, hash, options.
};

// kInvalidArgument, kNotFound: an option is wrong, or does not go with another; the message names
// it and says what would be right.
[[nodiscard]] Result<MeasureSource> FindSource(const MeasureOptions& options);

// The sizes that --input says, by the input's name, for servers that leave them open.
// kInvalidArgument: one is not NAME:TYPE:DIMS.
[[nodiscard]] Result<std::map<std::string, kserve::Shape>> InputShapes(
    const std::vector<std::string>& inputs);

// Adds `divvy profile MODEL`: options of `profile` itself, beside its commands.
void AddMeasure(CLI::App& profile, Invocation& invocation);

}  // namespace divvy::app
