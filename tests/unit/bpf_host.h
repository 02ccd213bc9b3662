/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the eBPF programs need of the kernel, for a program of the host: the macros of libbpf, and the helpers, which
 * tests/unit/bpf_helpers.cc simulates. Also the programs themselves, to be called from C++.
 */
#ifndef HEAPTAP_TESTS_UNIT_BPF_HOST_H_
#define HEAPTAP_TESTS_UNIT_BPF_HOST_H_

#include <stddef.h>

#include "allocator/include/heaptap/contract.h"
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
long host_probe_read_user_str(void* to, __u32 size, const void* from);
long host_probe_write_user(void* to, const void* from, __u32 size);
long host_probe_read_kernel(void* to, __u32 size, const void* from);
long host_get_current_comm(void* to, __u32 size);
__u64 host_get_current_pid_tgid(void);
__u64 host_get_current_uid_gid(void);
__u64 host_ktime_get_ns(void);
__u64 host_jiffies64(void);
__u64 host_get_attach_cookie(void* context);
long host_current_task_under_cgroup(const void* map, __u32 index);
struct task_struct* host_get_current_task_btf(void);

/* The mapping that holds an address, until the next call; 0, or a negative errno. */
long host_find_vma(__u64 address, struct vm_area_struct** mapping);

/* Calls the program at an index of the map of programs, and keeps its result. 0, or a negative errno if there is none.
 */
long host_tail_call(void* context, __u32 index, int* result);

/* Notes the entries that a map has. Returns their number. */
__u32 host_begin_for_each(const void* map);
/* A noted entry; 0, or a negative errno if it was deleted meanwhile. */
long host_entry_at(__u32 index, void** key, void** value);

/* Whether the simulated kernel has a field, which is named as the programs name it. */
int host_field_exists(const char* field);

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
/* The map of areas. */
extern const void* const host_areas;

/* The programs (bpf/README.md). */
int probe_sample(struct pt_regs* context);
int probe_free(struct pt_regs* context);
int probe_any(struct pt_regs* context);
int probe_start(struct pt_regs* context);
int take_control(struct pt_regs* context);
int probe_dump(struct pt_regs* context);
int probe_thread_name(struct pt_regs* context);
int process_fork(struct bpf_raw_tracepoint_args* context);
int process_before_exec(void* context);
int process_exec(struct bpf_raw_tracepoint_args* context);
int process_exit(struct bpf_raw_tracepoint_args* context);
int process_map(void* context);
int invalidate_rules(struct heaptap_invalidate_rules* argument);
int identify(struct heaptap_identify* argument);
int configure(struct heaptap_configure* argument);
int fold(struct heaptap_fold* argument);
int tallies_deleted(struct heaptap_tallies_deleted* argument);
int take_frees(struct heaptap_take_frees* argument);
int untrack(struct heaptap_untrack* argument);
int sweep(void* context);

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
/* Makes an entry of `scratch` forget the mappings that its walks have passed. */
void host_forget_mappings(void* scratch);
/* How many frames the walk in an entry of `scratch` has found so far. */
__u32 host_frames_found(const void* scratch);
/* The rule that a loaded table has for an offset of its file. */
__u64 host_find_in_table(const struct heaptap_file* file, __u64 offset);

#ifdef __cplusplus
}
#else

/* As libbpf declares maps: numbers are lengths of arrays. */
#define SEC(name)
#define __uint(name, value) int(*name)[value]
#define __type(name, value) __typeof__(value)* name
#define __array(name, value) value*(*name)

#undef __always_inline
#define __always_inline inline __attribute__((always_inline))
#define __noinline __attribute__((noinline))

#define PT_REGS_PARM1(registers) ((registers)->di)
#define PT_REGS_PARM2(registers) ((registers)->si)
#define PT_REGS_PARM3(registers) ((registers)->dx)
#define PT_REGS_PARM4(registers) ((registers)->cx)
#define PT_REGS_PARM5(registers) ((registers)->r8)
#define PT_REGS_IP(registers) ((registers)->ip)
#define PT_REGS_SP(registers) ((registers)->sp)
#define PT_REGS_FP(registers) ((registers)->bp)

static __always_inline __u64 first_argument(struct pt_regs* context) { return PT_REGS_PARM1(context); }

#define bpf_core_field_exists(field) host_field_exists(#field)
#define bpf_core_field_offset(type, field) __builtin_offsetof(type, field)
/* From a pointer, one field or the field of a field. */
#define BPF_CORE_READ(...) HOST_READ_OF(__VA_ARGS__, HOST_READ_FAR, HOST_READ_NEAR, )(__VA_ARGS__)
#define HOST_READ_OF(from, field, last, read, ...) read
#define HOST_READ_NEAR(from, field) ((from)->field)
#define HOST_READ_FAR(from, field, last) ((from)->field->last)

/* Not by their own names, which libbpf has for system calls. */
#define bpf_map_lookup_elem host_map_lookup_elem
#define bpf_map_update_elem host_map_update_elem
#define bpf_map_delete_elem host_map_delete_elem
#define bpf_ringbuf_reserve host_ringbuf_reserve
#define bpf_ringbuf_submit host_ringbuf_submit
#define bpf_ringbuf_query host_ringbuf_query
#define bpf_probe_read_user host_probe_read_user
#define bpf_probe_read_user_str host_probe_read_user_str
#define bpf_probe_write_user host_probe_write_user
#define bpf_probe_read_kernel host_probe_read_kernel
#define bpf_get_current_comm host_get_current_comm
#define bpf_get_current_pid_tgid host_get_current_pid_tgid
#define bpf_get_current_uid_gid host_get_current_uid_gid
#define bpf_ktime_get_ns host_ktime_get_ns
#define bpf_jiffies64 host_jiffies64
#define bpf_get_attach_cookie host_get_attach_cookie
#define bpf_current_task_under_cgroup host_current_task_under_cgroup
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

#define bpf_for_each_map_elem(map, callback, context, flags)                   \
  ({                                                                           \
    const __u32 host_entries = host_begin_for_each(map);                       \
    __u32 host_index = 0;                                                      \
    for (; host_index < host_entries; host_index++) {                          \
      void* host_key;                                                          \
      void* host_value;                                                        \
      if (host_entry_at(host_index, &host_key, &host_value)) continue;         \
      if (callback((void*)(map), host_key, host_value, (context)) != 0) break; \
    }                                                                          \
    (long)host_index;                                                          \
  })

/* A program that is called does not return to its caller. */
#define bpf_tail_call(context, map, index)                                         \
  do {                                                                             \
    int host_result;                                                               \
    if (host_tail_call((context), (index), &host_result) == 0) return host_result; \
  } while (0)
#define bpf_tail_call_static bpf_tail_call

#endif

#endif /* HEAPTAP_TESTS_UNIT_BPF_HOST_H_ */
