#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "workload/profile.h"

// What a measurement has found so far, so that a second run goes on where the first one stopped.
//
// A text file: one line that says what was asked, a CSV header, and one row a point. A row is on
// disk before the next point is begun; a last line that a crash cut short does not count.

namespace divvy::measure {

// One measured point.
struct Point {
  workload::PartitionSize size = {};
  int processes = 1;
  workload::ProfilePoint figures = {};
  double error = 0;  // Half the confidence interval of the mean, over the mean.
  int batches = 0;   // That were measured.
};

[[nodiscard]] std::string JournalHead(std::string_view asked);
[[nodiscard]] std::string JournalRow(const Point& point);

// The points of a journal, in order. `file_name` is for messages.
//   kFailedPrecondition  it has points of a measurement that asked something else;
//   kInvalidArgument     it is no journal; the message names the line.
[[nodiscard]] Result<std::vector<Point>> ParseJournal(std::string_view text, std::string_view asked,
                                                      std::string_view file_name);

// A journal on disk, open for one process.
class Journal {
 public:
  // Reads or makes the file. `anew`: what is there does not count.
  // Fails as ParseJournal does, with kResourceExhausted when another process holds it, and with
  // kUnavailable or kPermissionDenied when the file cannot be used.
  [[nodiscard]] static Result<Journal> Open(const std::string& path, std::string_view asked,
                                            bool anew);

  Journal(Journal&& other) noexcept;
  Journal& operator=(Journal&&) = delete;
  ~Journal();

  // Those that were there when it was opened.
  const std::vector<Point>& points() const { return points_; }

  // On disk when it returns. kUnavailable: disk full and the like.
  [[nodiscard]] Result<void> Append(const Point& point);

  // The measurement is over.
  void Remove();

 private:
  Journal(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  [[nodiscard]] Result<void> Write(std::string_view text);

  std::string path_;
  int fd_;
  std::vector<Point> points_;
};

}  // namespace divvy::measure
