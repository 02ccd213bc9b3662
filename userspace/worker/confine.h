// SPDX-License-Identifier: Apache-2.0
//
// Takes rights away from a worker process. Called once, at its start, before it has seen any job.
#ifndef HEAPTAP_USERSPACE_WORKER_CONFINE_H_
#define HEAPTAP_USERSPACE_WORKER_CONFINE_H_

namespace heaptap::worker {

// The bytes that a reader may allocate. Files that it maps do not count.
inline constexpr unsigned long kReaderMemory = 1UL << 30;

// Confines workers of both kinds: no signals but SIGKILL, no core file, no other descriptors than 0, 1 and 2, no new
// privileges; other processes of the same user cannot look into it. False: the kernel refused, so the process must end.
[[nodiscard]] bool ConfineWorker();

// Hands keep only the capabilities to open what belongs to other processes and to attach probes. Where attaching takes
// CAP_SYS_ADMIN (perf_event_paranoid 3 on kernels before 6.10), they keep that too. They can make the system calls that
// their jobs take; every other one fails with EPERM.
[[nodiscard]] bool ConfineHands();

// A reader has no capabilities, and an empty bounding set if it may empty that. The OOM killer takes it first. It can
// read, map and write its descriptors, receive others, read the attributes of paths (libc uses the same call for
// descriptors), allocate memory and end (seccomp(2)). Every other system call fails with EPERM, so it cannot open a
// path.
[[nodiscard]] bool ConfineReader();

// RunInBackground gives this process the lowest priority. RunAtOrdinaryPriority gives it a low priority if it has one
// above ordinary programs. Call them before ConfineReader, which forbids the system calls.
void RunInBackground();
void RunAtOrdinaryPriority();

// Bounds what a reader may allocate from now on, within kReaderMemory.
void LimitMemory(unsigned long bytes);

}  // namespace heaptap::worker

#endif  // HEAPTAP_USERSPACE_WORKER_CONFINE_H_
