#pragma once

// Reads the kernel logs that the processes of a run write into one directory, while they run.

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gate/ops_record.h"

namespace divvy::gate {

// The log of a process that has ended is read to its end at the next look, and removed. Not
// thread-safe.
class OpsReader {
 public:
  OpsReader(std::string directory, bool keep_samples);
  ~OpsReader();
  OpsReader(const OpsReader&) = delete;
  OpsReader& operator=(const OpsReader&) = delete;

  // Takes in what is new. To be called a few times a second: a ring holds kOpSamples.
  void Look(std::uint64_t now_ns);
  // The same after the last process has ended, or at least after nobody cares for the rest.
  void Finish(std::uint64_t now_ns);

  const OpsRecord& record() const { return record_; }
  // Files that were no logs, and why.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  struct Source {
    OpsLog* log;
    std::size_t process;
    std::vector<std::size_t> ops;  // of the record, by kind of the log
  };

  void FindNew(bool last);
  void Read(Source& source, bool ended);
  // To its end. The file goes: it is memory, and a program may start thousands of others.
  void ReadLast(const std::string& name, Source& source);

  std::string directory_;
  OpsRecord record_;
  std::map<std::string, Source> sources_;  // by file name
  std::set<std::string> refused_;
  std::vector<std::string> notes_;
};

}  // namespace divvy::gate
