#pragma once

// The kernel log: a file of shared memory for each process under `divvy profile --ops`, in which
// the gate library notes what the process launches, and which another process reads meanwhile.
//
// Kinds of launches are written once and then only counted, by one relaxed addition each. Some
// launches are timed; their timings go through a ring. So the program under test does nothing but
// stores, and what it stored is there when it was killed.
//
// Used by the gate library inside foreign processes: no exceptions, no allocation, no dependency
// but libc.

#include <atomic>
#include <cstdint>

#include "gate/costs.h"

namespace divvy::gate {

// To be raised with every change of what follows.
inline constexpr std::uint32_t kOpsLogVersion = 3;
inline constexpr std::uint32_t kOpsLogMagic = 0x44564f4c;
inline constexpr std::uint32_t kOpKinds = 1U << 13;
inline constexpr std::uint32_t kOpSamples = 1U << 13;
inline constexpr std::uint32_t kOpNameBytes = 2U << 20;

// What is known of a kind of launch from the beginning.
struct OpFacts {
  LaunchShape shape;                            // a graph has none but its handle
  std::uint32_t blocks_per_multiprocessor = 0;  // at once, by occupancy; 0: unknown
  std::uint32_t multiprocessors = 0;            // of the GPU
  std::uint32_t graph_kernels = 0;              // of a graph; 0: unknown
  std::uint16_t fill = 1000;                    // as Cost::fill
  std::uint8_t is_graph = 0;
  std::uint8_t exempt = 0;  // as Cost::exempt
};

// On lines of its own: threads that launch different kernels do not meet.
struct alignas(64) OpKind {
  OpFacts facts;
  std::uint64_t name_hash;
  std::uint32_t name_at;  // in OpsLog::names, with a zero at its end
  std::uint32_t name_bytes;
  std::atomic<std::uint64_t> launches;
};

// A launch that was timed.
struct OpSample {
  std::uint64_t start_ns = 0;  // CLOCK_MONOTONIC, by the GPU's clock since the job began
  std::uint64_t stream = 0;    // its handle
  std::uint32_t duration_ns = 0;
  std::uint16_t kind = 0;
  std::uint16_t device = 0;
};

struct OpsLog {
  std::atomic<std::uint32_t> magic;  // published last
  std::uint32_t version;
  std::uint32_t bytes;
  std::int32_t pid;
  std::int32_t parent;
  std::uint64_t pid_namespace;  // as OwnPidNamespace has it,
  std::uint64_t start_time;     // and StartTime
  std::uint64_t start_ns;  // CLOCK_MONOTONIC, when the log was made: just before the first launch
  char program[64];
  std::atomic<std::uint32_t> kind_count;
  std::uint32_t names_used;
  std::atomic<std::uint64_t> unnoted;              // launches of kinds for which there was no room
  std::atomic<std::uint64_t> timing_ns;            // what timing has cost, by the log's reckoning
  std::atomic<std::uint64_t> let_go;               // streams that were held for too long
  alignas(64) std::atomic<std::uint64_t> pushed;   // samples, by the process
  std::atomic<std::uint64_t> dropped;              // because the ring was full
  alignas(64) std::atomic<std::uint64_t> drained;  // by the reader
  struct Place {
    std::atomic<std::uint64_t> turn;  // the sample's number and one, once it is written
    OpSample sample;
  };
  alignas(64) OpKind kinds[kOpKinds];
  Place ring[kOpSamples];
  char names[kOpNameBytes];
};

// Makes a log in `directory`, for this user alone; its file is named after the process. Null, with
// the reason in `error`, if it cannot: the caller then logs nothing.
OpsLog* CreateOpsLog(const char* directory, const char* program, char* error, unsigned error_size);
// Opens a log to read and drain it. Null, with the reason in `error`, if it is none of this
// version, or not whole yet.
OpsLog* OpenOpsLog(const char* path, char* error, unsigned error_size);
void CloseOpsLog(OpsLog* log);
// Whether the process that wrote it is no more, for sure: where that cannot be known it is not so.
bool HasEnded(const OpsLog& log);

// Adds a kind; its index, or -1 when there is no room. One caller at a time.
int AddOpKind(OpsLog& log, const OpFacts& facts, const char* name);

// Puts a sample into the ring; where that is full it is dropped, and counted. Any thread.
bool PushOpSample(OpsLog& log, const OpSample& sample);
// Takes the oldest sample out. False when there is none. One that was begun and is not written is
// waited for, unless `ended`: its writer is no more. One reader at a time.
bool TakeOpSample(OpsLog& log, bool ended, OpSample& sample);

// A kind's name; "" for an index or a place that makes no sense. What a foreign process writes is
// not to be trusted.
const char* NameOfOpKind(const OpsLog& log, std::uint32_t kind);
// How many kinds there are to be read.
std::uint32_t CountOpKinds(const OpsLog& log);

}  // namespace divvy::gate
