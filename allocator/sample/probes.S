/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probes of libheaptap-sample.a (contract.h; sampling/probes.S says why they look like this). Each site of a sample
 * has two notes, otel_memory's and heaptap's own. The callers jump here, so the caller of a probe is the allocator.
 * The functions return their first argument.
 */

/* NOTE provider, name, arguments, function: no arguments are an empty text */
.macro NOTE provider:req, name:req, arguments, function:req
        .section .note.stapsdt, "", @note
        .p2align 2
        .long   .Lname_end_\@ - .Lname_\@
        .long   .Ldescription_end_\@ - .Ldescription_\@
        .long   3
.Lname_\@:
        .asciz  "stapsdt"
.Lname_end_\@:
        .p2align 2
.Ldescription_\@:
        .quad   .Lsite_\function
        .quad   _.stapsdt.base
        .quad   heaptap_sample_semaphore_\function
        .asciz  "\provider"
        .asciz  "\name"
        .asciz  "\arguments"
.Ldescription_end_\@:
        .p2align 2
.endm

/* FUNCTION name, and its semaphore */
.macro FUNCTION name:req
        .section .probes, "aw", @progbits
        .globl  heaptap_sample_semaphore_\name
        .hidden heaptap_sample_semaphore_\name
        .type   heaptap_sample_semaphore_\name, @object
        .size   heaptap_sample_semaphore_\name, 2
        .p2align 1
heaptap_sample_semaphore_\name:
        .zero   2

        .section heaptap_text, "ax", @progbits
        .globl  heaptap_sample_probe_\name
        .hidden heaptap_sample_probe_\name
        .type   heaptap_sample_probe_\name, @function
        .p2align 4
heaptap_sample_probe_\name:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
.Lsite_\name:
        nop
        movq    %rdi, %rax
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   heaptap_sample_probe_\name, . - heaptap_sample_probe_\name
.endm

        .section .stapsdt.base, "aG", @progbits, .stapsdt.base, comdat
        .weak   _.stapsdt.base
        .hidden _.stapsdt.base
_.stapsdt.base:
        .space  1
        .size   _.stapsdt.base, 1

        FUNCTION alloc
        NOTE    otel_memory, alloc, "8@%rdi 8@%rsi 8@%rdx", alloc
        NOTE    heaptap, heap_alloc, "8@%rdi 8@%rsi 8@%rdx 8@%rcx 8@%r8", alloc
        FUNCTION free
        NOTE    otel_memory, free, "8@%rdi", free
        NOTE    heaptap, heap_free, "8@%rdi 8@%rsi", free
        FUNCTION start
        NOTE    heaptap, start, "8@%rdi", start

/* heaptap:rate: a row of sites that no code runs, and a row of semaphores. control.cc checks the number. */
        .set    RATE_SITES, 48
        .section heaptap_text, "ax", @progbits
.Lsite_rate:
        .fill   RATE_SITES, 1, 0x90
        ret

        .section .probes, "aw", @progbits
        .globl  heaptap_sample_semaphore_rate
        .hidden heaptap_sample_semaphore_rate
        .type   heaptap_sample_semaphore_rate, @object
        .size   heaptap_sample_semaphore_rate, 2 * RATE_SITES
        .p2align 1
heaptap_sample_semaphore_rate:
        .zero   2 * RATE_SITES

        NOTE    heaptap, rate, , rate

        .section .note.GNU-stack, "", @progbits
