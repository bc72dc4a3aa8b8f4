#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "device/change.h"

namespace divvy::device {

// What one `divvy apply` sets out to do: the layout it found and the one it is
// to leave, GPU by GPU in the same order.
struct Change {
  std::string plan;  // Where the wanted layout came from, e.g. "plan.yaml".
  std::vector<GpuTarget> before;
  std::vector<GpuTarget> after;

  friend bool operator==(const Change&, const Change&) = default;
};

// Why a change is over.
enum class Outcome { kApplied, kRolledBack };

// An instance that a change set out to create: if it is there, it may be ours.
struct BegunCreate {
  std::string gpu_uuid;
  int profile_id;
  int start;

  friend bool operator==(const BegunCreate&, const BegunCreate&) = default;
};

// What the state directory knows about a change.
struct JournalRecord {
  Change change;
  std::string started;             // Local time, for people.
  std::vector<BegunCreate> begun;  // Creations begun and not withdrawn.
  std::optional<Outcome> outcome;  // Nothing while it is unfinished.
};

// The right to change this node's layout, held by at most one process; released
// by the destructor or the death of the process.
class ChangeLock {
 public:
  // Creates `state_dir` if need be.
  //   kResourceExhausted  another process holds it; the message names it;
  //   kPermissionDenied, kUnavailable  the directory cannot be used.
  [[nodiscard]] static Result<ChangeLock> Acquire(const std::string& state_dir);

  ChangeLock(ChangeLock&& other) noexcept;
  ChangeLock& operator=(ChangeLock&&) = delete;
  ~ChangeLock();

 private:
  explicit ChangeLock(int fd) : fd_(fd) {}

  int fd_;
};

// The journal of one change, on disk so that the next process can finish what
// this one could not.
//
// Form: `STATE_DIR/journal`, a line of JSON each: the change, then a line before
// and after each step, then the outcome. Every line is on disk (fsync) before
// the call that writes it returns; a torn last line is as good as none, because
// what it announces has not happened. When a change was applied the file becomes
// `STATE_DIR/journal.last`; when it was rolled back it goes. Hold the ChangeLock
// while using one.
class Journal {
 public:
  // Writes the change down. On failure there is no journal and nothing has
  // happened. kFailedPrecondition when another change is unfinished.
  [[nodiscard]] static Result<Journal> Begin(const std::string& state_dir, const Change& change);

  // Takes up the unfinished journal that is there, to finish it.
  [[nodiscard]] static Result<Journal> Resume(const std::string& state_dir);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  // Notes that a step is about to be taken. Not having returned success, it must
  // not be taken.
  [[nodiscard]] Result<void> BeginStep(const Step& step);

  // Notes that the last step was taken.
  [[nodiscard]] Result<void> EndStep();

  // Notes that the last step created nothing: what is in its place is not ours.
  [[nodiscard]] Result<void> WithdrawStep();

  // Creations begun and not withdrawn, those of earlier processes included.
  const std::vector<BegunCreate>& begun() const { return begun_; }

  // Notes the outcome and retires the journal.
  [[nodiscard]] Result<void> Finish(Outcome outcome);

 private:
  Journal(std::string state_dir, int fd) : state_dir_(std::move(state_dir)), fd_(fd) {}

  // A line that could not be written whole is cut off again.
  [[nodiscard]] Result<void> Append(const std::string& line);

  std::string state_dir_;
  int fd_;
  bool torn_ = false;  // A part of a line is at the end and could not be cut off.
  int steps_ = 0;
  std::vector<BegunCreate> begun_;
};

// The change that a process left unfinished, or nothing. Needs no lock: to be
// asked by every command. A damaged journal is kUnavailable.
[[nodiscard]] Result<std::optional<JournalRecord>> ReadUnfinished(const std::string& state_dir);

// The error for those who must wait for it to be settled.
[[nodiscard]] Error UnfinishedError(const JournalRecord& unfinished);

// The last change that was applied, or nothing.
[[nodiscard]] Result<std::optional<JournalRecord>> ReadLast(const std::string& state_dir);

}  // namespace divvy::device
