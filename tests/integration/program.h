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

// How often `what` stands in what a program wrote.
int CountOf(const std::string& text, const std::string& what);

// A program that runs while the test goes on; killed by the destructor if it still does.
class RunningProgram {
 public:
  RunningProgram(const std::vector<std::string>& command,
                 const std::map<std::string, std::string>& environment);
  ~RunningProgram();
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  // Waits until it has written `text` to its standard output; false when it ended before.
  bool AwaitOutput(const std::string& text);

  void Signal(int signal) const;

  // Waits for its end. At most once.
  Finished Wait();

 private:
  int pid_;
  int out_;
  int err_;
  Finished finished_;
};

}  // namespace divvy::test
