/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The USDT probes. Each consists of a function with a frame and a nop, an ELF note that gives the address of the nop and
 * says that the arguments are in the argument registers, and a semaphore. otel_memory:alloc has two functions, so that
 * the thread can choose how it traps (probe_sites.h).
 *
 * A nop has one byte on purpose, except in heaptap_probe_alloc_by_call. Linux 6.18 turns a probe on a five-byte nop into
 * a call. The call overwrites the word below the stack pointer, which is free here, and the child of a fork does not
 * have the page that it leads to.
 */

/* FUNCTION name, nop, first: the instruction of the site, and what comes before it */
.macro FUNCTION name:req, nop:req, first
        .section heaptap_text, "ax", @progbits
        .globl  heaptap_probe_\name
        .hidden heaptap_probe_\name
        .type   heaptap_probe_\name, @function
        .p2align 4
heaptap_probe_\name:
        .cfi_startproc
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
.ifnb \first
        \first
.endif
.Lsite_\name:
        \nop
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   heaptap_probe_\name, . - heaptap_probe_\name
.endm

/* NOTE provider, name, arguments, function: an empty text means no arguments */
.macro NOTE provider:req, name:req, arguments, function:req
        .section .note.stapsdt, "", @note
        .p2align 2
        .long   .Lname_end_\function - .Lname_\function
        .long   .Ldescription_end_\function - .Ldescription_\function
        .long   3
.Lname_\function:
        .asciz  "stapsdt"
.Lname_end_\function:
        .p2align 2
.Ldescription_\function:
        .quad   .Lsite_\function
        .quad   _.stapsdt.base
        .quad   heaptap_semaphore_\name
        .asciz  "\provider"
        .asciz  "\name"
        .asciz  "\arguments"
.Ldescription_end_\function:
        .p2align 2
.endm

/* PROBE provider, name, arguments, first */
.macro PROBE provider:req, name:req, arguments:req, first
        FUNCTION \name, nop, \first

        .section .probes, "aw", @progbits
        .globl  heaptap_semaphore_\name
        .hidden heaptap_semaphore_\name
        .type   heaptap_semaphore_\name, @object
        .size   heaptap_semaphore_\name, 2
        .p2align 1
heaptap_semaphore_\name:
        .zero   2

        NOTE    \provider, \name, "\arguments", \name
.endm

/* The five-byte nop that the kernel replaces by a call. */
.macro LONG_NOP
        .byte   0x0f, 0x1f, 0x44, 0x00, 0x00
.endm

        .section .stapsdt.base, "aG", @progbits, .stapsdt.base, comdat
        .weak   _.stapsdt.base
        .hidden _.stapsdt.base
_.stapsdt.base:
        .space  1
        .size   _.stapsdt.base, 1

/* The kernel has these registers at hand; reading memory would cost a tenth of the probe. */
.macro LOAD_FIRST_FREE
        movq    (%r8), %r10
        movq    8(%r8), %r11
.endm

        PROBE   otel_memory, alloc, "8@%rdi 8@%rsi 8@%rdx", LOAD_FIRST_FREE
        FUNCTION alloc_by_call, LONG_NOP, LOAD_FIRST_FREE
        NOTE    otel_memory, alloc, "8@%rdi 8@%rsi 8@%rdx", alloc_by_call
        PROBE   otel_memory, free, "8@%rdi"
        PROBE   heaptap, frees, "8@%rdi 8@%rsi"
        PROBE   heaptap, start, "8@%rdi"
        PROBE   heaptap, dump, "8@%rdi"
        PROBE   heaptap, thread_name, "8@%rdi"

/* heaptap:rate: a row of sites that no code runs, and a row of semaphores. told_rate.cc checks the number. */
        .set    RATE_SITES, 48
        .section heaptap_text, "ax", @progbits
        .type   heaptap_probe_rate, @function
heaptap_probe_rate:
.Lsite_rate:
        .fill   RATE_SITES, 1, 0x90
        ret
        .size   heaptap_probe_rate, . - heaptap_probe_rate

        .section .probes, "aw", @progbits
        .globl  heaptap_semaphore_rate
        .hidden heaptap_semaphore_rate
        .type   heaptap_semaphore_rate, @object
        .p2align 1
heaptap_semaphore_rate:
        .zero   2 * RATE_SITES
        .size   heaptap_semaphore_rate, . - heaptap_semaphore_rate

        NOTE    heaptap, rate, , rate

        .section .note.GNU-stack, "", @progbits
