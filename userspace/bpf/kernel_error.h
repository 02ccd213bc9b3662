// SPDX-License-Identifier: Apache-2.0
//
// What the kernel or libbpf refused, as one clear line with the remedy.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::bpf {

// Names of the capabilities that recording needs and that this process lacks, separated by ", "; empty if none.
std::string MissingCapabilities();

// The programs know processes by their PIDs in the first PID namespace; so must we. FailedPrecondition if we live in
// another one.
absl::Status CheckPidNamespace();

// An error of a system call or of libbpf. `error` is an errno value, its sign does not matter. EPERM and EACCES become
// PermissionDenied and name the missing capabilities, ESRCH NotFound, ENOMEM and E2BIG ResourceExhausted, others
// FailedPrecondition.
absl::Status KernelError(int error, absl::string_view what);

// Whether the kernel lets this process load programs that write into the memory of the process they run in: that needs
// CAP_SYS_ADMIN and a kernel that is not locked down.
bool MayWriteUserMemory();

// Makes libbpf keep its messages to itself, from now on.
void QuietLibbpf();
// The first line of the first warning since QuietLibbpf: the cause, which others follow from. "" if none.
std::string FirstLibbpfWarning();

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_
