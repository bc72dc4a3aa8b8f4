#include "terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>

#include "base/number.h"

namespace divvy::app {

std::optional<std::size_t> TerminalColumns() {
  // What a person sets is meant, also where the terminal knows better.
  if (const char* const columns = std::getenv("COLUMNS"); columns != nullptr) {
    const auto number = ParseInteger(columns);
    if (number && *number > 0) return static_cast<std::size_t>(*number);
  }
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace divvy::app
