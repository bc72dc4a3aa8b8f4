#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/time.h"

// The folder in which the MPS daemon of one GPU lives, and how those who share it agree:
//
//   lock    locked while a keeper is started, or the folder is removed
//   users   locked, shared, by each `divvy run` and by its job, which inherits it
//   keeper  locked by the keeper of the daemon for as long as it lives
//   state   what the keeper says of the daemon
//   pipe, log  the daemon's own
//
// All locks are flock's: the kernel lets go of them whatever ends their holder.

namespace divvy::app {

struct MpsHome {
  explicit MpsHome(std::string path);

  std::string dir;
  std::string lock;
  std::string users;
  std::string keeper;
  std::string state;
  std::string pipe;
  std::string log;
};

// A file and a lock on it, held until this goes.
class HeldFile {
 public:
  // Makes the file if need be. Nothing when another holds it, or on failure: errno says
  // which (EWOULDBLOCK for the former).
  static std::optional<HeldFile> TryLock(const std::string& path, bool shared);

  // The same for a file that is open already, and locked maybe.
  static std::optional<HeldFile> TryLock(int fd);

  HeldFile(HeldFile&& other) noexcept;
  HeldFile& operator=(HeldFile&& other) noexcept;
  ~HeldFile();

  int fd() const { return fd_; }

  // False when `path` names another file by now, or none.
  [[nodiscard]] bool IsAt(const std::string& path) const;

 private:
  explicit HeldFile(int fd) : fd_(fd) {}

  int fd_;
};

// What a keeper says of its daemon.
struct DaemonState {
  enum class Kind { kNone, kReady, kFailed };
  Kind kind = Kind::kNone;
  std::string text;  // The daemon's process when ready, else why it failed.

  friend bool operator==(const DaemonState&, const DaemonState&) = default;
};

[[nodiscard]] DaemonState ReadState(const MpsHome& home);
[[nodiscard]] Result<void> WriteState(const MpsHome& home, const DaemonState& state);

// True while a keeper lives. To be asked by who holds `lock`.
[[nodiscard]] bool HasKeeper(const MpsHome& home);

// Makes `dir` for this user alone, or checks that it is so.
//   kPermissionDenied   it belongs to somebody else, or others may enter, or this user
//                       may not make it;
//   kNotFound           the folder above is not there;
//   kResourceExhausted  somebody removed it again at once.
[[nodiscard]] Result<void> MakePrivate(const std::string& dir);

// The folder above all homes of this user: $XDG_RUNTIME_DIR/divvy or /tmp/divvy-UID, made so.
// Fails likewise, with kUnavailable when there is no folder above.
[[nodiscard]] Result<std::string> MakeBase();

// Removes a home that nobody uses, by who holds its `lock`; and the folder above if that
// was the last.
void RemoveHome(const MpsHome& home);

// Does so for each home of this user whose keeper and users were all killed, ending what is
// left of its daemon. Homes in use stay. True if none is left.
bool RemoveAbandoned();

// How often things are looked at. The variable DIVVY_MPS_PACE, from 0.01 to 10, scales all
// of it: tests have no time.
struct MpsPace {
  Duration look;       // Between two looks of a run at its keeper.
  Duration tick;       // Between two looks of a keeper at its users.
  Duration grace;      // A daemon without users is kept so long.
  Duration probe;      // Between two questions to the daemon.
  Duration answer;     // Within which it must answer, or end when told to.
  Duration beginning;  // Within which a fresh one must answer.
  Duration soon;       // After its start: one that ends within it may not be worth another try.

  static MpsPace FromEnvironment();
};

}  // namespace divvy::app
