/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the eBPF programs' headers need of the kernel, for a program of the host: the macros that declare maps, and the
 * helpers, which tests/unit/bpf_harness.cc simulates.
 */
#ifndef HEAPTAP_TESTS_UNIT_BPF_HOST_H_
#define HEAPTAP_TESTS_UNIT_BPF_HOST_H_

#include <stddef.h>

#include "bpf/books.h"
#include "bpf/commands.h"
#include "bpf/events.h"
#include "bpf/kernel.h"
#include "bpf/unwind.h"

#ifdef __cplusplus
extern "C" {
#endif

void* host_map_lookup_elem(const void* map, const void* key);
long host_map_update_elem(const void* map, const void* key, const void* value, __u64 flags);
long host_map_delete_elem(const void* map, const void* key);
void* host_ringbuf_reserve(const void* map, __u64 size, __u64 flags);
void host_ringbuf_submit(void* record, __u64 flags);
__u64 host_ringbuf_query(const void* map, __u64 what);
long host_probe_read_user(void* to, __u32 size, const void* from);
long host_probe_write_user(void* to, const void* from, __u32 size);
long host_probe_read_kernel(void* to, __u32 size, const void* from);
long host_get_current_comm(void* to, __u32 size);
__u64 host_get_current_pid_tgid(void);
__u64 host_ktime_get_ns(void);
struct task_struct* host_get_current_task_btf(void);

/* The mapping that holds an address, until the next call; 0, or a negative errno. */
long host_find_vma(__u64 address, struct vm_area_struct** mapping);

/* A map of the programs, as it is declared. */
struct host_map {
  const void* map;
  const char* name;
  __u32 type; /* enum bpf_map_type */
  __u32 key_bytes;
  __u32 value_bytes;
  __u32 max_entries;
};
extern const struct host_map host_maps[];
extern const __u32 host_map_count;

/* The programs' own functions, called on a thread with these registers. */
struct host_context {
  struct pt_regs registers;
  struct heaptap_process* process;
  __u32 tgid;
};
/* The walk alone. Returns the stack id; 0 if there was no scratch buffer. */
__u64 host_take_stack(struct host_context* context, struct heaptap_stack* stack);
struct heaptap_tally* host_find_tally(struct host_context* context, struct heaptap_tally_key* key, __u64 weight);
/* Whether a program may write into the control block that begins with this. */
int host_is_control_block(const struct heaptap_control* control);
enum heaptap_loss_reason host_insert_live(struct host_context* context, const struct heaptap_live_key* key,
                                          const struct heaptap_live* object);
/* 0, or 1 if there is no such object. */
int host_remove_live(struct host_context* context, const struct heaptap_live_key* key);
/* The rule at an address, beyond 32 bits if there is none. */
__u64 host_find_rule(struct host_context* context, __u64 pc);
/* The rule that a loaded table has for an offset of its file. */
__u64 host_find_in_table(const struct heaptap_file* file, __u64 offset);

#ifdef __cplusplus
}
#else

/* As libbpf declares maps: numbers are lengths of arrays. */
#define SEC(name)
/* The simulated kernel has all that is asked for. */
#define bpf_core_field_exists(field) 1
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value)* name

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

#define PT_REGS_IP(registers) ((registers)->ip)
#define PT_REGS_SP(registers) ((registers)->sp)
#define PT_REGS_FP(registers) ((registers)->bp)

/* Not by their own names, which libbpf has for system calls. */
#define bpf_map_lookup_elem host_map_lookup_elem
#define bpf_map_update_elem host_map_update_elem
#define bpf_map_delete_elem host_map_delete_elem
#define bpf_ringbuf_reserve host_ringbuf_reserve
#define bpf_ringbuf_submit host_ringbuf_submit
#define bpf_ringbuf_query host_ringbuf_query
#define bpf_probe_read_user host_probe_read_user
#define bpf_probe_write_user host_probe_write_user
#define bpf_probe_read_kernel host_probe_read_kernel
#define bpf_get_current_comm host_get_current_comm
#define bpf_get_current_pid_tgid host_get_current_pid_tgid
#define bpf_ktime_get_ns host_ktime_get_ns
#define bpf_jiffies64 host_ktime_get_ns
#define bpf_get_current_task_btf host_get_current_task_btf

/* The helpers that call back; macros, so that the callback is called as what it is. */
#define bpf_loop(count, callback, context, flags)       \
  ({                                                    \
    __u32 host_turn = 0;                                \
    while (host_turn < (count)) {                       \
      if (callback(host_turn++, (context)) != 0) break; \
    }                                                   \
    (long)host_turn;                                    \
  })
#define bpf_find_vma(task, address, callback, context, flags)       \
  ({                                                                \
    struct vm_area_struct* host_mapping;                            \
    long host_error = host_find_vma((address), &host_mapping);      \
    if (host_error == 0) callback((task), host_mapping, (context)); \
    host_error;                                                     \
  })

#endif

#endif /* HEAPTAP_TESTS_UNIT_BPF_HOST_H_ */
