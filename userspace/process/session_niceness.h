// SPDX-License-Identifier: Apache-2.0
//
// The niceness of this process relative to other sessions. The scheduler divides processor time among sessions first
// (sched(7), "The autogroup feature"), and a niceness counts only within a session.
#ifndef HEAPTAP_USERSPACE_PROCESS_SESSION_NICENESS_H_
#define HEAPTAP_USERSPACE_PROCESS_SESSION_NICENESS_H_

namespace heaptap::process {

// Gives this process's session the niceness of this process, if the process leads the session, as a service does. The
// session stays as it is if the kernel has no autogroups, or if the process may not set that niceness (CAP_SYS_NICE,
// RLIMIT_NICE).
void UseNicenessForSession();

}  // namespace heaptap::process

#endif  // HEAPTAP_USERSPACE_PROCESS_SESSION_NICENESS_H_
