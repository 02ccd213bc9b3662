/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/*
 * The kernel's structures, as far as the eBPF programs read them, and libbpf's helpers.
 *
 * Only the names and kinds of fields matter here, not their offsets: libbpf finds each field in the types of the kernel
 * that loads the object (CO-RE). So one object serves every supported kernel, and a build does not depend on the kernel
 * it runs on. A field whose type differs between kernels has an additional structure for each type, named
 * NAME___FLAVOUR; libbpf ignores the flavour when it looks for the structure, and bpf_core_field_exists() tells which
 * type applies.
 *
 * Constants and the types of eBPF itself come from the kernel's user-space interface (<linux/bpf.h>), which stays
 * compatible.
 */
#ifndef HEAPTAP_KERNEL_H_
#define HEAPTAP_KERNEL_H_

#include <linux/bpf.h>
#include <linux/types.h>

/* The kernel's own layout of saved registers, which a probe's context has. It is part of the interface to tracing
 * programs and the same in all kernels, so its fields are read without relocation. */
struct pt_regs {
  unsigned long r15, r14, r13, r12, bp, bx;
  unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
  unsigned long orig_ax, ip, cs, flags, sp, ss;
};
/* Tells <bpf/bpf_tracing.h> that the registers have the kernel's names. */
#define __VMLINUX_H__

#ifdef __bpf__
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
#endif

struct super_block {
  __u32 s_dev;
};

struct inode {
  unsigned long i_ino;
  __u32 i_generation;
  struct super_block* i_sb;
};

struct file {
  struct inode* f_inode;
};

typedef struct {
  void* vdso;
} mm_context_t;

struct mm_struct {
  unsigned long exec_vm;     /* pages of code */
  unsigned long start_stack; /* where the program found its arguments */
  mm_context_t context;
};

typedef struct seqcount {
  unsigned sequence;
} seqcount_t;

/* mm_lock_seq counts write locks of the list of mappings, and so every change of the list. Kernels before 6.4 do not
 * have it. */
struct mm_struct___int { /* 6.4 to 6.13 */
  int mm_lock_seq;
};

struct mm_struct___seqcount { /* 6.14 and later */
  seqcount_t mm_lock_seq;
};

struct vm_area_struct {
  unsigned long vm_start;
  unsigned long vm_end;
  unsigned long vm_flags;
  unsigned long vm_pgoff;
  struct mm_struct* vm_mm;
  struct file* vm_file;
};

typedef struct {
  int counter;
} atomic_t;

struct signal_struct {
  atomic_t live; /* threads */
  unsigned flags;
  int group_exit_code;
  struct mm_struct* oom_mm; /* not null once the OOM killer has chosen the process */
};

/* A set of capabilities. */
typedef struct {
  __u64 val; /* since Linux 6.3 */
} kernel_cap_t;

struct cred {
  kernel_cap_t cap_effective;
};

struct list_head {
  struct list_head* next;
};

struct arch_uprobe {
  char unused; /* of it only the place in struct uprobe is of interest */
};

struct uprobe {
  struct arch_uprobe arch;
};

struct uprobe___list { /* 6.12 and later */
  struct list_head consumers;
};

struct uprobe_consumer {
  struct uprobe_consumer* next; /* before 6.12 */
};

struct uprobe___pointer { /* before 6.12 */
  struct uprobe_consumer* consumers;
};

struct uprobe_task {
  struct arch_uprobe* auprobe; /* of the probe whose programs run */
};

struct task_struct {
  struct uprobe_task* utask;
  struct mm_struct* mm;
  int pid;
  int tgid;
  int exit_code;
  struct signal_struct* signal;
  const struct cred* cred;
};

#ifdef __bpf__
#pragma clang attribute pop
#endif

/* Numbers of the kernel that its user-space interface does not have. */

/* A bit of vm_area_struct.vm_flags (include/linux/mm.h). */
#define VM_EXEC 4
/* A bit of signal_struct.flags: the process ends with group_exit_code (include/linux/sched/signal.h). */
#define SIGNAL_GROUP_EXIT 0x00000004U
#define PAGE_SHIFT 12
/* include/uapi/asm-generic/errno-base.h; <errno.h> is not for eBPF programs. */
#define EBUSY 16
#define ENOMEM 12
#define EEXIST 17

/* libbpf's headers need the types above. */
#ifdef __bpf__
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/* The first argument of a probe, loaded at once: the verifier refuses a load that the compiler has moved into a branch
 * ("modified ctx ptr"). */
static __always_inline __u64 first_argument(struct pt_regs* context) {
  __u64 argument = PT_REGS_PARM1(context);
  asm volatile("" : "+r"(argument));
  return argument;
}
#endif

#endif /* HEAPTAP_KERNEL_H_ */
