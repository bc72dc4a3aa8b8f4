#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/node.h"
#include "top_boards.h"

namespace divvy::app {

// A job over a span of time.
struct JobRates {
  JobReading now;
  double seconds = 0;  // The span: since the last reading, or the job's whole life.
  double requests_per_s = 0;
  double late = 0;  // Share of the span's requests.
  double launches_per_s = 0;
  double markers_per_s = 0;
  double gpu = 0;     // Share of the span, by predicted GPU time.
  double closed = 0;  // Share of the span in which it kept the gate closed.
};

struct GpuRates {
  std::string gpu;  // The GPU's UUID as 32 hex digits.
  std::vector<JobRates> jobs;
  std::vector<JobReading> servers;  // Those of MPS.
};

// What NVML knows of a GPU: by UUID in hex digits.
struct GpuName {
  std::string label;  // "GPU 0  NVIDIA H200".
  int index = -1;     // -1 if unknown.
  std::string name;
  std::string uuid;
  std::vector<device::GpuProcess> processes;
};
using GpuNames = std::map<std::string, GpuName>;

// The processes of a GPU that are neither jobs nor MPS' servers, and so have its time whatever the
// gate does. None if no job is among `processes`: then these are counted otherwise, as in a
// container.
[[nodiscard]] std::vector<device::GpuProcess> PastTheGate(
    const GpuRates& gpu, const std::vector<device::GpuProcess>& processes);

// Jobs that were there at `before` count from then, others from their start.
[[nodiscard]] std::vector<GpuRates> RatesOf(const std::vector<BoardReading>& before,
                                            const std::vector<BoardReading>& now);

// For people; ends with a line end. Where lines would be longer than `columns`, the table does
// without its last ones; 0: however long they are.
[[nodiscard]] std::string TopTable(const std::vector<GpuRates>& gpus, const GpuNames& names,
                                   std::size_t columns = 0);

// For programs. What does not apply to a job is null.
[[nodiscard]] nlohmann::json TopJson(const std::vector<GpuRates>& gpus, const GpuNames& names);

}  // namespace divvy::app
