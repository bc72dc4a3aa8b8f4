#pragma once

#include <cstddef>
#include <optional>

namespace divvy::app {

// How many columns standard output has: as the terminal says, or the variable COLUMNS.
// Nothing where it is no terminal and nobody says.
[[nodiscard]] std::optional<std::size_t> TerminalColumns();

}  // namespace divvy::app
