#include "top_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string_view>
#include <utility>

#include "base/text_safety.h"
#include "base/yaml_reader.h"
#include "table.h"

namespace divvy::app {
namespace {

using gate::GateMode;
using gate::JobClass;
using nlohmann::json;

const JobReading* FindSame(const std::vector<BoardReading>& boards, const std::string& gpu,
                           const JobReading& job) {
  for (const BoardReading& board : boards) {
    if (board.gpu != gpu) continue;
    for (const JobReading& other : board.jobs) {
      if (other.pid == job.pid && other.start_time == job.start_time) return &other;
    }
  }
  return nullptr;
}

// Counters only rise, but for the part of closed_ns that is still going on.
double Growth(std::uint64_t before, std::uint64_t now) {
  return now > before ? static_cast<double>(now - before) : 0;
}

JobRates RatesOf(const JobReading& before, const JobReading& now, double seconds) {
  // A job that has just begun: no division by nothing.
  seconds = std::max(seconds, 1e-6);
  JobRates rates{.now = now, .seconds = seconds};
  const double requests = Growth(before.requests, now.requests);
  rates.requests_per_s = requests / seconds;
  rates.late = requests > 0 ? std::min(1.0, Growth(before.late, now.late) / requests) : 0;
  rates.launches_per_s = Growth(before.launches, now.launches) / seconds;
  rates.markers_per_s = Growth(before.markers, now.markers) / seconds;
  rates.gpu = Growth(before.gpu_ns, now.gpu_ns) / 1e9 / seconds;
  rates.closed = std::min(1.0, Growth(before.closed_ns, now.closed_ns) / 1e9 / seconds);
  return rates;
}

std::string ClassOf(const JobReading& job) {
  if (job.job_class == JobClass::kLatency) return "latency";
  if (job.job_class != JobClass::kBatch) return "-";
  if (job.weight == 100) return "batch";
  return fmt::format("batch x{:g}", job.weight / 100.0);
}

// How requests are known of a latency job, and how a batch job is held back.
std::string_view ModeOf(const JobReading& job) {
  if (job.job_class == JobClass::kLatency) return job.marked ? "marked" : "inferred";
  switch (job.mode) {
    case GateMode::kDevice:
      return "device";
    case GateMode::kHost:
      return "host";
    case GateMode::kPass:
      return "pass";
    case GateMode::kUnknown:
      break;
  }
  return "-";
}

std::string InGib(std::uint64_t bytes) {
  return FourDigits(static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
}

std::string MemoryOf(const JobReading& job) {
  return job.memory_quota == 0 ? InGib(job.memory_bytes)
                               : InGib(job.memory_bytes) + "/" + InGib(job.memory_quota);
}

double OpennessOf(const JobReading& job) {
  return static_cast<double>(job.openness) / static_cast<double>(gate::kNoProtection);
}

std::vector<std::string> JobRow(const JobRates& rates) {
  const JobReading& job = rates.now;
  const bool latency = job.job_class == JobClass::kLatency;
  const auto of_latency = [&](std::string text) { return latency ? std::move(text) : "-"; };
  const auto ms = [](std::uint64_t ns) { return FourDigits(static_cast<double>(ns) / 1e6); };
  return {std::to_string(job.pid),
          job.name,
          ClassOf(job),
          latency && job.apart ? "apart" : std::string(ModeOf(job)),
          job.slo_ns == 0 ? "-" : Describe(std::chrono::nanoseconds(job.slo_ns)),
          of_latency(Percent(OpennessOf(job))),
          of_latency(ms(job.p50_ns)),
          of_latency(ms(job.p99_ns)),
          job.slo_ns == 0 ? "-" : Percent(rates.late),
          of_latency(FourDigits(rates.requests_per_s)),
          FourDigits(rates.launches_per_s),
          latency ? "-" : Percent(rates.gpu),  // Nobody times its kernels.
          of_latency(Percent(rates.closed)),
          latency ? "-" : FourDigits(rates.markers_per_s),
          MemoryOf(job),
          of_latency(std::to_string(job.rescued))};
}

json JobJson(const JobRates& rates) {
  const JobReading& job = rates.now;
  const bool latency = job.job_class == JobClass::kLatency;
  const auto when = [](bool applies, json value) { return applies ? std::move(value) : json(); };
  return {{"pid", job.pid},
          {"name", job.name},
          {"class", latency ? "latency" : "batch"},
          {"weight", when(!latency, job.weight / 100.0)},
          {"mode", ModeOf(job)},
          {"apart", when(latency, job.apart)},
          {"slice_us", when(job.slice_us != 0, job.slice_us)},
          {"slo_ms", when(job.slo_ns != 0, static_cast<double>(job.slo_ns) / 1e6)},
          {"openness", when(latency, OpennessOf(job))},
          {"p50_ms", when(latency, static_cast<double>(job.p50_ns) / 1e6)},
          {"p99_ms", when(latency, static_cast<double>(job.p99_ns) / 1e6)},
          {"late", when(job.slo_ns != 0, rates.late)},
          {"requests", when(latency, job.requests)},
          {"requests_per_s", when(latency, rates.requests_per_s)},
          {"launches", job.launches},
          {"launches_per_s", rates.launches_per_s},
          {"gpu_share", when(!latency, rates.gpu)},
          {"closed_share", when(latency, rates.closed)},
          {"markers_per_s", when(!latency, rates.markers_per_s)},
          {"memory_bytes", job.memory_bytes},
          {"memory_quota_bytes", when(job.memory_quota != 0, job.memory_quota)},
          {"rescued", when(latency, job.rescued)},
          {"seconds", rates.seconds}};
}

// Of time slices that we set; of one that we do not nothing is known.
std::string ServerLine(const JobReading& server) {
  return server.slice_us == 0 ? "MPS' server: time slices of its driver's\n"
                              : fmt::format("MPS' server: time slices of {} us\n", server.slice_us);
}

json ServerJson(const JobReading& server) {
  return {{"pid", server.pid}, {"slice_us", server.slice_us == 0 ? json() : json(server.slice_us)}};
}

std::string PastTheGateLine(const std::vector<device::GpuProcess>& processes) {
  std::string text;
  for (const device::GpuProcess& process : processes) {
    text += fmt::format("{}{} {}", text.empty() ? "not under the gate: " : ", ", process.pid,
                        process.name.empty() ? "?" : Quoted(process.name));
    if (process.memory_bytes) text += fmt::format(" ({} GiB)", InGib(*process.memory_bytes));
  }
  return text.empty() ? text : text + "\n";
}

json PastTheGateJson(const std::vector<device::GpuProcess>& processes) {
  json array = json::array();
  for (const device::GpuProcess& process : processes) {
    array.push_back(
        {{"pid", process.pid},
         {"name", process.name},
         {"memory_bytes", process.memory_bytes ? json(*process.memory_bytes) : json()}});
  }
  return array;
}

// As NVML and nvidia-smi write it, but for what it begins with: whether it is a GPU's or a MIG
// instance's the board does not say.
std::string WithDashes(const std::string& hex) {
  if (hex.size() != 32) return hex;
  return fmt::format("{}-{}-{}-{}-{}", hex.substr(0, 8), hex.substr(8, 4), hex.substr(12, 4),
                     hex.substr(16, 4), hex.substr(20));
}

bool Fits(const std::string& table, std::size_t columns) {
  for (std::size_t begin = 0; begin < table.size();) {
    const std::size_t end = table.find('\n', begin);
    if (end - begin > columns) return false;
    begin = end + 1;
  }
  return true;
}

}  // namespace

std::vector<GpuRates> RatesOf(const std::vector<BoardReading>& before,
                              const std::vector<BoardReading>& now) {
  std::vector<GpuRates> gpus;
  for (const BoardReading& board : now) {
    if (board.jobs.empty()) continue;
    GpuRates gpu{board.gpu, {}, board.servers};
    const auto then = std::ranges::find(before, board.gpu, &BoardReading::gpu);
    for (const JobReading& job : board.jobs) {
      const JobReading* const same = FindSame(before, board.gpu, job);
      const double seconds = same != nullptr ? Growth(then->at_ns, board.at_ns) / 1e9
                                             : static_cast<double>(job.age_ns) / 1e9;
      gpu.jobs.push_back(RatesOf(same != nullptr ? *same : JobReading{}, job, seconds));
    }
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

std::vector<device::GpuProcess> PastTheGate(const GpuRates& gpu,
                                            const std::vector<device::GpuProcess>& processes) {
  std::vector<device::GpuProcess> others;
  bool comparable = false;
  for (const device::GpuProcess& process : processes) {
    const auto is_same = [&](int pid) { return std::cmp_equal(pid, process.pid); };
    const bool is_job =
        std::ranges::any_of(gpu.jobs, is_same, [](const JobRates& job) { return job.now.pid; });
    comparable = comparable || is_job;
    if (is_job || std::ranges::any_of(gpu.servers, is_same, &JobReading::pid) ||
        process.name == "nvidia-cuda-mps-server")
      continue;
    others.push_back(process);
  }
  if (!comparable) others.clear();
  return others;
}

std::string TopTable(const std::vector<GpuRates>& gpus, const GpuNames& names,
                     std::size_t columns) {
  constexpr std::size_t kLeft = 4;  // PID is a name too.
  std::string text;
  for (const GpuRates& gpu : gpus) {
    const auto known = names.find(gpu.gpu);
    text += fmt::format("{}{}\n", text.empty() ? "" : "\n",
                        known == names.end() ? "GPU " + WithDashes(gpu.gpu) : known->second.label);
    std::vector<std::vector<std::string>> rows = {
        {"PID", "NAME", "CLASS", "MODE", "SLO", "OPEN", "P50 MS", "P99 MS", "LATE", "REQ/S",
         "LAUNCH/S", "GPU", "CLOSED", "MARK/S", "MEM GIB", "RESCUED"}};
    for (const JobRates& job : gpu.jobs) rows.push_back(JobRow(job));
    std::string table = Table(rows, kLeft);
    while (columns > 0 && !Fits(table, columns) && rows.front().size() > kLeft) {
      for (auto& row : rows) row.pop_back();
      table = Table(rows, kLeft);
    }
    text += table;
    for (const JobReading& server : gpu.servers) text += ServerLine(server);
    if (known != names.end()) text += PastTheGateLine(PastTheGate(gpu, known->second.processes));
  }
  return text;
}

json TopJson(const std::vector<GpuRates>& gpus, const GpuNames& names) {
  json array = json::array();
  for (const GpuRates& gpu : gpus) {
    const auto known = names.find(gpu.gpu);
    json entry = {{"gpu", gpu.gpu}, {"index", nullptr}, {"name", nullptr}, {"uuid", nullptr}};
    if (known != names.end()) {
      entry["index"] = known->second.index;
      entry["name"] = known->second.name;
      entry["uuid"] = known->second.uuid;
    }
    entry["jobs"] = json::array();
    for (const JobRates& job : gpu.jobs) entry["jobs"].push_back(JobJson(job));
    entry["mps_servers"] = json::array();
    for (const JobReading& server : gpu.servers) entry["mps_servers"].push_back(ServerJson(server));
    const std::vector<device::GpuProcess> none;
    entry["not_under_the_gate"] =
        PastTheGateJson(PastTheGate(gpu, known == names.end() ? none : known->second.processes));
    array.push_back(std::move(entry));
  }
  return {{"gpus", std::move(array)}};
}

}  // namespace divvy::app
