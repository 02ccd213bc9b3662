// SPDX-License-Identifier: Apache-2.0
#include "userspace/daemon/checkup.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "heaptap/contract.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/process/preload.h"
#include "userspace/recording/allocator_files.h"
#include "userspace/recording/probe_files.h"
#include "userspace/recording/seen_file.h"
#include "userspace/recording/unwind_tables.h"
#include "userspace/unwind/file_table.h"
#include "userspace/worker/crews.h"
#include "userspace/worker/errands.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::daemon {
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
  absl::StatusOr<std::unique_ptr<bpf::Books>> books = bpf::KernelBooks::Load({});
  findings.push_back(FromStatus(
      "eBPF programs", books.status(), "loaded; exec, fork and exit of processes are traced",
      "fix the other findings first; in a container, allow bpf(2) and perf_event_open(2) in the seccomp profile"));
  const absl::StatusOr<std::string> library = process::FindLibrary();
  findings.push_back(FromStatus("libheaptap.so", library.status(), library.value_or(""),
                                "build it with `make` or install it with `make install`"));
  if (books.ok() && library.ok()) {
    worker::Errands errands(worker::Urgency::kForeground);
    recording::AllocatorFiles allocator_files(errands);
    recording::ProbeFiles probes(**books, errands);
    const absl::StatusOr<recording::SeenFile> file = recording::OpenOwn(**books, *library);
    const absl::StatusOr<bool> attached =
        file.ok() ? recording::AttachAllocator(*file, errands, allocator_files, probes, getpid())
                  : absl::StatusOr<bool>(file.status());
    absl::Status status = attached.status();
    if (status.ok() && !*attached) status = absl::FailedPreconditionError("libheaptap.so has no probes");
    findings.push_back(FromStatus("probes", status, "attached, with their semaphores",
                                  "fix the other findings first; install libheaptap.so on a local disk or tmpfs"));
  }
  return findings;
}

namespace {

// Reads the files of one process, which may be hostile.
class FileReader {
 public:
  FileReader(pid_t pid, uid_t user) : pid_(pid), user_(user), crews_(worker::Urgency::kForeground) {}

  absl::StatusOr<unwind::FileTable> ReadTable(const elf::Mapping& mapping) {
    const worker::Answer answer = Ask(worker::Job::kTable, mapping);
    if (!answer.status.ok()) return answer.status;
    absl::StatusOr<worker::TableOfFile> table = worker::DecodeTable(answer.bytes);
    if (!table.ok()) return table.status();
    return std::move(table->table);
  }
  absl::StatusOr<worker::AllocatorOfFile> ReadAllocator(const elf::Mapping& mapping) {
    const worker::Answer answer = Ask(worker::Job::kAllocator, mapping);
    if (!answer.status.ok()) return answer.status;
    return worker::DecodeAllocator(answer.bytes);
  }

 private:
  worker::Answer Ask(worker::Job job, const elf::Mapping& mapping) {
    return crews_.Do(user_, {.job = job, .file = {.pid = pid_, .mapping = mapping}},
                     {.answer_bytes = worker::kMaxTableBytes});
  }

  const pid_t pid_;
  const uid_t user_;
  worker::Crews crews_;
};

// Whether a mapped file has an unwind table, and how much kernel memory it takes.
Finding CheckUnwinding(const absl::StatusOr<unwind::FileTable>& table, const std::string& name) {
  Finding finding = {"unwind table", absl::OkStatus(), name, ""};
  if (!table.ok() && !absl::IsNotFound(table.status())) {
    absl::StrAppend(&finding.detail, ": ", base::AsciiOnly(table.status().message()),
                    "; stacks through it follow frame pointers");
  } else if (!table.ok() || table->rows.empty()) {
    absl::StrAppend(&finding.detail, ": none; stacks through it follow frame pointers");
  } else {
    absl::StrAppend(&finding.detail, ": ", table->rows.size(), " rows, ",
                    recording::KernelBytes(table->rows.size()) / 1024, " KiB");
  }
  return finding;
}

}  // namespace

std::vector<Finding> CheckProcess(pid_t pid) {
  const std::string subject = absl::StrCat("process ", pid);
  absl::StatusOr<process::Handle> handle = process::Handle::Open(pid);
  if (!handle.ok()) return {{subject, handle.status(), "", "pass the PID of a running process that you may trace"}};
  std::vector<Finding> findings = {{subject, absl::OkStatus(), process::NameOf(pid), ""}};
  const absl::StatusOr<process::Facts> facts = process::ReadFacts(pid);
  const std::optional<uid_t> owner = facts.ok() ? facts->owner : std::nullopt;
  FileReader reader(pid, owner.value_or(worker::kUnknownUser));
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(pid);
  if (!mappings.ok()) return {{subject, mappings.status(), "", "pass the PID of a running process that you may trace"}};
  bool has_allocator = false;
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> seen;
  for (const elf::Mapping& mapping : *mappings) {
    if (mapping.inode == 0) continue;
    if (!seen.insert({mapping.device_major, mapping.device_minor, mapping.inode}).second) continue;
    const std::string name = base::AsciiOnly(mapping.path);
    const absl::StatusOr<worker::AllocatorOfFile> allocator = reader.ReadAllocator(mapping);
    if (absl::IsNotFound(allocator.status())) continue;  // not a file, or gone
    findings.push_back(CheckUnwinding(reader.ReadTable(mapping), name));
    has_allocator |= !allocator.ok() || allocator->probes.HasSamples();
    if (!allocator.ok()) {
      findings.push_back({"sampled allocator", allocator.status(), name, "rebuild this library"});
      continue;
    }
    if (!allocator->probes.HasSamples()) continue;
    std::string detail = name;
    const absl::StatusOr<uint64_t> address = allocator->control.has_value()
                                                 ? process::ControlAddress(*allocator->control, mapping)
                                                 : absl::NotFoundError("no control block");
    if (!address.ok()) {
      findings.push_back({"sampled allocator", absl::OkStatus(),
                          absl::StrCat(detail, ", without a control block: it samples at its own rate"), ""});
      continue;
    }
    absl::StatusOr<heaptap_control> control = process::ReadControl(*handle, *address);
    if (control.ok()) {
      absl::StrAppend(&detail, ", lg_prof_sample ", control->lg_sample, ", prof.active ",
                      control->active != 0 ? "true" : "false");
      if (const pid_t other = process::OtherCollector(*control); other != 0) {
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

}  // namespace heaptap::daemon
