#pragma once

#include <map>
#include <string>
#include <vector>

namespace divvy::test {

// How a program ended, and what it wrote.
struct Finished {
  int exit_status = -1;  // -1 when a signal ended it.
  int signal = 0;
  std::string out;
  std::string err;
};

// Runs a program to its end, with `environment` on top of this process's and
// nothing on its standard input. The path must exist.
Finished RunProgram(const std::vector<std::string>& command,
                    const std::map<std::string, std::string>& environment);

}  // namespace divvy::test
