// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_processes.h"

#include <bpf/libbpf.h>
#include <errno.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "bpf/commands.h"
#include "bpf/heaptap.skel.h"
#include "userspace/base/clock.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {
namespace {

EndedBooks::Cause CauseOf(const heaptap_process& ended) {
  if ((ended.flags & HEAPTAP_PROCESS_EXECED) != 0) return EndedBooks::Cause::kExec;
  if ((ended.flags & HEAPTAP_PROCESS_RESET) != 0) return EndedBooks::Cause::kReset;
  return EndedBooks::Cause::kExit;
}

}  // namespace

absl::StatusOr<uint64_t> KernelProcesses::Track(pid_t tgid, bool follow, const Triggers& triggers) {
  const uint32_t key = tgid;
  heaptap_process process = {};
  process.identity.id = next_id_;
  process.identity.start_time = base::Now().nanoseconds();
  const bool has_triggers = triggers.first_high_water != 0 || triggers.interval != 0;
  process.flags = (follow ? HEAPTAP_PROCESS_FOLLOW : 0) | (has_triggers ? HEAPTAP_PROCESS_FIGURES : 0) |
                  (flags_of_all_ & HEAPTAP_PROCESS_FIGURES);
  process.triggers = ToKernel(triggers);
  process.marks = heaptap_first_marks(&process.triggers);
  if (const int error =
          bpf_map__update_elem(object_->maps.processes, &key, sizeof(key), &process, sizeof(process), BPF_NOEXIST);
      error != 0) {
    return KernelError(error, absl::StrCat("opening books for process ", tgid));
  }
  next_id_ += 2;
  object_.SetCounter(HEAPTAP_COUNTER_NEXT_COLLECTOR_ID, next_id_);
  return process.identity.id;
}

absl::Status KernelProcesses::RestrictTo(absl::Span<const int> groups) {
  for (uint32_t i = 0; i < groups.size(); i++) {
    if (groups[i] < 0) {
      bpf_map__delete_elem(object_->maps.groups, &i, sizeof(i), 0);
      continue;
    }
    if (const int error =
            bpf_map__update_elem(object_->maps.groups, &i, sizeof(i), &groups[i], sizeof(groups[i]), BPF_ANY);
        error != 0) {
      return KernelError(error, "restricting the recording to a control group");
    }
  }
  groups_ = static_cast<uint32_t>(groups.size());
  return absl::OkStatus();
}

absl::Status KernelProcesses::SetSettings(heaptap_settings settings) {
  const uint32_t first = 0;
  settings.groups = groups_;
  flags_of_all_ = settings.everyone != 0 ? settings.flags : 0;
  if (settings.everyone != 0) {
    settings.live_room = bpf_map__max_entries(object_->maps.live);
    settings.processes_room = bpf_map__max_entries(object_->maps.processes);
    // Each tally has at most one stack, so with this bound neither map fills up.
    settings.tallies_room =
        std::min(bpf_map__max_entries(object_->maps.tallies), bpf_map__max_entries(object_->maps.stacks));
  }
  const int error =
      bpf_map__update_elem(object_->maps.settings, &first, sizeof(first), &settings, sizeof(settings), BPF_ANY);
  return error == 0 ? absl::OkStatus() : KernelError(error, "setting what new processes get");
}

absl::Status KernelProcesses::Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) {
  heaptap_configure argument = {.process_id = process_id,
                                .tgid = static_cast<uint32_t>(tgid),
                                .flags = settings.ignored ? HEAPTAP_PROCESS_IGNORED : 0,
                                .limits = {settings.max_live, settings.max_tallies},
                                .triggers = ToKernel(settings.triggers),
                                .done = 0,
                                .reserved = 0};
  if (const int error = RunProgram(object_.program(Program::kConfigure), argument); error != 0) {
    return KernelError(error, absl::StrCat("configuring process ", tgid));
  }
  if (argument.done == 0) return absl::NotFoundError(absl::StrCat("process ", tgid, " has ended"));
  return absl::OkStatus();
}

absl::Status KernelProcesses::TakeFrees(pid_t tgid, uint64_t process_id, absl::Span<const heaptap_free> frees) {
  while (!frees.empty()) {
    const size_t count = std::min<size_t>(frees.size(), HEAPTAP_SLOT_FREES);
    heaptap_take_frees argument = {.process_id = process_id,
                                   .tgid = static_cast<uint32_t>(tgid),
                                   .count = static_cast<uint32_t>(count),
                                   .frees = reinterpret_cast<uint64_t>(frees.data())};
    if (const int error = RunProgram(object_.program(Program::kTakeFrees), argument); error != 0) {
      return KernelError(error, absl::StrCat("taking frees of process ", tgid));
    }
    frees.remove_prefix(count);
  }
  return absl::OkStatus();
}

absl::Status KernelProcesses::CountUnseenBeginning(pid_t tgid, uint64_t process_id, uint64_t held) {
  const absl::StatusOr<heaptap_process> process = Read(tgid);
  if (absl::IsNotFound(process.status())) return absl::OkStatus();
  if (!process.ok()) return process.status();
  if (process->identity.id != process_id || (process->flags & HEAPTAP_PROCESS_STARTED) != 0) return absl::OkStatus();
  const heaptap_loss_key key = {process_id, HEAPTAP_LOSS_BEGINNING, 0};
  const heaptap_loss loss = {.events = 1, .weight = held - std::min<uint64_t>(held, process->figures.live_weight)};
  const int error = bpf_map__update_elem(object_->maps.losses, &key, sizeof(key), &loss, sizeof(loss), BPF_NOEXIST);
  if (error == 0 || error == -EEXIST) return absl::OkStatus();
  return KernelError(error, absl::StrCat("counting what process ", tgid, " had allocated before"));
}

void KernelProcesses::UncountBeginning(uint64_t process_id) {
  const heaptap_loss_key key = {process_id, HEAPTAP_LOSS_BEGINNING, 0};
  bpf_map__delete_elem(object_->maps.losses, &key, sizeof(key), 0);
}

absl::StatusOr<heaptap_process> KernelProcesses::Read(pid_t tgid) const {
  const uint32_t key = tgid;
  heaptap_process process;
  const int error = LookUp(object_->maps.processes, key, process);
  if (error == -ENOENT) return absl::NotFoundError(absl::StrCat("process ", tgid, " is not recorded"));
  if (error != 0) return KernelError(error, absl::StrCat("reading the books of process ", tgid));
  return process;
}

bool KernelProcesses::IsCurrent(pid_t tgid, uint64_t process_id) const {
  const absl::StatusOr<heaptap_process> process = Read(tgid);
  return process.ok() && process->identity.id == process_id;
}

void KernelProcesses::Untrack(pid_t tgid) {
  heaptap_untrack argument = {.tgid = static_cast<uint32_t>(tgid), .reserved = 0};
  if (RunProgram(object_.program(Program::kUntrack), argument) == 0) return;
  // The kernel has no memory to run the program. The entry then still counts for its user.
  bpf_map__delete_elem(object_->maps.processes, &argument.tgid, sizeof(argument.tgid), 0);
}

absl::StatusOr<std::map<uint64_t, RecordedProcess>> KernelProcesses::ReadAll() const {
  std::map<uint64_t, RecordedProcess> processes;
  absl::Status status = ForEachEntry<uint32_t, heaptap_process>(
      object_->maps.processes, [&](uint32_t tgid, const heaptap_process& process) {
        if ((process.flags & HEAPTAP_PROCESS_SHARES_PARENT) != 0) return;
        processes[process.identity.id] = {static_cast<pid_t>(tgid), process};
      });
  if (!status.ok()) return status;
  return processes;
}

absl::StatusOr<std::map<uint64_t, EndedBooks>> KernelProcesses::ReadUnnoticed() const {
  std::map<uint64_t, EndedBooks> ended;
  absl::Status status = ForEachEntry<uint64_t, heaptap_process>(
      object_->maps.unnoticed, [&](uint64_t process_id, const heaptap_process& process) {
        ended[process_id] = {static_cast<pid_t>(process.identity.parent_tgid), CauseOf(process), process.ended,
                             process.by_oom_kill != 0, process.figures.peak_weight};
      });
  if (!status.ok()) return status;
  return ended;
}

bool KernelProcesses::IsUnnoticed(uint64_t process_id) const {
  heaptap_process process;
  return LookUp(object_->maps.unnoticed, process_id, process) == 0;
}

}  // namespace heaptap::bpf
