/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Figures of a process (struct heaptap_figures), its shares of the maps, and the events that its figures trigger.
 *
 * Several threads change the figures at once, each with atomic adds. A program that runs during a reset may leave a
 * figure one sample off, or below 0 for a moment, so figures are compared as signed numbers.
 */
#ifndef HEAPTAP_FIGURES_BPF_H_
#define HEAPTAP_FIGURES_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"

static __always_inline int has_figures(const struct heaptap_process* process) {
  return (process->flags & HEAPTAP_PROCESS_FIGURES) != 0;
}

/* Whether the figures belong to `process_id`: a reset may have begun new ones since the program read the id. */
static __always_inline int has_figures_of(const struct heaptap_process* process, __u64 process_id) {
  return has_figures(process) && *(const volatile __u64*)&process->identity.id == process_id;
}

enum share_state {
  SHARE_LEFT,
  SHARE_OWN_LIMIT, /* the process has as many entries as its limit */
  SHARE_ROOM,      /* the process has as many entries as are still free for all */
};

/* Whether a process with figures may have one more entry of a map. `own`: its entries; `limit`: heaptap_limits; `room`:
 * heaptap_settings; `entries`: the counter of the entries of all processes. */
static __always_inline enum share_state share_exhausted(const struct heaptap_process* process, __u64 own, __u64 limit,
                                                        __u64 room, enum heaptap_counter entries) {
  if (!has_figures(process)) return SHARE_LEFT;
  if (limit != 0 && (__s64)own >= (__s64)limit) return SHARE_OWN_LIMIT;
  const __u64* taken = counter(entries);
  return room != 0 && taken && (__s64)(own + *taken) >= (__s64)room ? SHARE_ROOM : SHARE_LEFT;
}

/* What a program has taken out of the books and not yet counted in the figures. */
struct removed {
  __u64 objects;
  __u64 weight;
};

/* Changes nothing, but hides the numbers from the verifier, which would otherwise check the rest of the program once
 * for each. `unknown`: a number that the verifier does not know. */
static __always_inline void hide_from_verifier(struct removed* removed, __u64 unknown) {
#ifdef __bpf__
  asm volatile("%0 ^= %2\n%0 ^= %2\n%1 ^= %2\n%1 ^= %2\n"
               : "+r"(removed->objects), "+r"(removed->weight)
               : "r"(unknown));
#endif
}

/* Counts what a program has removed. */
static __always_inline void count_removed(struct heaptap_process* process, __u64 process_id,
                                          const struct removed* removed) {
  if (removed->objects == 0 || !has_figures_of(process, process_id)) return;
  add(&process->figures.live_weight, -removed->weight);
  add(&process->figures.live_objects, -removed->objects);
}

/* Counts a sample that is in the books, together with what the same program has removed before, and sends the events
 * whose marks the sample passes. */
static __always_inline void count_figures(struct heaptap_process* process, __u32 tgid, __u64 process_id, __u64 weight,
                                          const struct removed* removed) {
  if (!has_figures_of(process, process_id)) return;
  struct heaptap_figures* figures = &process->figures;
  struct heaptap_marks* marks = &process->marks;
  if (removed->objects != 1) add(&figures->live_objects, 1 - removed->objects);
  __u64 change = weight - removed->weight;
  __u64 live_weight = __sync_fetch_and_add(&figures->live_weight, change) + change;
  __u64 mark = marks->high_water_at;
  /* It is below 0 for a moment when a free runs during a reset. */
  if ((__s64)live_weight < 0) live_weight = 0;
  /* When two threads write at once, the smaller value may win; the next sample corrects it. */
  __u64 peak = figures->peak_weight;
  if (live_weight > peak) __sync_val_compare_and_swap(&figures->peak_weight, peak, live_weight);
  if (live_weight >= mark && mark != HEAPTAP_NEVER) {
    __u64 next = live_weight + live_weight * process->triggers.high_water_percent / 100;
    if (__sync_val_compare_and_swap(&marks->high_water_at, mark, next) == mark)
      send_event(HEAPTAP_EVENT_HIGH_WATER, tgid, process->identity.id, live_weight);
  }

  __u64 allocated = __sync_fetch_and_add(&figures->allocated_weight, weight) + weight;
  __u64 at = marks->interval_at;
  __u64 step = process->triggers.interval_step;
  if (allocated >= at && at != HEAPTAP_NEVER && step != 0) {
    __u64 next = at + ((allocated - at) / step + 1) * step;
    if (__sync_val_compare_and_swap(&marks->interval_at, at, next) == at)
      send_event(HEAPTAP_EVENT_INTERVAL, tgid, process->identity.id, allocated);
  }
}

#endif /* HEAPTAP_FIGURES_BPF_H_ */
