#pragma once

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

namespace divvy::device {

// Talks to one daemon of CUDA's Multi-Process Service, and starts it, through
// NVIDIA's program nvidia-cuda-mps-control, as users do: commands go to its standard
// input. Which daemon is meant is said by the directory of its pipes; nothing here
// goes over a network.
//
// Every process that it starts dies with the calling process, by a signal of the
// kernel, so a daemon cannot outlive its starter whatever ends that. Waits are
// bounded. To be used by one thread, which must be the one that lives longest: the
// kernel's signal is bound to the thread.
class MpsControl {
 public:
  struct Directories {
    std::string pipe;  // CUDA_MPS_PIPE_DIRECTORY; exists.
    std::string log;   // CUDA_MPS_LOG_DIRECTORY; exists.
  };

  // `program` is the path of nvidia-cuda-mps-control.
  MpsControl(std::string program, Directories directories);

  // The answer to a command such as "get_server_list", with its last line end.
  //   kUnavailable         it did not answer within `limit`: it is stuck;
  //   kFailedPrecondition  there is no daemon, or it refused.
  [[nodiscard]] Result<std::string> Ask(std::string_view command, Duration limit) const;

  // Starts the daemon in the foreground, as a child for the caller to reap, for the
  // devices of CUDA_VISIBLE_DEVICES=`devices`, with `variables` on top of our environment. It
  // takes commands a little later. What it says goes to foreground.log in the log directory.
  [[nodiscard]] Result<pid_t> Start(const std::string& devices,
                                    const std::map<std::string, std::string>& variables = {}) const;

  // What the daemon said last in the foreground; empty if nothing.
  [[nodiscard]] std::string LastWords() const;

  const Directories& directories() const { return directories_; }

 private:
  std::string program_;
  Directories directories_;
};

// nvidia-cuda-mps-control on `search_path` (as PATH has it); nothing if it is not
// there or may not be run.
[[nodiscard]] std::optional<std::string> FindMpsControl(std::string_view search_path);

// True when the sockets that a daemon makes in `pipe_directory` have names that
// the kernel takes, which must be short.
[[nodiscard]] bool FitsSocketNames(std::string_view pipe_directory);

}  // namespace divvy::device
