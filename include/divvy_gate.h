#pragma once

/* Marks the requests of an inference program for Divvy's gate, in C and C++:
 *
 *   divvy_request_begin(0);
 *   ... everything the request needs, GPU work and all ...
 *   divvy_request_end();
 *
 * Without marks the gate takes a request to last from the first launch after a pause to the end of
 * the wait for it, which misses the time a request spent in a queue. With them the times are exact,
 * and a latency target (`divvy run --slo`) is held from when the request arrived.
 *
 * Both calls do nothing in a program that runs without the gate, so they may stay in. Nothing has
 * to be linked (before glibc 2.34: -ldl). begin and end of one request belong in the same thread;
 * requests do not nest; an end without a begin does nothing. Safe in any thread; well under a
 * microsecond each.
 *
 * Looked up at the first call rather than left to the linker as weak symbols: a program that is not
 * position independent gets those resolved to nothing when it is built.
 */

#include <dlfcn.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef void (*divvy_request_begin_function)(uint64_t);
typedef void (*divvy_request_end_function)(void);

/* Implementation detail: what a call does where there is no gate. */
static inline void divvy_no_request_begin(uint64_t arrival_ns) { (void)arrival_ns; }
static inline void divvy_no_request_end(void) {}

/* A request begins that arrived at `arrival_ns` by CLOCK_MONOTONIC; 0 means now. Times in the
 * future are taken for now. */
static inline void divvy_request_begin(uint64_t arrival_ns) {
  static divvy_request_begin_function known;
  divvy_request_begin_function begin = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (!begin) {
    void* const everywhere = 0;
    void* const symbol = dlsym(everywhere, "divvy_request_begin");
    begin = divvy_no_request_begin;
    if (symbol) __builtin_memcpy(&begin, &symbol, sizeof begin);
    __atomic_store_n(&known, begin, __ATOMIC_RELAXED);
  }
  begin(arrival_ns);
}

/* The request that this thread began is done. */
static inline void divvy_request_end(void) {
  static divvy_request_end_function known;
  divvy_request_end_function end = __atomic_load_n(&known, __ATOMIC_RELAXED);
  if (!end) {
    void* const everywhere = 0;
    void* const symbol = dlsym(everywhere, "divvy_request_end");
    end = divvy_no_request_end;
    if (symbol) __builtin_memcpy(&end, &symbol, sizeof end);
    __atomic_store_n(&known, end, __ATOMIC_RELAXED);
  }
  end();
}

#ifdef __cplusplus
} /* extern "C" */
#endif
