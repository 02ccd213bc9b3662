// SPDX-License-Identifier: Apache-2.0
#include "userspace/doctor/checkup.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "heaptap/contract.h"
#include "userspace/attach/allocator_files.h"
#include "userspace/attach/probe_files.h"
#include "userspace/base/messages.h"
#include "userspace/base/user_ids.h"
#include "userspace/bpf/kernel_books.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/crews/crews.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/hands.h"
#include "userspace/doctor/allocator_advice.h"
#include "userspace/elf/mappings.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/malloc_traits.h"
#include "userspace/process/preload.h"
#include "userspace/process/proc_files.h"
#include "userspace/spaces/seen_file.h"
#include "userspace/tables/unwind_tables.h"
#include "userspace/unwind/file_table.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::daemon {
namespace {

// How long to wait for the hands; a command can wait longer than a collector can.
constexpr absl::Duration kPatience = absl::Seconds(5);

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

Finding CheckPidNamespace() {
  if (bpf::CheckPidNamespace().ok()) return {"PID namespace", absl::OkStatus(), "the initial one", ""};
  return {"PID namespace", absl::FailedPreconditionError(bpf::kOtherPidNamespace), "",
          std::string(bpf::kLeavePidNamespace)};
}

}  // namespace

std::vector<Finding> CheckMachine() {
  std::vector<Finding> findings = {
      CheckKernel(),
      CheckCapabilities(),
      CheckLockdown(),
      CheckPidNamespace(),
  };
  // Load refuses any other PID namespace, and would say the same again.
  const bool is_first_namespace = bpf::CheckPidNamespace().ok();
  absl::StatusOr<std::unique_ptr<bpf::Books>> books =
      is_first_namespace ? bpf::KernelBooks::Load({})
                         : absl::FailedPreconditionError("not tried in this PID namespace");
  findings.push_back(FromStatus(
      "eBPF programs", books.status(), "loaded; exec, fork and exit of processes are traced",
      "fix the other findings first; in a container, allow bpf(2) and perf_event_open(2) in the seccomp profile"));
  const absl::StatusOr<std::string> library = process::FindLibrary(process::Library::kAllocator);
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
  absl::StatusOr<process::MallocTraits> ReadMalloc(const elf::Mapping& mapping) {
    const worker::Answer answer = Ask(worker::Job::kMalloc, mapping);
    if (!answer.status.ok()) return answer.status;
    return worker::DecodeMalloc(answer.bytes);
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

std::string WhyForeign(pid_t pid) {
  std::string why;
  process::AskThreads(pid, [&](pid_t thread) {
    const std::string program = process::ThreadFile(thread, "exe");
    why = process::WhyForeign(program);
    return access(program.c_str(), F_OK) == 0;
  });
  return why;
}

// What is known about a process that takes no samples. `passive`: the paths of heaptap's libraries in the process.
Evidence Gather(pid_t pid, const process::Facts& facts, worker::Hands& hands, FileReader& reader,
                const std::vector<elf::Mapping>& mappings, const std::set<std::string>& passive) {
  Evidence evidence = {.program = std::string(absl::StripSuffix(base::AsciiOnly(facts.executable), " (deleted)")),
                       .command = base::AsciiOnly(facts.command),
                       .foreign = WhyForeign(pid),
                       .allocator = process::PathToShow(process::Library::kAllocator),
                       .guest = process::PathToShow(process::Library::kGuest)};
  if (absl::StatusOr<process::StartFacts> start = hands.StartFacts(pid); start.ok()) evidence.start = *std::move(start);
  for (const elf::Mapping& mapping : mappings) {
    const absl::StatusOr<process::MallocTraits> traits = reader.ReadMalloc(mapping);
    if (!traits.ok()) continue;
    const std::string path = base::AsciiOnly(mapping.path);
    evidence.files.push_back({.path = path,
                              .traits = *traits,
                              .is_program = path == evidence.program,
                              .is_heaptap = passive.contains(path)});
  }
  return evidence;
}

// Whether the program calls a malloc of its own, so that the libraries that take samples in the process get no calls.
bool KeepsItsMalloc(const Evidence& evidence, const std::set<std::string>& active) {
  return !active.empty() && std::ranges::any_of(evidence.files, [&active](const CodeFile& file) {
    return file.is_program && file.traits.exports_malloc != 0 && !active.contains(file.path);
  });
}

std::optional<std::string> PathAt(const std::vector<elf::Mapping>& mappings, uint64_t address) {
  const auto found = std::ranges::find_if(
      mappings, [&](const elf::Mapping& mapping) { return mapping.start <= address && address < mapping.end; });
  return found == mappings.end() ? std::nullopt : std::optional(base::AsciiOnly(found->path));
}

// One mapping of each file.
absl::StatusOr<std::vector<elf::Mapping>> ReadFiles(pid_t pid, worker::Hands& hands) {
  absl::StatusOr<std::vector<elf::Mapping>> mappings = hands.ReadExecutableMappings(pid);
  if (absl::IsPermissionDenied(mappings.status())) return process::NoAccess(pid);
  if (absl::IsNotFound(mappings.status())) {
    return absl::NotFoundError("has no memory: it is a kernel thread, or has just ended");
  }
  if (!mappings.ok()) return mappings.status();
  std::set<std::tuple<uint32_t, uint32_t, uint64_t>> seen;
  std::erase_if(*mappings, [&](const elf::Mapping& mapping) {
    return mapping.inode == 0 || !seen.insert({mapping.device_major, mapping.device_minor, mapping.inode}).second;
  });
  return mappings;
}

}  // namespace

std::vector<Finding> CheckProcess(pid_t pid) {
  const std::string subject = absl::StrCat("process ", pid);
  worker::Hands hands({.patience = kPatience});
  const absl::StatusOr<process::Facts> facts = hands.Facts(pid);
  const absl::StatusOr<std::vector<elf::Mapping>> mappings =
      facts.ok() ? ReadFiles(pid, hands) : absl::StatusOr<std::vector<elf::Mapping>>(facts.status());
  if (!mappings.ok()) return {{subject, mappings.status(), "", "pass the PID of a running process that you may trace"}};
  std::vector<Finding> findings = {{subject, absl::OkStatus(), base::AsciiOnly(facts->command), ""}};
  FileReader reader(pid, facts->owner.value_or(base::kUnknownUser));
  bool has_allocator = false;
  std::set<std::string> passive;
  std::set<std::string> active;
  for (const elf::Mapping& mapping : *mappings) {
    const std::string name = base::AsciiOnly(mapping.path);
    const absl::StatusOr<worker::AllocatorOfFile> allocator = reader.ReadAllocator(mapping);
    if (absl::IsNotFound(allocator.status())) continue;  // not a file, or gone
    findings.push_back(CheckUnwinding(reader.ReadTable(mapping), name));
    if (!allocator.ok()) {
      has_allocator = true;
      findings.push_back({"sampled allocator", allocator.status(), name, "rebuild this library"});
      continue;
    }
    if (!allocator->probes.HasSamples()) continue;
    std::string detail = name;
    const absl::StatusOr<uint64_t> address = allocator->control.has_value()
                                                 ? process::ControlAddress(*allocator->control, mapping)
                                                 : absl::NotFoundError("no control block");
    if (!address.ok()) {
      has_allocator = true;
      findings.push_back({"sampled allocator", absl::OkStatus(),
                          absl::StrCat(detail,
                                       ", without a control block: it samples at its own rate, and is recorded "
                                       "as it is (heaptap attach ",
                                       pid, ")"),
                          ""});
      continue;
    }
    const absl::StatusOr<heaptap_control> control = hands.Control(pid, {.address = *address}, [] { return true; });
    if (absl::IsNotFound(control.status())) {
      passive.insert(name);
      continue;
    }
    has_allocator = true;
    if (control.ok()) {
      // With both libraries, the dynamic linker gives one the other's block.
      detail = PathAt(*mappings, control->text_begin).value_or(name);
      if (detail != name) passive.insert(name);
      active.insert(detail);
      findings.push_back({"allocator", absl::OkStatus(), process::AllocatorName(*control), ""});
      absl::StrAppend(&detail, ", lg_prof_sample ", control->lg_sample, ", prof.active ",
                      control->active != 0 ? "true" : "false");
      if (const pid_t other = process::OtherCollector(*control); other != 0) {
        absl::StrAppend(&detail, ", recorded by heaptap ", other);
      }
    }
    findings.push_back(FromStatus("sampled allocator", control.status(), detail,
                                  "install heaptap and libheaptap.so from the same release"));
  }
  std::erase_if(passive, [&active](const std::string& path) { return active.contains(path); });
  const Evidence evidence = Gather(pid, *facts, hands, reader, *mappings, passive);
  const bool gets_no_calls = has_allocator && KeepsItsMalloc(evidence, active);
  if (!has_allocator || gets_no_calls) {
    std::erase_if(findings, [](const Finding& finding) { return absl::EndsWith(finding.subject, "allocator"); });
    findings.push_back({"allocator", absl::OkStatus(), AllocatorInUse(evidence), ""});
    const std::string what = gets_no_calls     ? absl::StrCat(*active.begin(), " gets no calls")
                             : passive.empty() ? "none is mapped"
                                               : absl::StrCat(*passive.begin(), " takes no samples");
    findings.push_back({"sampled allocator", absl::NotFoundError(what), "", HowToProfile(evidence)});
  } else if (!passive.empty()) {
    findings.push_back({"sampled allocator", absl::OkStatus(),
                        absl::StrCat(*passive.begin(), " takes no samples, because the other library does"), ""});
  }
  return findings;
}

}  // namespace heaptap::daemon
