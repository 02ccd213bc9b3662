/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For programs that run with or without libheaptap-guest.so preloaded: switches sampling on without a collector, as one
 * does that attaches.
 */
#ifndef HEAPTAP_TESTS_GUEST_SAMPLING_H_
#define HEAPTAP_TESTS_GUEST_SAMPLING_H_

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

#include "heaptap/contract.h"

/* NULL: the guest is not loaded. */
static inline struct heaptap_control* Control(void) {
  return (struct heaptap_control*)dlsym(RTLD_DEFAULT, HEAPTAP_CONTROL_SYMBOL);
}

/* With $SAMPLE, the lg of the mean bytes between samples, and the guest loaded and in use. */
static inline void SwitchSamplingOn(void) {
  struct heaptap_control* control = Control();
  const char* lg = getenv("SAMPLE");
  if (control == NULL || control->alloc_semaphore == 0 || lg == NULL) return;
  control->collector_lg_sample = (uint32_t)atoi(lg);
  *(volatile uint16_t*)control->alloc_semaphore = 1;
}

static inline void SwitchSamplingOff(void) {
  struct heaptap_control* control = Control();
  if (control != NULL && control->alloc_semaphore != 0) *(volatile uint16_t*)control->alloc_semaphore = 0;
}

/* The number of samples that live. */
static inline uint64_t LiveSamples(void) {
  return __atomic_load_n(&Control()->statistics.sampled_objects, __ATOMIC_RELAXED);
}

#endif
