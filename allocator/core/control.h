// SPDX-License-Identifier: Apache-2.0
//
// The control block and the waits (contract.h), as the allocator sees them. Only this file and control.cc touch their
// fields. The collector or a debugger may write some of them at any moment, so each access is atomic, except in
// Publish, before which no collector can find the block. Accesses are relaxed unless a comment says otherwise: the
// fields are independent.
//
// Any thread, any time. Zero-initialised state is valid: no collector, no figures.
#ifndef HEAPTAP_ALLOCATOR_CORE_CONTROL_H_
#define HEAPTAP_ALLOCATOR_CORE_CONTROL_H_

#include <stdint.h>

#include "heaptap/contract.h"

// Exported: the collector finds the block by this name, or from the probe heaptap:start.
extern "C" __attribute__((visibility("default"))) heaptap_control heaptap_control;

// Exported: a debugger finds it by this name.
extern "C" __attribute__((visibility("default"))) heaptap_waits heaptap_waits;

namespace heaptap {

// One of the allocator's own figures: bytes or a number, see heaptap_statistics. Only slow paths change them.
using Figure = uint64_t heaptap_statistics::*;

inline void AddToFigure(Figure figure, int64_t amount) {
  __atomic_fetch_add(&(::heaptap_control.statistics.*figure), static_cast<uint64_t>(amount), __ATOMIC_RELAXED);
}

inline uint64_t ReadFigure(Figure figure) {
  return __atomic_load_n(&(::heaptap_control.statistics.*figure), __ATOMIC_RELAXED);
}

namespace control {

// The fields that the process writes once, when it starts.
struct InitialValues {
  uint32_t pid;
  uint32_t options;  // HEAPTAP_OPTION_*
  bool is_active;
  uint32_t lg_interval;
  uint32_t collector_lg_interval;  // HEAPTAP_NO_RATE: the collector has set none
  uint32_t collector_pid;          // 0: no collector
  uint32_t collector_follows;      // HEAPTAP_COLLECTOR_* of that collector
  uint32_t max_frames;
  const void* text_begin;
  const void* text_end;
  const uint16_t* alloc_semaphore;
};

// Writes the values, and the magic number last: a collector that finds the number finds the rest.
void Publish(const InitialValues& values);

// For the child of a fork, which has another PID.
void SetPid(uint32_t pid);

// prof.active.
inline bool IsActive() { return __atomic_load_n(&::heaptap_control.active, __ATOMIC_RELAXED) != 0; }
void SetActive(bool is_active);

// lg of the mean bytes between samples: the collector's value, or else the process's own. The collector may choose any
// number; the lg in force is at most HEAPTAP_MAX_LG_SAMPLE.
inline uint32_t ChosenLgInterval() {
  const uint32_t own = __atomic_load_n(&::heaptap_control.lg_sample, __ATOMIC_RELAXED);
  const uint32_t collectors = __atomic_load_n(&::heaptap_control.collector_lg_sample, __ATOMIC_RELAXED);
  return collectors == HEAPTAP_NO_RATE ? own : collectors;
}
inline uint32_t EffectiveLgInterval(uint32_t chosen = ChosenLgInterval()) {
  return chosen < HEAPTAP_MAX_LG_SAMPLE ? chosen : HEAPTAP_MAX_LG_SAMPLE;
}
// Sets the process's own value.
void SetOwnLgInterval(uint32_t lg_interval);

// The PID that the collector of this process has written; 0: none has.
inline uint32_t CollectorPid() { return __atomic_load_n(&::heaptap_control.collector_pid, __ATOMIC_RELAXED); }
// Whether that collector records forked children too.
bool DoesCollectorFollow();
// Whether that collector gives areas (contract.h).
inline bool DoesCollectorGiveAreas() {
  return (__atomic_load_n(&::heaptap_control.collector_follows, __ATOMIC_RELAXED) & HEAPTAP_COLLECTOR_GIVES_AREAS) != 0;
}
// Whether the collector has said that it no longer records this process, and no other collector has come.
bool HasCollectorLeft();
// Erases the collector's PID and interval.
void ForgetCollector();

// Sets the name of the host (libheaptap-guest.so); a long name is cut. A second name must not be shorter.
void SetHost(const char* name);

// Makes a request for unwind tables and returns its number.
uint32_t BeginTableRequest();
// The number of the latest request.
uint32_t LatestTableRequest();
// Whether the request has been answered. The numbers may wrap.
bool IsTableRequestAnswered(uint32_t request);

// The calling thread begins to wait: adds one to a field of heaptap_waits.
using Wait = uint32_t heaptap_waits::*;
void CountWait(Wait wait);

// Milliseconds that a request for a dump waits for its answer. May change at any time.
uint64_t DumpPatience();

}  // namespace control
}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CONTROL_H_
