#pragma once

#include <optional>
#include <string>

#include "base/result.h"
#include "run_gpu.h"
#include "run_home.h"

namespace divvy::app {

// Waits, for some seconds at most, until the daemon that was last used for `gpu` has ended. One
// that others use is not waited for.
void AwaitEndOfDaemon(const JobGpu& gpu);

// A share in the MPS daemon of a GPU, which is ended by its keeper, a process of its own,
// when nobody has one any more.
class MpsUse {
 public:
  // Joins the daemon of `gpu`, or starts it, and waits until it takes commands. `program`
  // is the path of nvidia-cuda-mps-control, `gate` that of the gate's library, for a daemon that
  // is started; empty: none, as for a GPU whose UUID is not known.
  //   kPermissionDenied  the folder for it is not this user's;
  //   kUnavailable       it does not start; the message says why. Nothing is left behind.
  [[nodiscard]] static Result<MpsUse> Begin(const JobGpu& gpu, std::string program,
                                            std::string gate);

  // True if there was no daemon before.
  bool started() const { return started_; }

  const MpsHome& home() const { return home_; }
  // Whoever holds this file open keeps the daemon alive: for the job to inherit.
  int share() const { return users_.fd(); }

  // To be called every now and then: starts another keeper if this one was killed. When
  // the daemon is not the one any more that it was, a line for the user.
  [[nodiscard]] std::optional<std::string> LookAfter();

 private:
  MpsUse(MpsHome home, const JobGpu& gpu, std::string program, std::string gate, HeldFile users);

  static std::optional<Result<MpsUse>> TryBegin(const JobGpu& gpu, const std::string& program,
                                                const std::string& gate);
  Result<void> AwaitDaemon();
  void StartKeeperIfGone();

  MpsHome home_;
  JobGpu gpu_;
  std::string program_;
  std::string gate_;
  HeldFile users_;
  bool started_ = false;
  DaemonState known_;
};

}  // namespace divvy::app
