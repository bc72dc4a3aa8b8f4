#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "simulated_node.h"

namespace divvy::test {

// Waits until it holds; false after half a minute, which only a broken program takes.
bool Eventually(const std::function<bool()>& condition);

// The whole of a file, also of one in /proc; empty if it is not there.
std::string ReadFile(const std::string& path);

struct Process {
  pid_t pid;
  std::string command;  // Words with blanks between.
};

// Runs `divvy run` in a folder of its own, with a stand-in for NVIDIA's MPS program on PATH
// (fake_mps_control.cc), a library that does nothing as the gate, and no NVML. What it started
// is found by the folder's name in the environment, and killed at the end.
class RunTest : public ::testing::Test {
 protected:
  RunTest();
  ~RunTest() override;

  static std::vector<std::string> Words(const std::vector<std::string>& options,
                                        const std::vector<std::string>& job);

  // Runs a shell command as a job, to its end.
  Finished Run(const std::vector<std::string>& options, const std::string& script) const;

  // A job that runs until Release, or until it is killed; `before` is a command that it begins
  // with. Errors come with its output.
  RunningProgram Start(const std::vector<std::string>& options = {"--class", "batch"},
                       const std::string& before = "") const;
  void Release() const;

  // What runs of this test's and begins so.
  std::vector<Process> Processes(const std::string& command = "") const;

  // Of the stand-in: daemon and, if one was started, server.
  std::vector<Process> DaemonAndServer() const;
  pid_t Daemon() const;  // -1 if there is none.
  pid_t Keeper() const;  // The same.

  // "start PID DEVICES PRELOADED" for each daemon that was started.
  std::vector<std::string> Starts() const;

  // No process, no file of a daemon, no board, after a while.
  void ExpectNothingLeft() const;

  SimulatedNode node_;
  std::map<std::string, std::string> environment_;
};

}  // namespace divvy::test
