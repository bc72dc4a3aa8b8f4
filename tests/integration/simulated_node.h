#pragma once

#include <map>
#include <string>
#include <vector>

#include "program.h"

namespace divvy::test {

// A node of simulated GPUs in a folder of its own, and the programs run on it.
// Each call starts a process, as a user would; what a fault does to one is gone
// with it.
class SimulatedNode {
 public:
  // Without GPUs until Sim("init", ...) is called.
  SimulatedNode();
  ~SimulatedNode();
  SimulatedNode(const SimulatedNode&) = delete;
  SimulatedNode& operator=(const SimulatedNode&) = delete;

  // Runs `divvy-nvml-sim COMMAND STATE ARGS`, which must succeed.
  void Sim(const std::string& command, const std::vector<std::string>& arguments);

  // Runs `divvy ARGS` on this node, with further variables in its environment.
  Finished Divvy(const std::vector<std::string>& arguments,
                 const std::map<std::string, std::string>& environment = {}) const;

  // What makes a program see this node.
  std::map<std::string, std::string> Environment() const;

  // Writes a file into the node's folder and returns its path.
  std::string Write(const std::string& name, const std::string& text) const;

  // Where a file of that name is, or would be, and what is in it.
  std::string Path(const std::string& name) const { return dir_ + "/" + name; }
  std::string Read(const std::string& name) const;

  // Cuts the compute instance of an instance of two slices into two, or takes it
  // away, as nvidia-smi can.
  void SplitCompute(int gpu, int start) const;
  void DropCompute(int gpu, int start) const;

  // Every GPU's MIG mode, instances and compute instances, one line a GPU:
  // "mig 2g.35gb@0[2@0] 1g.18gb@6[1@0]"; what is pending or bare shows.
  std::string Layout() const;

  // What tells one life of an instance from the next; empty if none is there.
  std::string Identity(int gpu, int start) const;

  // The simulator's log of calls that change something, since the node began.
  std::string Log() const;

  // The number of NVML calls that `divvy ARGS` makes.
  int CountCalls(const std::vector<std::string>& arguments) const;

  bool HasJournal() const;

  // Everything on disk, to come back to.
  void Save();
  void Restore();

  const std::string& dir() const { return dir_; }
  std::string state_dir() const { return dir_ + "/state"; }

 private:
  std::string StatePath() const { return dir_ + "/node.json"; }

  std::string dir_;
};

}  // namespace divvy::test
