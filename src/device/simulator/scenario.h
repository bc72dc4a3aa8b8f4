#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "device/simulator/state.h"

// What a person does to a simulated node to set a scene: the control tool's
// verbs, with errors that say what would be right. A failure changes nothing.

namespace divvy::device::simulator {

// A process to pretend. Without `gpu_instance` it holds the whole GPU; without
// `compute_instance` it runs on the only one there is, or on the GPU instance
// alone where there is none.
struct ProcessRequest {
  std::size_t gpu = 0;
  std::optional<unsigned> gpu_instance;
  std::optional<int> start;  // Names the GPU instance by its first memory slice instead.
  std::optional<unsigned> compute_instance;
  std::optional<unsigned> pid;  // The first free one from 1001 when not given.
  std::string name = "python";
  std::uint64_t memory_mib = 0;
  ProcessKind kind = ProcessKind::kCompute;
};

//   kNotFound            there is no such GPU or instance;
//   kInvalidArgument     it could be one of several, or the pid is taken;
//   kResourceExhausted   its memory does not fit.
[[nodiscard]] Result<Process> StartProcess(State& state, const ProcessRequest& request);

// Ends the process wherever it is, on however many GPUs; kNotFound if nowhere.
[[nodiscard]] Result<Process> StopProcess(State& state, unsigned pid);

// Makes a GPU instance with one compute instance over all of it.
//   kNotFound            there is no such GPU or profile;
//   kFailedPrecondition  the GPU is not in MIG mode;
//   others               as gpu::MigLayout::Place.
[[nodiscard]] Result<GpuInstance> CreateWhole(State& state, std::size_t gpu,
                                              std::string_view profile, std::optional<int> start);

// The node drawn for a person: GPUs, instances and what runs where.
[[nodiscard]] std::string Draw(const State& state);

}  // namespace divvy::device::simulator
