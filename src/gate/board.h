#pragma once

// The board: one file of shared memory per GPU on which the jobs that share it see each other.
//
// Every job has a slot, which nobody else writes but to free the dead and to note who has no work.
// There is no lock on the way of a launch: a robust mutex guards joining, leaving and the removal
// of the dead, nothing else. The GPU itself reads `level`: a batch job puts waits on it between its
// kernels, so that a latency job pauses training by one store and resumes it by another, and
// neither has to wake anybody.
//
// Used by the gate library inside foreign processes: no exceptions, no allocation, no dependency
// but libc.

#include <pthread.h>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace divvy::gate {

inline constexpr int kSlots = 64;
inline constexpr int kTracks = 8;
// To be raised with every change of what follows: jobs of two versions must not meet.
inline constexpr std::uint32_t kBoardVersion = 6;

// Levels are compared by the GPU as `level >= class of the kernel`. Everything passes at kOpen,
// nothing at kClosed.
inline constexpr std::uint32_t kClosed = 0;
inline constexpr std::uint32_t kOpen = 1U << 20;

// How far a latency job lets batch jobs in, in thousandths: 0 keeps them out whenever it works,
// kNoProtection never does (and batch jobs then spare themselves the markers).
inline constexpr std::uint32_t kNoProtection = 1000;

// `Slot::scale` of a job that is charged as predicted, and of one that cannot be measured.
inline constexpr std::uint32_t kUnscaled = 1'024;
inline constexpr std::uint32_t kUnmeasurable = UINT32_MAX;

// A job of class kLog writes a kernel log, and has no place on a board. kServer is no job: MPS'
// server, in whose turns on the GPU its clients run.
enum class JobClass : std::uint32_t { kNone = 0, kLatency = 1, kBatch = 2, kLog = 3, kServer = 4 };

struct JobIdentity {
  JobClass job_class = JobClass::kNone;
  std::uint32_t weight = 100;      // of a batch job, in hundredths
  std::uint64_t slo_ns = 0;        // of a latency job; 0: pinned by a preset
  std::uint64_t memory_quota = 0;  // bytes; 0: none
  char name[48] = {};
};

// The same on the board, where others read it while the place may be given to the next.
struct SharedIdentity {
  std::atomic<JobClass> job_class;
  std::atomic<std::uint32_t> weight;
  std::atomic<std::uint64_t> slo_ns;
  std::atomic<std::uint64_t> memory_quota;
  std::atomic<char> name[sizeof(JobIdentity::name)];
};

struct Slot {
  // Who: written under the board's lock when the job joins, and read by others without it.
  alignas(64) std::atomic<std::uint32_t> live;  // 0 free, 1 taken
  std::atomic<std::int32_t> pid;
  std::atomic<std::uint64_t> start_time;     // in clock ticks since boot: pids are used again
  std::atomic<std::uint64_t> pid_namespace;  // in which the pid counts: a container's are its own
  std::atomic<std::uint64_t> image;  // of the program in it: it may replace itself and come again
  SharedIdentity job;

  // The gate word of a latency job, on a line of its own: the GPU polls it.
  alignas(64) std::atomic<std::uint32_t> level;
  std::atomic<std::uint64_t> closed_since_ns;  // CLOCK_MONOTONIC; 0 while open
  std::atomic<std::uint32_t> openness;         // 0 .. kNoProtection
  std::atomic<std::uint64_t>
      heartbeat_ns;  // the job's keeper was here; a stopped process cannot hold the gate

  // What the job did, for those who look.
  alignas(64) std::atomic<std::uint64_t> launches;  // kernels and graphs
  std::atomic<std::uint64_t> graphs;                // graphs among them
  std::atomic<std::uint64_t> markers;               // waits put into its streams
  std::atomic<std::uint64_t> gpu_ns;  // GPU time of what it launched, as it is charged for it
  std::atomic<std::uint64_t>
      virtual_ns;  // the same over its weight, from where it joined: batch jobs in turn
  std::atomic<std::uint64_t> last_launch_ns;  // CLOCK_MONOTONIC
  std::atomic<std::uint64_t> closed_ns;       // how long it kept the gate closed in all
  std::atomic<std::uint64_t> memory_bytes;    // allocated now, by what the gate saw

  // How far the work of a batch job has come, beside others: microseconds of GPU time that were
  // submitted, on tracks by stream, and those that the GPU has passed and writes down itself.
  alignas(64) std::atomic<std::uint32_t> passed[kTracks];
  std::atomic<std::uint32_t> submitted[kTracks];
  std::atomic<std::uint64_t>
      short_since_ns;  // when another job saw that few are under way; 0: many are
  std::atomic<std::uint64_t>
      alone_ns;                      // when it last was alone on the GPU (gate/alone.h); 0: never
  std::atomic<std::uint32_t> scale;  // what its work takes alone, in 1024ths of what was predicted;
                                     // 0: not known, kUnmeasurable: nor will be
  std::atomic<std::uint32_t> shared_from_us;  // what was submitted when others came

  alignas(64) std::atomic<std::uint64_t> requests;  // of a latency job
  std::atomic<std::uint64_t> late;                  // requests above the SLO
  std::atomic<std::uint64_t> p50_ns;                // of the last requests
  std::atomic<std::uint64_t> p99_ns;
  std::atomic<std::uint64_t> rescued;  // times that somebody else opened a gate left closed
  std::atomic<std::uint32_t> marked;   // 1: requests are marked by the program, 0: inferred
  std::atomic<std::uint32_t> mode;     // GateMode

  // Turns on the GPU, of those who take turns (gate/slices.h).
  std::atomic<std::uint32_t> slice_us;  // how long one is, by our setting; 0: the driver's affair
  std::atomic<std::uint32_t> apart;     // 1: a latency job whose turns interrupt batch jobs'
  std::atomic<std::uint32_t>
      stepwise_us;  // what its requests take that are launched kernel by kernel; 0: they are not
};

// How a batch job is held back.
enum class GateMode : std::uint32_t { kUnknown = 0, kDevice = 1, kHost = 2, kPass = 3 };

struct Board {
  std::atomic<std::uint32_t>
      magic;  // published last; anything else than kBoardMagic is not a board (any more)
  std::uint32_t version;
  std::uint32_t bytes;
  std::atomic<std::uint32_t>
      latency_jobs;  // how many slots belong to latency jobs: 0 frees batch jobs of all work
  std::atomic<std::uint32_t> batch_jobs;
  // Batch jobs whose kernels may run, a bit for each slot: all of them, but in moments in which one
  // is alone (gate/alone.h). The GPU waits on these.
  alignas(64) std::atomic<std::uint32_t> may_run[kSlots / 32];
  std::atomic<std::uint64_t> alone_until_ns;  // such a moment ends by then; 0: there is none
  std::atomic<std::uint64_t> alone_soon_ns;   // none begins before, if its job is new
  std::atomic<std::uint64_t> alone_next_ns;   // and otherwise
  std::atomic<std::int32_t> alone_slot;       // whose the last one is
  alignas(64) pthread_mutex_t lock;
  alignas(64) Slot slots[kSlots];
};

inline constexpr std::uint32_t kBoardMagic = 0x44565942;
static_assert(sizeof(Board) < std::size_t{64} * 1024);

// Opens the board at `path`, making it if there is none. Returns nullptr and fills `error` (what,
// and what would be right) when it cannot: the caller then runs ungated. Refuses a file of another
// owner, of looser permissions than 0600, of another version or size.
Board* OpenBoard(const char* path, char* error, unsigned error_size);
void CloseBoard(Board* board);

// Takes a free slot for this process, first freeing those of the dead. Returns its index, or -1
// when the board is full or has been removed meanwhile (then open it again: `IsCurrent` tells).
int Join(Board* board, const JobIdentity& job);
// Gives the slot back and opens its gate. Safe to call twice.
void Leave(Board* board, int slot);
// False once the board was removed by the last to leave.
bool IsCurrent(const Board* board);

// What stands there; where the slot was given to another meanwhile, of either something.
JobIdentity IdentityOf(const Slot& slot);

// Frees the slots of processes that are no more and opens their gates. Returns how many.
int Reap(Board* board);
// Removes the file if no slot is taken. True if it is gone.
bool RemoveIfEmpty(Board* board, const char* path);

// Start time of a process that is there and cannot be looked up: no file descriptor was left for
// it.
inline constexpr std::uint64_t kUnknownStart = UINT64_MAX;
// Whether the process that began then is there, or may be.
bool IsAlive(std::int32_t pid, std::uint64_t start_time);
// Whether the slot's job is gone for sure. One of another pid namespace cannot be looked up: it is
// gone when its keeper has not been seen for long.
bool IsGone(const Slot& slot);
// Start time of a process as in /proc/PID/stat, 0 if it is gone or a zombie; or kUnknownStart.
std::uint64_t StartTime(std::int32_t pid);
// In which process ids are those of this process; 0 if that is not known.
std::uint64_t OwnPidNamespace();

std::uint64_t NowNs();  // CLOCK_MONOTONIC

// Path of a GPU's board: DIRECTORY/divvy-UID-GPUID, where the id is the driver's UUID in hex.
void BoardPath(const char* directory, const unsigned char (&uuid)[16], char* path, unsigned size);

}  // namespace divvy::gate
