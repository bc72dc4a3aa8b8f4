#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gate/board.h"
#include "program.h"

namespace divvy::tests {

enum class As { kUngated, kLatency, kBatch };

using Words = std::vector<std::string>;
using Environment = std::map<std::string, std::string>;

// What a job's gate said at its end, in the file or on the stream that DIVVY_REPORT names.
struct Coverage {
  unsigned long long kernels = 0;
  unsigned long long graphs = 0;
  unsigned long long captured = 0;
  unsigned long long markers = 0;
  double gpu_s = 0;
  double closed_ms = 0;
  unsigned long long requests = 0;
  double p99_ms = 0;
  std::string mode;
  int reports = 0;  // How many there were in the text.
};

// Jobs with and without the gate on a simulated GPU of their own. A test that hangs is ended after
// two minutes.
class GateTest : public ::testing::Test {
 protected:
  void SetUp() override;
  // The boards and files that jobs made must be gone.
  void TearDown() override;

  // divvy-sim-job with `words`, or another program if the first is a path.
  std::unique_ptr<test::RunningProgram> Start(As as, const Words& words,
                                              const Environment& more = {}) const;
  test::Finished Run(As as, const Words& words, const Environment& more = {}) const;

  // The line RESULT of a job; fails the test if there is none.
  static nlohmann::json ResultOf(const test::Finished& finished);
  static Coverage CoverageIn(const std::string& text);
  // What the simulated driver counted in the processes so far, one object each.
  std::vector<nlohmann::json> Stats() const;

  // The GPU's board, from now on open in this process; a new one if the last job to leave removed
  // it.
  gate::Board* OpenBoard();
  std::string BoardPath() const;
  // The slot of the live job of that class, other than this process's own; null if there is none.
  gate::Slot* SlotOf(gate::JobClass job_class);
  // Joins the board as a latency job whose gate moves only when the test moves it.
  gate::Slot* JoinAsLatencyJob();

  // Looks every millisecond until `is_so`; false if it is not so after ten seconds.
  static bool Await(const std::function<bool()>& is_so);
  // Waits until the job in `slot` has launched that many more; in seconds, or -1 after ten.
  static double SecondsToLaunch(const gate::Slot& slot, std::uint64_t more);

  std::string directory_;
  gate::Board* board_ = nullptr;
  int own_slot_ = -1;
};

}  // namespace divvy::tests
