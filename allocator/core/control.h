// SPDX-License-Identifier: Apache-2.0
//
// The control block (contract.h), as the allocator sees it. Only this file and control.cc touch its fields: the
// collector writes some of them at any moment, so each is read and written whole, by one atomic access, but for
// Publish, before which nobody can find the block.
//
// Any thread, any time; zero-initialised state is valid: no collector, no figures. Accesses are relaxed unless said
// otherwise: each field stands for itself.
#ifndef HEAPTAP_ALLOCATOR_CORE_CONTROL_H_
#define HEAPTAP_ALLOCATOR_CORE_CONTROL_H_

#include <stdint.h>

#include "heaptap/contract.h"

// Exported: the collector finds it by its name, or from the probe heaptap:start.
extern "C" __attribute__((visibility("default"))) heaptap_control heaptap_control;

namespace heaptap {

// The allocator's own figures: bytes or numbers, see heaptap_statistics. Changed by slow paths only.
using Figure = uint64_t heaptap_statistics::*;

inline void AddToFigure(Figure figure, int64_t amount) {
  __atomic_fetch_add(&(::heaptap_control.statistics.*figure), static_cast<uint64_t>(amount), __ATOMIC_RELAXED);
}

inline uint64_t ReadFigure(Figure figure) {
  return __atomic_load_n(&(::heaptap_control.statistics.*figure), __ATOMIC_RELAXED);
}

namespace control {

// What the process writes once, when it starts.
struct InitialValues {
  uint32_t pid;
  uint32_t options;  // HEAPTAP_OPTION_*
  bool is_active;
  uint32_t lg_interval;
  uint32_t collector_lg_interval;  // HEAPTAP_NO_RATE: none
  uint32_t collector_pid;          // 0: none
  uint32_t max_frames;
  const void* text_begin;
  const void* text_end;
  const uint16_t* alloc_semaphore;
};

// Writes all of it, the magic number last (release): who finds that finds the rest.
void Publish(const InitialValues& values);

// The child of a fork has another PID.
void SetPid(uint32_t pid);

// prof.active.
inline bool IsActive() { return __atomic_load_n(&::heaptap_control.active, __ATOMIC_RELAXED) != 0; }
void SetActive(bool is_active);

// lg of the mean bytes between samples: the collector's, or else the process's own. At most HEAPTAP_MAX_LG_SAMPLE.
inline uint32_t EffectiveLgInterval() {
  uint32_t lg = __atomic_load_n(&::heaptap_control.collector_lg_sample, __ATOMIC_RELAXED);
  if (lg == HEAPTAP_NO_RATE) lg = __atomic_load_n(&::heaptap_control.lg_sample, __ATOMIC_RELAXED);
  return lg < HEAPTAP_MAX_LG_SAMPLE ? lg : HEAPTAP_MAX_LG_SAMPLE;
}
// The process's own.
void SetOwnLgInterval(uint32_t lg_interval);

// 0 while no collector has said that it records this process.
uint32_t CollectorPid();
// Whether that collector records forked children too.
bool DoesCollectorFollow();
// As if no collector had said anything.
void ForgetCollector();

// A new request for unwind tables: its number. Then the number of the latest.
uint32_t BeginTableRequest();
uint32_t LatestTableRequest();
// Whether the request is answered (acquire). The numbers may wrap.
bool IsTableRequestAnswered(uint32_t request);

}  // namespace control
}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_CORE_CONTROL_H_
