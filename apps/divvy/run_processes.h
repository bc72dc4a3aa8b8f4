#pragma once

#include <string_view>

namespace divvy::app {

// Kills, without asking, each process of this user that has `id` among the values, divided by
// commas, of `variable` in its environment; not this one. Returns how many. Children have their
// parents' environment, so an id that no other process has marks all that came of one,
// wherever they went.
int KillMarked(std::string_view variable, std::string_view id);

// The same for MPS daemons, their servers and their clients' commands with this pipe
// directory, whoever started them. Jobs, which have the directory in their environment too,
// are spared, and so is what runs in another container, where the same path is another place.
int KillMps(std::string_view pipe_directory);

}  // namespace divvy::app
