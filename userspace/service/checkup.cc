// SPDX-License-Identifier: Apache-2.0
#include "userspace/service/checkup.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <set>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"
#include "userspace/bpf/books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/elf/file.h"
#include "userspace/elf/file_descriptor.h"
#include "userspace/elf/mappings.h"
#include "userspace/service/control_block.h"
#include "userspace/service/messages.h"
#include "userspace/service/preload.h"
#include "userspace/service/probe_files.h"
#include "userspace/service/process_handle.h"
#include "userspace/service/unwind_tables.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::service {
namespace {

constexpr absl::string_view kLockdown = "/sys/kernel/security/lockdown";

std::string FirstLine(absl::string_view path) {
  std::ifstream file{std::string(path)};
  std::string line;
  std::getline(file, line);
  return line;
}

// The version is only information: kernel_features.h checks what the kernel can do.
Finding CheckKernel() {
  utsname name;
  uname(&name);
  Finding finding = {"kernel", absl::OkStatus(), absl::StrCat(name.release, " ", name.machine), ""};
  if (absl::string_view(name.machine) != "x86_64") {
    finding.status = absl::FailedPreconditionError("not supported");
    finding.remedy = "use an x86_64 machine";
  }
  return finding;
}

Finding CheckCapabilities() {
  const std::string missing = bpf::MissingCapabilities();
  if (missing.empty())
    return {"capabilities", absl::OkStatus(), "CAP_BPF, CAP_PERFMON, CAP_SYS_ADMIN, CAP_SYS_PTRACE", ""};
  return {"capabilities", absl::PermissionDeniedError(absl::StrCat("missing ", missing)), "",
          absl::StrCat("run heaptap as root, or give it ", missing)};
}

Finding CheckLockdown() {
  const std::string modes = FirstLine(kLockdown);
  if (modes.find("[confidentiality]") == std::string::npos) {
    return {"kernel lockdown", absl::OkStatus(), modes.empty() ? "unknown: securityfs is not mounted" : modes, ""};
  }
  return {"kernel lockdown", absl::PermissionDeniedError("eBPF programs may not read memory"), modes,
          "boot without lockdown=confidentiality"};
}

Finding FromStatus(absl::string_view subject, const absl::Status& status, absl::string_view detail,
                   absl::string_view remedy) {
  return {std::string(subject), status, status.ok() ? std::string(detail) : "", status.ok() ? "" : std::string(remedy)};
}

}  // namespace

std::vector<Finding> CheckMachine() {
  std::vector<Finding> findings = {
      CheckKernel(),
      CheckCapabilities(),
      CheckLockdown(),
      FromStatus("PID namespace", bpf::CheckPidNamespace(), "the initial one",
                 "run heaptap on the host, or in a container with --pid=host"),
  };
  absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::Books::Load({});
  findings.push_back(FromStatus(
      "eBPF programs", books.status(), "loaded; exec, fork and exit of processes are traced",
      "fix the other findings first; in a container, allow bpf(2) and perf_event_open(2) in the seccomp profile"));
  const absl::StatusOr<std::string> library = FindLibrary();
  findings.push_back(FromStatus("libheaptap.so", library.status(), library.value_or(""),
                                "build it with `make` or install it with `make install`"));
  if (books.ok() && library.ok()) {
    elf::FileDescriptor file(open(library->c_str(), O_RDONLY | O_CLOEXEC));
    ProbeFiles probes(**books);
    absl::StatusOr<bool> attached = probes.Attach(file.get(), *library, *library, getpid());
    absl::Status status = attached.status();
    if (status.ok() && !*attached) status = absl::FailedPreconditionError("libheaptap.so has no probes");
    findings.push_back(FromStatus("probes", status, "attached, with their semaphores",
                                  "fix the other findings first; install libheaptap.so on a local disk or tmpfs"));
  }
  return findings;
}

namespace {

// Whether a mapped file has an unwind table, and how much kernel memory it takes.
Finding CheckUnwinding(int fd, const std::string& name) {
  Finding finding = {"unwind table", absl::OkStatus(), name, ""};
  absl::StatusOr<elf::File> file = elf::File::Open(fd);
  absl::StatusOr<unwind::FileTable> table = file.ok() ? unwind::ReadFileTable(*file) : file.status();
  if (!table.ok() && !absl::IsNotFound(table.status())) {
    absl::StrAppend(&finding.detail, ": ", Printable(table.status().message()),
                    "; stacks through it follow frame pointers");
  } else if (!table.ok() || table->rows.empty()) {
    absl::StrAppend(&finding.detail, ": none; stacks through it follow frame pointers");
  } else {
    absl::StrAppend(&finding.detail, ": ", table->rows.size(), " rows, ", KernelBytes(table->rows.size()) / 1024,
                    " KiB");
  }
  return finding;
}

}  // namespace

std::vector<Finding> CheckProcess(pid_t pid) {
  const std::string subject = absl::StrCat("process ", pid);
  absl::StatusOr<ProcessHandle> handle = ProcessHandle::Open(pid);
  if (!handle.ok()) return {{subject, handle.status(), "", "pass the PID of a running process that you may trace"}};
  std::vector<Finding> findings = {{subject, absl::OkStatus(), ProcessName(pid), ""}};
  absl::StatusOr<std::vector<elf::Mapping>> mappings = elf::ReadExecutableMappings(pid);
  if (!mappings.ok()) return {{subject, mappings.status(), "", "pass the PID of a running process that you may trace"}};
  bool has_allocator = false;
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> seen;
  for (const elf::Mapping& mapping : *mappings) {
    if (mapping.inode == 0) continue;
    if (!seen.insert({mapping.device_major, mapping.device_minor, mapping.inode}).second) continue;
    absl::StatusOr<elf::MappedFile> file = elf::OpenMapped(pid, mapping);
    if (!file.ok()) continue;
    findings.push_back(CheckUnwinding(file->file.get(), Printable(mapping.path)));
    absl::StatusOr<Allocator> allocator = ReadAllocator(file->file.get());
    has_allocator |= !allocator.ok() || allocator->HasSamples();
    if (!allocator.ok()) {
      findings.push_back({"sampled allocator", allocator.status(), Printable(mapping.path), "rebuild this library"});
      continue;
    }
    if (!allocator->HasSamples()) continue;
    std::string detail = Printable(mapping.path);
    absl::StatusOr<uint64_t> address = FindControl(file->file.get(), mapping);
    if (!address.ok()) {
      findings.push_back({"sampled allocator", absl::OkStatus(),
                          absl::StrCat(detail, ", without a control block: it samples at its own rate"), ""});
      continue;
    }
    absl::StatusOr<heaptap_control> control = ReadControl(*handle, *address);
    if (control.ok()) {
      absl::StrAppend(&detail, ", lg_prof_sample ", control->lg_sample, ", prof.active ",
                      control->active != 0 ? "true" : "false");
      if (const pid_t other = OtherCollector(*control); other != 0) {
        absl::StrAppend(&detail, ", recorded by heaptap ", other);
      }
    }
    findings.push_back(FromStatus("sampled allocator", control.status(), detail,
                                  "install heaptap and libheaptap.so from the same release"));
  }
  if (!has_allocator) {
    findings.push_back({"sampled allocator", absl::NotFoundError("none is mapped"), "",
                        "start the process with LD_PRELOAD=/path/to/libheaptap.so"});
  }
  return findings;
}

}  // namespace heaptap::service
