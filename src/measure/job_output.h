#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace divvy::measure {

// A POSIX extended regular expression over one line of a job's output.
class LinePattern {
 public:
  // kInvalidArgument says what is wrong with it. `numbers`: it must have a group, "step ([0-9]+)".
  [[nodiscard]] static Result<LinePattern> Parse(const std::string& text, bool numbers);

  [[nodiscard]] bool Matches(std::string_view line) const;
  // What the first group took, as a number from 0 on.
  [[nodiscard]] std::optional<double> Number(std::string_view line) const;

 private:
  struct Compiled;
  explicit LinePattern(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}
  std::shared_ptr<const Compiled> compiled_;
};

// What a job has said it has done, and when. Whoever counts from 0 again, at a new epoch say, has
// not undone what it did. Of words that came at one time, as from a program that buffers what it
// prints, only the last was true then.
class StepCount {
 public:
  void Said(TimePoint when, double steps);
  // Steps a second from the first word at or after `from` to the last at or before `to`. Nothing
  // when these two are less than a third of that time apart: too few words to go by.
  [[nodiscard]] std::optional<double> Rate(TimePoint from, TimePoint to) const;
  bool empty() const { return marks_.empty(); }

 private:
  struct Mark {
    TimePoint when;
    double total;
  };
  std::vector<Mark> marks_;
  double last_ = 0;
  double before_ = 0;  // What was done before it counted anew.
};

// Takes bytes as they come and gives whole lines. One that has no end after 64 KiB is cut.
class LineSplitter {
 public:
  // The lines that are complete now, without their ends.
  [[nodiscard]] std::vector<std::string> Take(std::string_view bytes);
  // What is left at the end of all.
  [[nodiscard]] std::string Rest() { return std::move(rest_); }

 private:
  std::string rest_;
};

}  // namespace divvy::measure
