#pragma once

// What a kernel is and how long it takes, by asking the driver and by pairs of events around
// launches.

#include "gate/library/state.h"

namespace divvy::gate {

// What the driver says of a launch; `name` is empty if it does not say.
struct Described {
  const char* name = "";
  OpFacts facts;
};
Described Describe(const Driver& driver, const GpuState& gpu, const LaunchShape& shape,
                   cuda::Function function);

// Whether it is a kernel of operations of several GPUs, by its name.
bool IsCollective(const Driver& driver, cuda::Function function);

// Makes the events with which kernels are timed, and finds out how much longer than its kernel a
// pair of them measures. `may_hold`: streams are held meanwhile and later, if the driver can;
// REQUIRES: somebody watches for holds that last too long.
void PrepareTiming(const Driver& driver, GpuState& gpu, bool may_hold);

// Begins to time a launch; null if another thread is at it, all events are in use, or the pace does
// not allow it. Whoever gets one ends it after the launch.
Sample* BeginSample(const Driver& driver, GpuState& gpu, const Timed& timed);
void EndSample(const Driver& driver, GpuState& gpu, Sample& sample);

// Lets a stream go that is held while a kernel is being submitted: by the thread that holds it.
// False if another has done so before.
bool ReleaseHold(GpuState& gpu);
// Likewise by any other, if it is still the hold that began then: the thread that holds it may
// itself be stopped, in the driver, by one that waits for the stream.
void ReleaseHeldSince(GpuState& gpu, std::uint64_t since_ns);

// Reads the timings that are ready, unless that was done of late: the next launch to be timed,
// which would see to it too, may be long in coming.
void ReadTimings(const Driver& driver, GpuState& gpu);
// Under the kernel log, after a wait: nothing else may come. Does nothing for jobs of other
// classes.
void ReadTimingsAfterWait();

}  // namespace divvy::gate
