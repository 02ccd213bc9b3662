/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * Records of the latest samples of processes that asked for them (HEAPTAP_ASK_RECORD in the allocator's contract).
 *
 * An object of `live` has the low bits of the number of its record. A record that has been overwritten meanwhile, or
 * belongs to another object, stays as it is.
 */
#ifndef HEAPTAP_RECORDS_BPF_H_
#define HEAPTAP_RECORDS_BPF_H_

#include "bpf/kernel.h"
#include "bpf/maps.bpf.h"

/* Entries of `records`. Set by the collector before load. */
const volatile __u32 records_capacity = HEAPTAP_DEFAULT_RECORDS;

static __always_inline struct heaptap_record* find_record(__u32 number) {
  __u32 index = number % records_capacity;
  return bpf_map_lookup_elem(&records, &index);
}

/* Enters a sample. Returns the low bits of its number. */
__noinline __u32 add_record(const struct heaptap_live_key* key, const struct heaptap_live* object) {
  if (!key || !object) return 0; /* never */
  __u64* last = counter(HEAPTAP_COUNTER_RECORDS);
  if (!last) return 0;
  __u64 number = __sync_fetch_and_add(last, 1) + 1;
  /* No object has the number 0. */
  if ((__u32)number == 0) number = __sync_fetch_and_add(last, 1) + 1;
  struct heaptap_record* record = find_record(number);
  if (!record) return 0;
  __sync_lock_test_and_set(&record->number, 0);
  record->process_id = key->process_id;
  record->address = key->address;
  record->size = object->size;
  record->stack_id = object->stack_id;
  record->time = object->time;
  record->tid = object->tid;
  record->free_stack_id = HEAPTAP_NO_STACK;
  record->free_time = 0;
  record->free_tid = 0;
  __sync_lock_test_and_set(&record->number, number);
  return number;
}

/* Removes the record of a sample that is not in the books: no free would end it. */
static __always_inline void drop_record(__u32 number, const struct heaptap_live_key* key) {
  struct heaptap_record* record = find_record(number);
  if (!record || (__u32)record->number != number) return;
  if (record->process_id == key->process_id && record->address == key->address)
    __sync_lock_test_and_set(&record->number, 0);
}

/* Adds the free to the record of a sample. */
static __always_inline void end_record(__u32 number, const struct heaptap_live_key* key, __u64 stack_id, __u32 tid) {
  struct heaptap_record* record = find_record(number);
  if (!record || (__u32)record->number != number) return;
  if (record->process_id != key->process_id || record->address != key->address) return;
  record->free_stack_id = stack_id;
  record->free_tid = tid;
  record->free_time = bpf_ktime_get_ns();
}

#endif /* HEAPTAP_RECORDS_BPF_H_ */
