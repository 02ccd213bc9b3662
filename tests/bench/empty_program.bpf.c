/* SPDX-License-Identifier: (BSD-2-Clause OR GPL-2.0-only) */
/* A program that does nothing: what a sample costs at least (tests/bench/empty_program.cc). */
#include "bpf/kernel.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

SEC("uprobe")
int nothing(struct pt_regs* context) { return 0; }
