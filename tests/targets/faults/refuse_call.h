/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a program under refuse_call talks to it: by options of prctl that the kernel does not have.
 */
#ifndef HEAPTAP_TESTS_TARGETS_FAULTS_REFUSE_CALL_H_
#define HEAPTAP_TESTS_TARGETS_FAULTS_REFUSE_CALL_H_

/* From now on calls of any code count, if they are to count at all. */
#define REFUSE_FROM_NOW 0x68656170
/* From now on every call is made and none is counted. */
#define REFUSE_NO_MORE 0x68656171

#endif
