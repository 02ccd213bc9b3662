// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_error.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "userspace/base/file_descriptor.h"

namespace heaptap::bpf {
namespace {

struct Capability {
  int number;
  const char* name;
};

// CAP_SYS_ADMIN: perf_event_open of a uprobe, since the fix of CVE-2025-38466 (6.1.146, 6.12.39, ...).
// CAP_SYS_PTRACE: reading another process's memory, descriptors and mappings.
constexpr Capability kNeeded[] = {
    {CAP_BPF, "CAP_BPF"},
    {CAP_PERFMON, "CAP_PERFMON"},
    {CAP_SYS_ADMIN, "CAP_SYS_ADMIN"},
    {CAP_SYS_PTRACE, "CAP_SYS_PTRACE"},
};

// PROC_PID_INIT_INO of the kernel (include/linux/proc_ns.h): fixed for the first namespace.
constexpr ino_t kFirstPidNamespace = 0xeffffffc;

std::string& FirstWarning() {
  static std::string warning;
  return warning;
}

int KeepWarning(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || !FirstWarning().empty()) return 0;
  char text[512];
  vsnprintf(text, sizeof(text), format, arguments);
  const absl::string_view line(text, strcspn(text, "\n"));
  FirstWarning() = std::string(absl::StripPrefix(line, "libbpf: "));
  return 0;
}

}  // namespace

std::string MissingCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {};
  if (syscall(SYS_capget, &header, data) != 0) return "";
  std::vector<absl::string_view> missing;
  for (const Capability& capability : kNeeded) {
    if (!(data[CAP_TO_INDEX(capability.number)].effective & CAP_TO_MASK(capability.number))) {
      missing.push_back(capability.name);
    }
  }
  return absl::StrJoin(missing, ", ");
}

absl::Status CheckPidNamespace() {
  struct stat status;
  if (stat("/proc/self/ns/pid", &status) == 0 && status.st_ino == kFirstPidNamespace) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(kOtherPidNamespace, "; ", kLeavePidNamespace));
}

absl::Status KernelError(int error, absl::string_view what) {
  const int number = error < 0 ? -error : error;
  const std::string message = absl::StrCat(what, ": ", strerror(number));
  switch (number) {
    case EPERM:
    case EACCES: {
      const std::string missing = MissingCapabilities();
      if (missing.empty()) {
        return absl::PermissionDeniedError(
            absl::StrCat(message,
                         "; all capabilities are there, so a container's seccomp filter, lockdown or a "
                         "security module refuses it: see `heaptap doctor`"));
      }
      return absl::PermissionDeniedError(absl::StrCat(message, "; missing ", missing, ": run heaptap as root"));
    }
    case ESRCH:
      return absl::NotFoundError(message);
    case ENOMEM:
    case E2BIG:
      return absl::ResourceExhaustedError(message);
    default:
      return absl::FailedPreconditionError(message);
  }
}

// Loads a program to find out: libbpf_probe_bpf_helper of libbpf 1.1 does not know the refusal of newer kernels,
// "program of this type cannot use helper", and takes it for a yes.
bool MayWriteUserMemory() {
  constexpr bpf_insn kProgram[] = {
      {.code = BPF_ST | BPF_MEM | BPF_DW, .dst_reg = BPF_REG_10, .src_reg = 0, .off = -8, .imm = 0},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .src_reg = 0, .off = 0, .imm = 0},
      {.code = BPF_ALU64 | BPF_MOV | BPF_X, .dst_reg = BPF_REG_2, .src_reg = BPF_REG_10, .off = 0, .imm = 0},
      {.code = BPF_ALU64 | BPF_ADD | BPF_K, .dst_reg = BPF_REG_2, .src_reg = 0, .off = 0, .imm = -8},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .src_reg = 0, .off = 0, .imm = 8},
      {.code = BPF_JMP | BPF_CALL, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = BPF_FUNC_probe_write_user},
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = 0},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
  };
  return base::FileDescriptor(
             bpf_prog_load(BPF_PROG_TYPE_KPROBE, "may_write", "GPL", kProgram, std::size(kProgram), nullptr))
      .valid();
}

void QuietLibbpf() {
  FirstWarning().clear();
  libbpf_set_print(KeepWarning);
}

std::string FirstLibbpfWarning() { return FirstWarning(); }

}  // namespace heaptap::bpf
