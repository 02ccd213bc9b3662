/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only in libheaptap.a: references that bring functions from libc.a into a static program. libc.cc refers to them too, but
 * weakly, which brings in nothing.
 */
        .section .data.rel.ro.heaptap, "aw", @progbits
        .p2align 3
        .irp    name, pthread_atfork, pthread_create, pthread_join, pthread_key_create, pthread_setspecific
        .quad   \name
        .endr

        .section .note.GNU-stack, "", @progbits
