/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dlopen and dlmopen (dlopen.cc). They jump to libc's functions, which read the return address.
 */

/* ENTRY name, register of the argument `mode` */
.macro ENTRY name:req, mode:req
        .text
        .globl  \name
        .type   \name, @function
        .p2align 4
\name:
        .cfi_startproc
        endbr64
        pushq   %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq    %rsp, %rbp
        .cfi_def_cfa_register %rbp
        pushq   %rdi
        pushq   %rsi
        call    heaptap_redirect_\name
        popq    %rsi
        popq    %rdi
        popq    %rbp
        .cfi_def_cfa %rsp, 8
        movl    %edx, \mode
        jmpq    *%rax
        .cfi_endproc
        .size   \name, . - \name
.endm

        ENTRY   dlopen, %esi
        ENTRY   dlmopen, %edx

        .section .note.GNU-stack, "", @progbits
