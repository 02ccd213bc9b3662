/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The note of a USDT probe, in the form of <sys/sdt.h>, for an assembler statement in which the probe is the
 * instruction at label 990: the addresses of the probe and of its semaphore (0: none), and the places of its arguments.
 */
#ifndef HEAPTAP_TESTS_TARGETS_PROBE_NOTE_H_
#define HEAPTAP_TESTS_TARGETS_PROBE_NOTE_H_

/* clang-format off */
#define PROBE_NOTE(provider, name, semaphore, arguments)                      \
  ".pushsection .note.stapsdt,\"\",\"note\"\n"                                \
  ".balign 4\n"                                                               \
  ".4byte 992f-991f, 994f-993f, 3\n"                                          \
  "991: .asciz \"stapsdt\"\n"                                                 \
  "992: .balign 4\n"                                                          \
  "993: .8byte 990b, _.stapsdt.base, " semaphore "\n"                         \
  ".asciz \"" provider "\"\n"                                                 \
  ".asciz \"" name "\"\n"                                                     \
  ".asciz \"" arguments "\"\n"                                                \
  "994: .balign 4\n"                                                          \
  ".popsection\n"                                                             \
  ".ifndef _.stapsdt.base\n"                                                  \
  ".pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n"     \
  ".weak _.stapsdt.base\n"                                                    \
  ".hidden _.stapsdt.base\n"                                                  \
  "_.stapsdt.base: .space 1\n"                                                \
  ".size _.stapsdt.base, 1\n"                                                 \
  ".popsection\n"                                                             \
  ".endif\n"
/* clang-format on */

#endif /* HEAPTAP_TESTS_TARGETS_PROBE_NOTE_H_ */
