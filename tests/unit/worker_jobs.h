// SPDX-License-Identifier: Apache-2.0
//
// Jobs of readers that misbehave, for tests. The program of tests is its own worker.
#ifndef HEAPTAP_TESTS_UNIT_WORKER_JOBS_H_
#define HEAPTAP_TESTS_UNIT_WORKER_JOBS_H_

#include "userspace/worker/request.h"

namespace heaptap::worker {

constexpr Job TestJob(uint8_t number) { return static_cast<Job>(static_cast<uint8_t>(Job::kForTests) + number); }

inline constexpr Job kEcho = TestJob(0);         // answers with the question, then the beginning of the file
inline constexpr Job kDie = TestJob(1);          // writes a part and dies of a signal
inline constexpr Job kStall = TestJob(2);        // writes a part and never ends
inline constexpr Job kBloat = TestJob(3);        // allocates without end
inline constexpr Job kChatter = TestJob(4);      // writes without end
inline constexpr Job kBreakOut = TestJob(5);     // tries what a reader must not; answers with what succeeded
inline constexpr Job kDescriptors = TestJob(6);  // answers with the numbers of its descriptors
inline constexpr Job kForge = TestJob(7);        // sends packets that are no answer, and descriptors

}  // namespace heaptap::worker

#endif  // HEAPTAP_TESTS_UNIT_WORKER_JOBS_H_
