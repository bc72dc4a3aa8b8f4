#pragma once

#include <source_location>
#include <string_view>

namespace divvy {

// Stops the program with the place and `message`. For our own bugs only.
[[noreturn]] void CheckFailed(std::string_view message, std::source_location where);

// States an invariant of our own. Input, peers, drivers and files never end up
// here: what they do wrong is a Result.
inline void Check(bool holds, std::string_view invariant,
                  std::source_location where = std::source_location::current()) {
  if (!holds) CheckFailed(invariant, where);
}

}  // namespace divvy
