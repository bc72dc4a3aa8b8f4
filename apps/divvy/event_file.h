#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"
#include "sim/simulation.h"

namespace divvy::app {

// An event log on disk that appears under its name only when it is whole. It is
// written as it comes, since a log may be larger than memory; a signal that ends
// the program takes what was written with it. At most one at a time.
class EventFile final : public sim::EventLog {
 public:
  // Errors as of SaveText.
  [[nodiscard]] static Result<std::unique_ptr<EventFile>> Create(const std::string& path);

  // Removes what was written unless Finish succeeded.
  ~EventFile() override;
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  // A failure is remembered for Finish.
  void Write(std::string_view line) override;

  // Gives the file its name. Afterwards nothing may be written.
  [[nodiscard]] Result<void> Finish();

 private:
  EventFile(std::string path, std::string temporary, int fd);

  void Flush();

  std::string path_;
  std::string temporary_;
  int fd_;
  std::string buffer_;
  int error_ = 0;  // The first errno.
};

}  // namespace divvy::app
