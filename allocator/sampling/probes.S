/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The USDT probes. Each consists of a function with a frame and a one-byte nop, an ELF note that gives the address of
 * the nop and says that the arguments are in the argument registers, and a semaphore.
 *
 * The nop has one byte on purpose. Linux 6.18 turns a probe on a five-byte nop into a call, which overwrites the word
 * below the stack pointer and leaves forked children with a jump into a page that they do not have.
 */

/* PROBE provider, name, arguments */
.macro PROBE provider:req, name:req, arguments:req
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
.Lsite_\name:
        nop
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size   heaptap_probe_\name, . - heaptap_probe_\name

        .section .probes, "aw", @progbits
        .globl  heaptap_semaphore_\name
        .hidden heaptap_semaphore_\name
        .type   heaptap_semaphore_\name, @object
        .size   heaptap_semaphore_\name, 2
        .p2align 1
heaptap_semaphore_\name:
        .zero   2

        .section .note.stapsdt, "", @note
        .p2align 2
        .long   .Lname_end_\name - .Lname_\name
        .long   .Ldescription_end_\name - .Ldescription_\name
        .long   3
.Lname_\name:
        .asciz  "stapsdt"
.Lname_end_\name:
        .p2align 2
.Ldescription_\name:
        .quad   .Lsite_\name
        .quad   _.stapsdt.base
        .quad   heaptap_semaphore_\name
        .asciz  "\provider"
        .asciz  "\name"
        .asciz  "\arguments"
.Ldescription_end_\name:
        .p2align 2
.endm

        .section .stapsdt.base, "aG", @progbits, .stapsdt.base, comdat
        .weak   _.stapsdt.base
        .hidden _.stapsdt.base
_.stapsdt.base:
        .space  1
        .size   _.stapsdt.base, 1

        PROBE   otel_memory, alloc, "8@%rdi 8@%rsi 8@%rdx"
        PROBE   otel_memory, free, "8@%rdi"
        PROBE   heaptap, start, "8@%rdi"
        PROBE   heaptap, dump, "8@%rdi"
        PROBE   heaptap, thread_name, "8@%rdi"

        .section .note.GNU-stack, "", @progbits
