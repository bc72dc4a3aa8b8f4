#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/result.h"
#include "run_job.h"

namespace divvy::app {

// What --report says at a job's end: what the gate in its processes wrote, or that none did, which
// only who started the job can tell.
class RunReport {
 public:
  // `where` is a file's absolute path, to which is added, or "-" for standard error.
  [[nodiscard]] static Result<RunReport> Begin(std::string where);
  RunReport(RunReport&& other) noexcept;
  RunReport& operator=(RunReport&& other) = delete;
  ~RunReport();

  // The file to which the job's processes are to add, as this process' children can open it.
  std::string path() const;

  void End(const JobEnd& end) const;

 private:
  RunReport(std::string where, int fd);
  bool IsStillThere() const;

  std::string where_;
  int fd_;  // The file, or memory in its place; -1 when it was moved from, or cannot be opened.
  std::optional<off_t> size_;  // When the job began, of what has one.
};

}  // namespace divvy::app
