// SPDX-License-Identifier: Apache-2.0
#include "userspace/worker/hands_jobs.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "heaptap/contract.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/process/control_block.h"
#include "userspace/process/facts.h"
#include "userspace/process/handle.h"
#include "userspace/process/maps.h"
#include "userspace/process/memory_use.h"
#include "userspace/process/moved_code.h"
#include "userspace/process/pending_frees.h"
#include "userspace/process/proc_files.h"
#include "userspace/process/residency.h"
#include "userspace/process/start_facts.h"
#include "userspace/worker/answer_job.h"
#include "userspace/worker/area_job.h"
#include "userspace/worker/file_jobs.h"
#include "userspace/worker/plain_bytes.h"

namespace heaptap::worker {
namespace {

// The kernel allows two megabytes and more; the beginning is enough for people.
constexpr size_t kMaxCommandLine = 16 << 10;

absl::Status WriteCommandLine(pid_t pid, const HandsOutput& output) {
  const absl::StatusOr<std::string> words = process::ReadProcFile(pid, "cmdline", kMaxCommandLine);
  if (!words.ok()) return absl::NotFoundError(absl::StrCat("no process ", pid));
  output.write(*words);
  return absl::OkStatus();
}

absl::Status WriteMaps(pid_t pid, const HandsOutput& output) {
  const absl::StatusOr<std::string> maps = process::ReadMaps(pid);
  if (maps.ok()) output.write(process::NameMovedCode(pid, *maps));
  return maps.status();
}

absl::Status WriteFacts(pid_t pid, const HandsOutput& output) {
  const absl::StatusOr<process::Facts> facts = process::ReadFacts(pid);
  if (facts.ok()) output.write(process::Encode(*facts));
  return facts.status();
}

absl::Status WriteStart(pid_t pid, const HandsOutput& output) {
  const absl::StatusOr<process::StartFacts> facts = process::ReadStartFacts(pid);
  if (facts.ok()) output.write(process::Encode(*facts));
  return facts.status();
}

absl::Status WriteThreadNames(const Request& request, const HandsOutput& output) {
  absl::string_view tids = request.question;
  for (uint32_t tid; Take(tids, tid);) {
    const std::optional<std::string> name = process::ThreadName(request.file.pid, tid);
    if (name.has_value()) output.write(absl::StrCat(BytesOf(tid), *name, absl::string_view("", 1)));
  }
  return absl::OkStatus();
}

absl::Status WriteMemoryUse(const Request& request, const HandsOutput& output) {
  absl::string_view pids = request.question;
  std::string answer;
  for (uint32_t pid; Take(pids, pid);) {
    const process::MemoryUse use = process::ReadMemoryUse(static_cast<pid_t>(pid));
    absl::StrAppend(&answer, BytesOf(use));
  }
  output.write(answer);
  return absl::OkStatus();
}

absl::Status WriteResidency(pid_t pid, const HandsOutput& output) {
  const absl::StatusOr<profile::ResidentBytes> resident = process::ReadResidency(pid);
  if (resident.ok()) output.write(BytesOf(*resident));
  return resident.status();
}

absl::Status Control(const Request& request, const HandsOutput& output) {
  absl::string_view question = request.question;
  ControlOrder order;
  if (!Take(question, order)) return absl::InvalidArgumentError("no order");
  const absl::StatusOr<process::Handle> process = process::Handle::Open(request.file.pid);
  if (!process.ok()) return process.status();
  if (!output.confirm()) return absl::NotFoundError(absl::StrCat("process ", request.file.pid, " has ended"));
  const auto collector = static_cast<pid_t>(order.collector);
  switch (order.verb) {
    case ControlVerb::kRead: {
      const absl::StatusOr<heaptap_control> control = process::ReadControl(*process, order.address);
      if (!control.ok()) return control.status();
      output.write(absl::string_view(reinterpret_cast<const char*>(&*control), sizeof(*control)));
      return absl::OkStatus();
    }
    case ControlVerb::kTake:
      return process::TakeControl(*process, order.address, order.argument, order.follows, collector);
    case ControlVerb::kRelease:
      return process::ReleaseControl(*process, order.address, collector);
    case ControlVerb::kTablesReady:
      return process::WriteTablesReady(*process, order.address, order.argument);
    case ControlVerb::kActive:
      return process::WriteActive(*process, order.address, order.argument != 0);
  }
  return absl::InvalidArgumentError("an unknown order");
}

absl::Status WritePendingFrees(const Request& request, const HandsOutput& output) {
  absl::string_view question = request.question;
  uint64_t address = 0;
  if (!Take(question, address)) return absl::InvalidArgumentError("no address");
  const absl::StatusOr<process::Handle> process = process::Handle::Open(request.file.pid);
  if (!process.ok()) return process.status();
  if (!output.confirm()) return absl::NotFoundError(absl::StrCat("process ", request.file.pid, " has ended"));
  const absl::StatusOr<std::vector<heaptap_free>> frees = process::ReadPendingFrees(*process, address);
  if (!frees.ok()) return frees.status();
  output.write(absl::string_view(reinterpret_cast<const char*>(frees->data()), frees->size() * sizeof(heaptap_free)));
  return absl::OkStatus();
}

}  // namespace

bool IsHandsJob(Job job) { return job >= Job::kCommandLine && job < Job::kForTests; }

absl::Status DoHandsJob(const Request& request, absl::Span<const int> descriptors, const HandsOutput& output) {
  switch (request.job) {
    case Job::kCommandLine:
      return WriteCommandLine(request.file.pid, output);
    case Job::kMaps:
      return WriteMaps(request.file.pid, output);
    case Job::kFacts:
      return WriteFacts(request.file.pid, output);
    case Job::kStart:
      return WriteStart(request.file.pid, output);
    case Job::kThreadNames:
      return WriteThreadNames(request, output);
    case Job::kMemoryUse:
      return WriteMemoryUse(request, output);
    case Job::kResidency:
      return WriteResidency(request.file.pid, output);
    case Job::kControl:
      return Control(request, output);
    case Job::kPendingFrees:
      return WritePendingFrees(request, output);
    case Job::kAnswer:
      return AnswerDump(request, output);
    case Job::kGiveArea:
      return GiveArea(request, descriptors, output);
    case Job::kLook:
      return Look(request, descriptors, output);
    case Job::kVersion:
      return WriteVersion(request, output);
    case Job::kAttach:
      return Attach(request, descriptors, output);
    default:
      return absl::InvalidArgumentError("not a job of hands");
  }
}

}  // namespace heaptap::worker
