#pragma once

// What the gate knows inside one process: how it was told to behave, and per GPU its place on the
// board.
//
// Everything here is zero at the start and never torn down: the program may launch from a static
// destructor.

#include "gate/board.h"
#include "gate/costs.h"
#include "gate/hold_trials.h"
#include "gate/latency.h"
#include "gate/library/driver.h"
#include "gate/marking.h"
#include "gate/ops.h"
#include "gate/ops_log.h"
#include "gate/ops_pace.h"
#include "gate/slo.h"

#include <atomic>

namespace divvy::gate {

inline constexpr int kDevices = 16;
inline constexpr int kThreads = 256;
inline constexpr int kGauges = 256;
inline constexpr int kSamples = 64;

struct Settings {
  JobIdentity job;
  std::uint32_t openness = 0;  // of a latency job without an SLO
  bool apart = false;          // a latency job outside of MPS, in turns that interrupt batch jobs'
  bool served = false;         // a client of MPS, and its server has our library
  const char* board_directory = "/dev/shm";
  const char* report = nullptr;
  const char* log_directory = nullptr;  // of a job of class log
  std::uint32_t log_cost_ppm = kDefaultOpsCostPpm;
};

// What is timed.
struct Timed {
  Cost* cost = nullptr;
  // For the kernel log, as often as its pace allows; null in jobs of other classes.
  const OpKind* kind = nullptr;
  cuda::Stream stream = nullptr;  // into which it is launched
  bool first = false;             // one of the first of its kind
};

// A kernel being timed.
struct Sample {
  cuda::Event begin, end;
  Timed timed;              // without a cost: free
  bool held;                // its stream, until the launch is submitted
  bool shared;              // it was launched while other batch jobs were there
  std::uint64_t caller_ns;  // for the kernel log: what beginning to time it has taken
};

// One thread of a latency job on one GPU.
struct Worker {
  std::atomic<std::uint32_t> active;       // has work submitted that is not known to be done
  std::atomic<std::uint32_t> waiting;      // asked for its end
  std::atomic<std::uint32_t> submitting;   // a graph: no wait that is under way covers it
  std::atomic<std::uint64_t> last_launch;  // its number among the launches of the GPU
  std::atomic<cuda::Stream> streams[4];    // of this request, the last ones
  std::uint32_t next_stream;
  std::atomic<cuda::Stream> stream;  // of that launch
  std::uint32_t since_mark;          // launches
  std::uint32_t marks;               // progress marks submitted
  std::uint32_t in_request;          // between divvy_request_begin and _end
  std::uint64_t request_start_ns;
};

enum Phase : std::uint32_t { kUnseen = 0, kJoining = 1, kJoined = 2, kOff = 3 };

struct GpuState {
  std::atomic<std::uint32_t> phase;  // Phase
  int index;
  Board* board;
  std::atomic<Board*> last_board;  // at which streams of ours may still wait: it stays mapped
  Slot* slot;
  int slot_index;
  std::atomic<GateMode> mode;
  std::atomic<std::uint32_t> refused;      // markers, in a row
  std::atomic<std::uint32_t> interval_ns;  // between markers
  std::atomic<bool> interruptible;         // by jobs that are apart: no markers for those
  std::atomic<bool> unmeasurable;          // collective operations, or more streams than tracks
  cuda::DevicePointer board_on_gpu;
  std::uint32_t multiprocessors;
  cuda::Context context;  // in which it was joined: what was prepared goes with it
  char board_path[256];

  // Batch.
  StreamGauge gauges[kGauges];
  StreamSpread spread;
  std::atomic<cuda::Stream> tracks[kTracks];  // whose marks are counted together; null: free
  std::atomic<std::uint32_t> sampling;        // a lock that nobody waits for
  Sample samples[kSamples];
  std::uint8_t under_way[kSamples];        // which of them, in the order of their launches,
  std::atomic<std::uint32_t> samples_out;  // and how many; changed under the lock
  std::uint32_t samples_begun;
  std::uint32_t sample_overhead_ns;

  // Log: a stream is held until what is timed is all submitted, and an event whose time is known.
  // Latency: the GPU is held for a moment after a graph (hold.h).
  cuda::DevicePointer hold_on_gpu;           // its word in pinned; 0: nothing is held
  std::atomic<std::uint32_t> hold_number;    // of the last hold; over when its word says so
  std::atomic<std::uint64_t> held_since_ns;  // 0: nothing is held
  OpsPace pace;                              // spent under the sampling lock
  cuda::Event clock_event;
  std::uint64_t clock_ns;
  std::uint64_t harvested_ns;  // when timings were last read; under the sampling lock
  std::uint32_t jobs_seen;     // batch jobs when the keeper last looked
  // By track: GPU time not yet on the board, and launched since a wait for the others' moments
  // alone.
  std::atomic<std::uint64_t> account_ns[kTracks];
  std::atomic<std::uint32_t> free_us[kTracks];
  std::atomic<std::uint32_t> scale;      // of it, as it was measured alone (gate/alone.h)
  std::atomic<std::uint64_t> exempt_ns;  // of what is never held, not yet on the board
  cuda::Event host_marks[4];             // in host mode: markers under way
  std::atomic<std::uint32_t> host_mark;

  // Latency.
  std::atomic<std::uint32_t> transition;  // a spin lock around changes of state
  Worker workers[kThreads];
  std::int32_t own_pid;
  std::atomic<bool> left;       // the place on the board was given back; under the transition lock
  std::atomic<bool> abandoned;  // likewise: work is under way that nobody asks about
  std::atomic<std::uint32_t> active;   // workers
  std::atomic<std::uint32_t> waiting;  // workers
  std::atomic<std::uint32_t>
      heavy;  // a graph or the like is under way: do not wait for marks to tell
  std::atomic<std::uint64_t> launches;
  std::atomic<std::uint64_t> request_start_ns;
  std::atomic<std::uint64_t> request_first_launch;
  std::atomic<std::uint64_t> usual_launches;  // in a request, times 16
  std::uint32_t stepwise_requests;            // up and down: of the last ones, kernel by kernel
  std::uint64_t stepwise_ns;                  // what these take, from wait to wait
  std::uint32_t waits;                        // that ended in this request,
  std::uint64_t launches_waited;              // and what had been launched by the last of them
  std::uint64_t launches_seen;                // by the keeper,
  std::uint64_t launches_seen_ns;             // and when they last changed
  std::atomic<std::uint64_t> rest_until_ns;
  std::atomic<std::uint64_t>
      open_at_ns;                    // when the keeper opens the gate although the job still waits
  std::atomic<std::uint32_t> early;  // it has
  std::atomic<std::uint64_t> wait_start_ns;
  std::atomic<std::uint64_t> usual_wait_ns;
  std::atomic<std::uint64_t> usual_request_ns;
  std::atomic<cuda::Function> hold_function;  // null: nothing is held
  cuda::Stream hold_stream;
  std::atomic<bool> hold_launching;       // the keeper is in the driver for it
  std::atomic<bool> bears_hold;           // one was begun in this request
  std::atomic<std::uint32_t> holding;     // a spin lock around the next two
  std::atomic<std::uint64_t> hold_at_ns;  // when the keeper begins the next hold; 0: never
  HoldTrials hold_trials;                 // under the transition lock, as what follows
  std::uint64_t hold_asked;               // the request for which it was last asked,
  bool hold_wanted;                       // and its answer
  bool in_a_row;                          // the request came right behind another,
  bool row_held;                          // and the GPU was held between the two
  cuda::DevicePointer marks_on_gpu;
  RequestTimes times;
};

struct Coverage {
  std::atomic<std::uint64_t> kernels, graphs, captured, lookups, replaced, dlsyms, out_of_memory;
};

struct ProcessState {
  std::atomic<std::uint32_t> configured;
  Settings settings;
  std::atomic<std::uint32_t> captures;    // under way in any thread
  std::atomic<bool> captured_collective;  // there are graphs that meet other processes
  std::atomic<int> device_count;
  GpuState gpus[kDevices];
  std::atomic<std::uint32_t> thread_taken[kThreads];
  CostTable costs;
  Cost unknown;  // of kinds for which the table has no room: for ever as new
  KnownOps known;
  OpsLog* log;  // of a job of class log: set before its first GPU is joined
  Coverage coverage;
  std::atomic<std::uint32_t> keeper_runs;
  std::atomic<std::uint32_t> keeper_bell;  // a futex
};

extern ProcessState process;
// Progress words of the workers, a cache line each, written by the GPU.
struct alignas(64) ProgressMark {
  std::atomic<std::uint32_t> passed;
};
// Words that held streams wait for, a page each, written by the CPU.
struct alignas(4096) HoldWord {
  std::atomic<std::uint32_t> over;
};
// What the GPU reads and writes of ours. Shared memory: a fork makes private pages anew at their
// next write, perhaps in the parent, while the GPU would go on with the old ones. There whenever
// the job is of a class; a child has its own.
struct PinnedWords {
  alignas(4096) ProgressMark marks[kDevices][kThreads];
  HoldWord holds[kDevices];
};
extern PinnedWords* pinned;

// Reads the settings, once: before that, the job is of no class.
void ReadSettings();

// The GPU of the calling thread's context, joined to its board; null if the gate has nothing to do
// there.
GpuState* CurrentGpu(const Driver& driver);

// Memory of ours in the address space of the GPU; 0 if it cannot be, or waits on memory are not to
// be had.
cuda::DevicePointer MapForGpu(const Driver& driver, void* memory, std::size_t bytes);

// The device's context is gone, and what was prepared in it: the next launch joins anew.
void ForgetGpu(cuda::Device device);
// Likewise for whichever GPU was joined in that context. Before the context goes.
void ForgetContext(cuda::Context context);
// The context is gone, and with it what was allocated there. Null: nothing is.
void ForgetMemory(cuda::Context context);
// In the child of a fork: what its parent allocated is not its own.
void DropMemory();

// In MPS' server: takes its place on the board of the GPU that DIVVY_GPU_UUID names.
void JoinAsServer();

// This thread's record on the GPU; null if there are too many threads.
Worker* ThisWorker(GpuState& gpu);

// "divvy: ..." on stderr.
void Say(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Rings for the keeper: the rest of a latency job has begun.
void RingKeeper();
void StartKeeper();
// Starts a thread of the library's own; false if there is none to be had.
bool StartThread(void* (*run)(void*));

}  // namespace divvy::gate
