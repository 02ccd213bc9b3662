// SPDX-License-Identifier: Apache-2.0
//
// Errors of the kernel and of libbpf, as one line with the remedy.
#ifndef HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_
#define HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace heaptap::bpf {

// Names of the capabilities that recording needs and this process lacks, separated by ", "; empty: none.
std::string MissingCapabilities();

// The programs know processes by their PIDs in the first PID namespace, so the collector must run there.
// FailedPrecondition: it does not, with both texts below.
absl::Status CheckPidNamespace();
inline constexpr absl::string_view kOtherPidNamespace =
    "heaptap runs in a separate PID namespace, where PIDs differ from the kernel's";
inline constexpr absl::string_view kLeavePidNamespace = "run it on the host, or in a container with --pid=host";

// An error of a system call or of libbpf. `error`: an errno value, of either sign. EPERM and EACCES become
// PermissionDenied and name the missing capabilities, ESRCH NotFound, ENOMEM and E2BIG ResourceExhausted, others
// FailedPrecondition.
absl::Status KernelError(int error, absl::string_view what);

// Whether this process may load programs that write into the memory of the process they run in. That needs
// CAP_SYS_ADMIN and a kernel that is not locked down.
bool MayWriteUserMemory();

// Stops libbpf from printing messages.
void QuietLibbpf();
// The first line of libbpf's first warning since QuietLibbpf, which names the cause of the others. "": none.
std::string FirstLibbpfWarning();

}  // namespace heaptap::bpf

#endif  // HEAPTAP_USERSPACE_BPF_KERNEL_ERROR_H_
