#pragma once

#include <string_view>

namespace divvy::app {

// Kills, without asking, each process of this user that was started with `variable`
// ("NAME=value") in its environment and whose name begins with `name`; not this one. Returns
// how many. Children have their parents' environment, so a variable that no other process
// has marks all that came of one, wherever they went.
int KillProcesses(std::string_view variable, std::string_view name);

// The same for MPS daemons, their servers and their clients' commands with this pipe
// directory, whoever started them. Jobs, which have the directory in their environment too,
// are spared.
int KillMps(std::string_view pipe_directory);

}  // namespace divvy::app
