#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "device/simulator/file_descriptor.h"
#include "device/simulator/state.h"

namespace divvy::device::simulator {

// Holds the lock of a state file, "FILE.lock" beside it, until it goes out of
// scope or its process dies. Waits for other processes, and for other holders
// in this one. Where the lock file can be neither opened nor made, it holds
// nothing: such a process may only read, and files are replaced in one step.
class StateLock {
 public:
  explicit StateLock(const std::string& state_path);

 private:
  FileDescriptor fd_;  // Opened for each lock: a forked child must not share its parent's.
};

// The file that all users of one simulated driver share. Only hold on to what
// it returns while holding the file's StateLock. Not thread-safe.
class StateStore {
 public:
  explicit StateStore(std::string path);

  // The present state, read only when the file has changed.
  //   kNotFound         there is no such file;
  //   kInvalidArgument  it is damaged; the message names the file and the fault.
  [[nodiscard]] Result<State*> Read();

  // Replaces the file in one step, so that a reader finds the old state or the
  // new one. kUnavailable, and the old file stays, when that cannot be done.
  [[nodiscard]] Result<State*> Write(State state);

  // True when this process may change the file.
  [[nodiscard]] bool Writable() const;

  const std::string& path() const { return path_; }

 private:
  bool IsCurrent() const;

  std::string path_;
  // The file that state_ was read from. Kept open so that its inode number
  // cannot come back as that of a later file.
  FileDescriptor read_from_;
  struct stat read_at_{};
  std::optional<State> state_;
};

}  // namespace divvy::device::simulator
