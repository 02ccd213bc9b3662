// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/kernel_features.h"

#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/perf_mapping_events.h"
#include "userspace/doctor/feature_probes.h"
#include "userspace/process/handle.h"

namespace heaptap::daemon {
namespace {

struct FreeTypes {
  void operator()(btf* types) const { btf__free(types); }
};
using Types = std::unique_ptr<btf, FreeTypes>;

absl::Status TryTypes(const btf* types) {
  return types != nullptr ? absl::OkStatus() : absl::FailedPreconditionError("no /sys/kernel/btf/vmlinux");
}

// The kernel fields that the programs read on every kernel (bpf/kernel.h).
constexpr std::pair<const char*, const char*> kFields[] = {
    {"task_struct", "pid"},
    {"task_struct", "tgid"},
    {"task_struct", "mm"},
    {"task_struct", "signal"},
    {"task_struct", "exit_code"},
    {"signal_struct", "live"},
    {"signal_struct", "flags"},
    {"signal_struct", "oom_mm"},
    {"signal_struct", "group_exit_code"},
    {"mm_struct", "start_stack"},
    {"mm_struct", "exec_vm"},
    {"mm_struct", "context"},
    {"mm_context_t", "vdso"},
    {"vm_area_struct", "vm_mm"},
    {"vm_area_struct", "vm_start"},
    {"vm_area_struct", "vm_end"},
    {"vm_area_struct", "vm_pgoff"},
    {"vm_area_struct", "vm_flags"},
    {"vm_area_struct", "vm_file"},
    {"file", "f_inode"},
    {"inode", "i_ino"},
    {"inode", "i_generation"},
    {"inode", "i_sb"},
    {"super_block", "s_dev"},
};

absl::Status TryFields(const btf* types) {
  std::vector<std::string> missing;
  for (const auto& [structure, field] : kFields) {
    if (!bpf::HasField(types, structure, field)) missing.push_back(absl::StrCat(structure, ".", field));
  }
  if (missing.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("no ", absl::StrJoin(missing, ", ")));
}

absl::Status TryLockSequence(const btf* types) {
  return bpf::HasField(types, "mm_struct", "mm_lock_seq") ? absl::OkStatus()
                                                          : absl::FailedPreconditionError("this kernel has none");
}

template <bpf_func_id helper, bpf_prog_type type = BPF_PROG_TYPE_KPROBE>
absl::Status TryHelper(const btf*) {
  return bpf::TryHelper(type, helper);
}

template <bpf_map_type type>
absl::Status TryMap(const btf*) {
  return bpf::TryMap(type);
}

template <absl::Status (*attempt)()>
absl::Status Try(const btf*) {
  return attempt();
}

absl::Status TryMappingEvents(const btf*) { return bpf::PerfMappingEvents::Start().status(); }

base::FileDescriptor OwnPidFd() { return base::FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0))); }

absl::Status TryPidFd(const btf*) {
  return OwnPidFd().valid() ? absl::OkStatus() : bpf::KernelError(errno, "pidfd_open");
}

// Tries it with a child, which belongs to the same user.
absl::Status TryMemory(const btf*) {
  const pid_t child = fork();
  if (child < 0) return absl::UnavailableError(absl::StrCat("fork: ", strerror(errno)));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  absl::Status status = process::Handle::Open(child).status();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  // The message leaves out the PID of the child, which is gone.
  const absl::Status scope = process::CheckPtraceScope();
  return status.ok() || scope.ok() ? status : scope;
}

absl::Status TryPidFdGetFd(const btf*) {
  const base::FileDescriptor own = OwnPidFd();
  if (!own.valid()) return bpf::KernelError(errno, "pidfd_open");
  const base::FileDescriptor copy(static_cast<int>(syscall(SYS_pidfd_getfd, own.get(), own.get(), 0)));
  return copy.valid() ? absl::OkStatus() : bpf::KernelError(errno, "pidfd_getfd");
}

absl::Status TryOpenAt2(const btf*) {
  struct open_how how = {};
  how.flags = O_PATH | O_CLOEXEC;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const base::FileDescriptor root(static_cast<int>(syscall(SYS_openat2, AT_FDCWD, ".", &how, sizeof(how))));
  return root.valid() ? absl::OkStatus() : bpf::KernelError(errno, "openat2");
}

absl::Status TryCloseRange(const btf*) {
  // No descriptor has a number this large.
  return close_range(~0U - 1, ~0U, 0) == 0 ? absl::OkStatus() : bpf::KernelError(errno, "close_range");
}

absl::Status TrySeccomp(const btf*) {
  // A kernel with filters fails with EFAULT on the null filter.
  if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, nullptr, 0, 0) == 0 || errno == EFAULT) return absl::OkStatus();
  return bpf::KernelError(errno, "prctl(PR_SET_SECCOMP)");
}

constexpr char kNoWalks[] = "stacks cannot be walked";

constexpr KernelFeature kFeatures[] = {
    // The two features that other attempts need.
    {"bpf(2)", "3.18", KernelFeature::kRequired, "no eBPF program can be loaded", KernelFeature::kNothing,
     Try<bpf::TryProgram>},
    {"kernel types (BTF)", "5.4", KernelFeature::kRequired,
     "the programs cannot locate fields in this kernel's structures", KernelFeature::kNothing, TryTypes},

    {"fields of kernel structures", "4.9", KernelFeature::kRequired,
     "ends of processes, OOM kills and mappings are not seen", KernelFeature::kTypes, TryFields},
    {"mm_struct.mm_lock_seq", "6.4", KernelFeature::kOptional,
     "call paths through a library that replaces another one can be wrong for some milliseconds", KernelFeature::kTypes,
     TryLockSequence},

    {"uprobes with semaphores", "4.20", KernelFeature::kRequired, "allocations are not seen", KernelFeature::kPrograms,
     Try<bpf::TryUprobe>},
    {"links to perf events", "5.15", KernelFeature::kRequired, "probes cannot outlive the collector",
     KernelFeature::kPrograms, Try<bpf::TryPerfLink>},
    {"links to many uprobes", "6.6", KernelFeature::kOptional,
     "the end of a recording takes half a second, and slows down starting processes", KernelFeature::kPrograms,
     Try<bpf::TryUprobeMulti>},
    {"raw_tp sched_process_fork", "4.17", KernelFeature::kRequired, "children are not recorded",
     KernelFeature::kPrograms, [](const btf*) { return bpf::TryRawTracepoint("sched_process_fork"); }},
    {"raw_tp sched_process_exec", "4.17", KernelFeature::kRequired,
     "a program's figures are mixed with those from before its exec", KernelFeature::kPrograms,
     [](const btf*) { return bpf::TryRawTracepoint("sched_process_exec"); }},
    {"raw_tp sched_process_exit", "4.17", KernelFeature::kRequired, "no profiles of ended processes are written",
     KernelFeature::kPrograms, [](const btf*) { return bpf::TryRawTracepoint("sched_process_exit"); }},
    {"raw_tp vm_unmapped_area", "5.7", KernelFeature::kRequired,
     "call paths through libraries that are loaded later are wrong", KernelFeature::kPrograms,
     [](const btf*) { return bpf::TryRawTracepoint("vm_unmapped_area"); }},
    {"perf events of mappings", "4.1", KernelFeature::kRequired, "profiles of ended processes have no function names",
     KernelFeature::kNothing, TryMappingEvents},

    {"hash maps that grow", "6.1", KernelFeature::kRequired, "a probe inside the kernel's allocator could deadlock",
     KernelFeature::kPrograms, Try<bpf::TryGrowingMap>},
    {"LRU hash maps", "4.10", KernelFeature::kRequired, "thread names are not kept", KernelFeature::kPrograms,
     TryMap<BPF_MAP_TYPE_LRU_HASH>},
    {"per-CPU arrays", "4.6", KernelFeature::kRequired, kNoWalks, KernelFeature::kPrograms,
     TryMap<BPF_MAP_TYPE_PERCPU_ARRAY>},
    {"ring buffer", "5.8", KernelFeature::kRequired, "the collector receives no events", KernelFeature::kPrograms,
     TryMap<BPF_MAP_TYPE_RINGBUF>},
    {"batched reading of maps", "5.6", KernelFeature::kRequired, "profiles cannot be read", KernelFeature::kPrograms,
     Try<bpf::TryBatches>},

    {"atomics that return values", "5.12", KernelFeature::kRequired, "threads would overwrite each other's counts",
     KernelFeature::kPrograms, Try<bpf::TryAtomics>},
    {"bpf_probe_read_user", "5.5", KernelFeature::kRequired, kNoWalks, KernelFeature::kPrograms,
     TryHelper<BPF_FUNC_probe_read_user>},
    {"bpf_get_current_task_btf", "5.11", KernelFeature::kRequired, kNoWalks, KernelFeature::kPrograms,
     TryHelper<BPF_FUNC_get_current_task_btf>},
    {"bpf_find_vma", "5.17", KernelFeature::kRequired, "unwind tables cannot be found", KernelFeature::kPrograms,
     TryHelper<BPF_FUNC_find_vma>},
    {"bpf_loop", "5.17", KernelFeature::kRequired, "deep stacks cannot be walked", KernelFeature::kPrograms,
     TryHelper<BPF_FUNC_loop>},
    {"programs run by bpf(2)", "5.14", KernelFeature::kRequired, "the kernel maps cannot be cleaned up or configured",
     KernelFeature::kPrograms, Try<bpf::TryRunByCall>},
    {"bpf_for_each_map_elem", "5.13", KernelFeature::kRequired, "the map of live objects fills up with freed ones",
     KernelFeature::kPrograms, TryHelper<BPF_FUNC_for_each_map_elem, BPF_PROG_TYPE_SYSCALL>},
    {"bpf_probe_write_user", "4.8", KernelFeature::kOptional,
     "the daemon's sampling rate takes effect in a new process only after some milliseconds", KernelFeature::kPrograms,
     Try<bpf::TryWriteToProcess>},
    {"BPF file system", "4.4", KernelFeature::kOptional, "a recording ends when its daemon is killed",
     KernelFeature::kPrograms, Try<bpf::TryPins>},

    {"memory of other processes", "2.6", KernelFeature::kOptional,
     "heaptap attach, active, rate, an allocator's figures and dumps that a process asks for itself fail, and the "
     "last frees of a thread may count as live",
     KernelFeature::kNothing, TryMemory},
    {"pidfd_open", "5.3", KernelFeature::kRequired,
     "a process cannot be distinguished from a later one with the same PID", KernelFeature::kNothing, TryPidFd},
    {"pidfd_getfd", "5.6", KernelFeature::kOptional, "dumps that a process asks for itself fail",
     KernelFeature::kNothing, TryPidFdGetFd},
    {"openat2", "5.6", KernelFeature::kOptional, "separate debug files are not read", KernelFeature::kNothing,
     TryOpenAt2},
    {"close_range", "5.9", KernelFeature::kOptional, "heaptap cannot look up function names", KernelFeature::kNothing,
     TryCloseRange},
    {"seccomp filters", "3.5", KernelFeature::kOptional, "heaptap cannot look up function names",
     KernelFeature::kNothing, TrySeccomp},
};

}  // namespace

absl::Span<const KernelFeature> KernelFeatures() { return kFeatures; }

std::vector<FeatureFinding> CheckKernelFeatures(absl::Span<const KernelFeature> features) {
  bpf::QuietLibbpf();
  const Types types(btf__load_vmlinux_btf());
  const bool has_programs = bpf::TryProgram().ok();
  std::vector<FeatureFinding> findings;
  for (const KernelFeature& feature : features) {
    FeatureFinding finding = {.name = feature.name,
                              .since = feature.since,
                              .required = feature.need == KernelFeature::kRequired,
                              .lost = feature.lost,
                              .status = absl::OkStatus(),
                              .tried = true};
    if (feature.takes == KernelFeature::kPrograms && !has_programs) {
      finding.tried = false;
      finding.status = absl::UnavailableError("needs bpf(2), see above");
    } else if (feature.takes == KernelFeature::kTypes && types == nullptr) {
      finding.tried = false;
      finding.status = absl::UnavailableError("needs the kernel types, see above");
    } else {
      finding.status = feature.attempt(types.get());
    }
    findings.push_back(std::move(finding));
  }
  return findings;
}

}  // namespace heaptap::daemon
