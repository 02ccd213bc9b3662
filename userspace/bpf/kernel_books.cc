// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_books.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "bpf/commands.h"
#include "bpf/heaptap.skel.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {
namespace {

// After a sweep, the next one waits for this many times the duration of the sweep.
constexpr uint64_t kSweepPause = 20;
constexpr uint64_t kShortestSweepPause = 10'000'000;  // nanoseconds

// Header of a record in a ring buffer (BPF_RINGBUF_HDR_SZ).
constexpr size_t kRingHeader = 8;

uint64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

Books::Unnoticed::Cause CauseOf(const heaptap_process& ended) {
  if ((ended.flags & HEAPTAP_PROCESS_EXECED) != 0) return Books::Unnoticed::Cause::kExec;
  if ((ended.flags & HEAPTAP_PROCESS_RESET) != 0) return Books::Unnoticed::Cause::kReset;
  return Books::Unnoticed::Cause::kExit;
}

}  // namespace

absl::StatusOr<uint64_t> KernelBooks::Track(pid_t tgid, bool follow, const Triggers& triggers) {
  const uint32_t key = tgid;
  heaptap_process process = {};
  process.identity.id = next_process_id_;
  process.identity.start_time = MonotonicNanoseconds();
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
  next_process_id_ += 2;
  SetCounter(HEAPTAP_COUNTER_NEXT_COLLECTOR_ID, next_process_id_);
  return process.identity.id;
}

absl::Status KernelBooks::SetSettings(heaptap_settings settings) {
  const uint32_t first = 0;
  flags_of_all_ = settings.everyone != 0 ? settings.flags : 0;
  if (settings.everyone != 0) {
    settings.live_room = bpf_map__max_entries(object_->maps.live);
    // Each tally has at most one stack, so with this bound neither map fills up.
    settings.tallies_room =
        std::min(bpf_map__max_entries(object_->maps.tallies), bpf_map__max_entries(object_->maps.stacks));
  }
  const int error =
      bpf_map__update_elem(object_->maps.settings, &first, sizeof(first), &settings, sizeof(settings), BPF_ANY);
  return error == 0 ? absl::OkStatus() : KernelError(error, "setting what new processes get");
}

bool KernelBooks::Configure(pid_t tgid, uint64_t process_id, const ProcessSettings& settings) {
  heaptap_configure argument = {.process_id = process_id,
                                .tgid = static_cast<uint32_t>(tgid),
                                .flags = settings.ignored ? HEAPTAP_PROCESS_IGNORED : 0,
                                .limits = {settings.max_live, settings.max_tallies},
                                .triggers = ToKernel(settings.triggers),
                                .done = 0,
                                .reserved = 0};
  return RunProgram(program(Program::kConfigure), argument) && argument.done != 0;
}

bool KernelBooks::Fold(pid_t tgid, uint64_t process_id, const TallyEntry& entry, uint32_t threads_begun) {
  heaptap_fold argument = {.key = {process_id, entry.stack_id, entry.tid, 0},
                           .tgid = static_cast<uint32_t>(tgid),
                           .done = 0,
                           .threads_begun = threads_begun,
                           .reserved = 0};
  return RunProgram(program(Program::kFold), argument) && argument.done != 0;
}

absl::StatusOr<heaptap_process> KernelBooks::ReadProcess(pid_t tgid) const {
  const uint32_t key = tgid;
  heaptap_process process;
  if (bpf_map__lookup_elem(object_->maps.processes, &key, sizeof(key), &process, sizeof(process), 0) != 0) {
    return absl::NotFoundError(absl::StrCat("process ", tgid, " is not recorded"));
  }
  return process;
}

bool KernelBooks::IsCurrent(pid_t tgid, uint64_t process_id) const {
  const uint32_t key = tgid;
  heaptap_process process;
  return bpf_map__lookup_elem(object_->maps.processes, &key, sizeof(key), &process, sizeof(process), 0) == 0 &&
         process.identity.id == process_id;
}

void KernelBooks::Untrack(pid_t tgid) {
  const uint32_t key = tgid;
  bpf_map__delete_elem(object_->maps.processes, &key, sizeof(key), 0);
}

int KernelBooks::events_fd() const { return ring_buffer__epoll_fd(ring_); }

absl::StatusOr<std::vector<heaptap_event>> KernelBooks::TakeEvents() {
  if (sweep_again_at_ != 0 && MonotonicNanoseconds() >= sweep_again_at_) {
    sweep_again_at_ = 0;
    SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  }
  if (sweep_again_at_ == 0 && !forgotten_.empty()) {
    if (absl::Status status = Sweep(); !status.ok()) return status;
  }
  if (const int error = ring_buffer__consume(ring_); error < 0 && error != kEnough)
    return KernelError(error, "reading the ring buffer");
  events_fill_ = static_cast<double>(events_.size() * (sizeof(heaptap_event) + kRingHeader)) /
                 bpf_map__max_entries(object_->maps.events);
  return std::exchange(events_, {});
}

uint64_t KernelBooks::EventsLost() const {
  const uint32_t which = HEAPTAP_COUNTER_EVENTS_LOST;
  uint64_t lost = 0;
  bpf_map__lookup_elem(object_->maps.counters, &which, sizeof(which), &lost, sizeof(lost), 0);
  return lost;
}

absl::StatusOr<std::map<uint64_t, RecordedProcess>> KernelBooks::ReadProcesses() const {
  std::map<uint64_t, RecordedProcess> processes;
  absl::Status status = ForEachEntry<uint32_t, heaptap_process>(
      object_->maps.processes, [&](uint32_t tgid, const heaptap_process& process) {
        if ((process.flags & HEAPTAP_PROCESS_SHARES_PARENT) != 0) return;
        processes[process.identity.id] = {static_cast<pid_t>(tgid), process};
      });
  if (!status.ok()) return status;
  return processes;
}

absl::StatusOr<std::map<uint64_t, KernelBooks::Unnoticed>> KernelBooks::ReadUnnoticed() const {
  std::map<uint64_t, Unnoticed> ended;
  absl::Status status = ForEachEntry<uint64_t, heaptap_process>(
      object_->maps.unnoticed, [&](uint64_t process_id, const heaptap_process& process) {
        ended[process_id] = {static_cast<pid_t>(process.identity.parent_tgid), CauseOf(process), process.ended,
                             process.by_oom_kill != 0, process.figures.peak_weight};
      });
  if (!status.ok()) return status;
  return ended;
}

bool KernelBooks::IsUnnoticed(uint64_t process_id) const {
  heaptap_process process;
  return bpf_map__lookup_elem(object_->maps.unnoticed, &process_id, sizeof(process_id), &process, sizeof(process), 0) ==
         0;
}

absl::StatusOr<std::vector<TallyEntry>> KernelBooks::ReadTallies(uint64_t process_id) const {
  std::vector<TallyEntry> entries;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally& tally) {
        if (key.process_id == process_id) entries.push_back({key.stack_id, key.tid, tally});
      });
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> KernelBooks::ReadAllTallies() const {
  std::map<uint64_t, std::vector<TallyEntry>> entries;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally& tally) {
        entries[key.process_id].push_back({key.stack_id, key.tid, tally});
      });
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<std::map<uint64_t, LiveTotals>> KernelBooks::ReadLiveTotals() const {
  std::map<uint64_t, LiveTotals> processes;
  absl::Status status = ForEachEntry<heaptap_live_key, heaptap_live>(
      object_->maps.live, [&](const heaptap_live_key& key, const heaptap_live& object) {
        if (object.size == 0 || object.size == HEAPTAP_LIVE_CLAIMED) return;
        LiveTotals& totals = processes[key.process_id];
        totals.objects++;
        totals.bytes += object.size;
        totals.weight += object.weight;
      });
  if (!status.ok()) return status;
  return processes;
}

absl::StatusOr<heaptap_stack> KernelBooks::ReadStack(uint64_t stack_id) const {
  heaptap_stack stack;
  if (stack_id == HEAPTAP_NO_STACK) return absl::NotFoundError("sample without a stack");
  if (const int error =
          bpf_map__lookup_elem(object_->maps.stacks, &stack_id, sizeof(stack_id), &stack, sizeof(stack), 0);
      error != 0) {
    return KernelError(error, "reading a stack");
  }
  stack.count = std::min<uint32_t>(stack.count, HEAPTAP_MAX_FRAMES);
  return stack;
}

absl::StatusOr<ThreadName> KernelBooks::ReadThreadName(uint64_t process_id, uint32_t tid) const {
  const heaptap_thread_key key = {process_id, tid, 0};
  heaptap_thread_name value;
  if (const int error = bpf_map__lookup_elem(object_->maps.names, &key, sizeof(key), &value, sizeof(value), 0);
      error != 0) {
    return error == -ENOENT ? absl::NotFoundError("the thread has no name in the books")
                            : KernelError(error, "reading the name of a thread");
  }
  return ThreadName{std::string(value.name, strnlen(value.name, sizeof(value.name))), value.given != 0};
}

absl::StatusOr<std::vector<heaptap_record>> KernelBooks::ReadRecords(uint64_t process_id) const {
  std::vector<heaptap_record> records;
  absl::Status status =
      ForEachEntry<uint32_t, heaptap_record>(object_->maps.records, [&](uint32_t, const heaptap_record& record) {
        if (record.number != 0 && record.process_id == process_id) records.push_back(record);
      });
  if (!status.ok()) return status;
  std::sort(records.begin(), records.end(),
            [](const heaptap_record& a, const heaptap_record& b) { return a.number < b.number; });
  return records;
}

Losses KernelBooks::ReadLosses(uint64_t process_id) const {
  Losses losses = {};
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss_key key = {process_id, reason, 0};
    bpf_map__lookup_elem(object_->maps.losses, &key, sizeof(key), &losses[reason], sizeof(losses[reason]), 0);
  }
  return losses;
}

absl::Status KernelBooks::Sweep() {
  const uint64_t begin = MonotonicNanoseconds();
  bpf_test_run_opts options = {};
  options.sz = sizeof(options);
  if (const int error = bpf_prog_test_run_opts(program(Program::kSweep), &options); error != 0) {
    return KernelError(error, "sweeping the map of live objects");
  }
  const uint64_t end = MonotonicNanoseconds();
  sweep_again_at_ = end + std::max((end - begin) * kSweepPause, kShortestSweepPause);
  DeleteKeys(object_->maps.forgotten, forgotten_);
  forgotten_.clear();
  // Where most objects live, a sweep deletes little, and the map would ask for the next one at once.
  if (ReadCounter(HEAPTAP_COUNTER_LIVE_ENTRIES) < sweep_at_ / 2) SetCounter(HEAPTAP_COUNTER_SWEEP_AT, sweep_at_);
  return absl::OkStatus();
}

void KernelBooks::SetCounter(uint32_t which, uint64_t value) {
  bpf_map__update_elem(object_->maps.counters, &which, sizeof(which), &value, sizeof(value), BPF_ANY);
}

uint64_t KernelBooks::ReadCounter(uint32_t which) const {
  uint64_t value = 0;
  bpf_map__lookup_elem(object_->maps.counters, &which, sizeof(which), &value, sizeof(value), 0);
  return value;
}

absl::Status KernelBooks::Forget(const std::set<uint64_t>& process_ids) {
  // The ends and the tallies tell a later collector what is left to forget, so losses and stacks go before them.
  std::vector<heaptap_loss_key> losses;
  for (const uint64_t process_id : process_ids) {
    if (process_id == 0) continue;
    for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
      losses.push_back({process_id, reason, 0});
    }
  }
  DeleteKeys(object_->maps.losses, losses);
  DeleteKeys(object_->maps.unnoticed, std::vector<uint64_t>(process_ids.begin(), process_ids.end()));
  std::vector<heaptap_tally_key> tallies;
  std::set<uint64_t> with_tallies;
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      object_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally&) {
        if (!process_ids.contains(key.process_id)) return;
        tallies.push_back(key);
        with_tallies.insert(key.process_id);
      });
  if (!status.ok()) return status;
  // Every object has a tally, so a process without tallies needs no sweep. One sweep of `live` serves many processes.
  for (const uint64_t process_id : with_tallies) {
    const uint8_t mark = 1;
    if (bpf_map__update_elem(object_->maps.forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY) !=
        0) {
      // No room for the mark: enough processes for a sweep.
      if (status = Sweep(); !status.ok()) return status;
      bpf_map__update_elem(object_->maps.forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY);
    }
    forgotten_.push_back(process_id);
  }
  std::vector<uint64_t> unmarked;
  std::set_difference(process_ids.begin(), process_ids.end(), with_tallies.begin(), with_tallies.end(),
                      std::back_inserter(unmarked));
  // Processes that were forgotten earlier keep their marks until the sweep.
  std::erase_if(unmarked, [&](uint64_t process_id) {
    return std::find(forgotten_.begin(), forgotten_.end(), process_id) != forgotten_.end();
  });
  DeleteKeys(object_->maps.forgotten, unmarked);
  // A stack belongs to one process: the process id is part of the hash.
  std::vector<uint64_t> stacks;
  for (const heaptap_tally_key& key : tallies) {
    if (key.stack_id != HEAPTAP_NO_STACK) stacks.push_back(key.stack_id);
  }
  std::sort(stacks.begin(), stacks.end());
  stacks.erase(std::unique(stacks.begin(), stacks.end()), stacks.end());
  DeleteKeys(object_->maps.stacks, stacks);
  heaptap_tallies_deleted deleted = {DeleteKeys(object_->maps.tallies, tallies)};
  RunProgram(program(Program::kTalliesDeleted), deleted);
  return absl::OkStatus();
}

void KernelBooks::MarkClosed(uint64_t process_id) {
  const uint8_t mark = 1;
  bpf_map__update_elem(object_->maps.forgotten, &process_id, sizeof(process_id), &mark, sizeof(mark), BPF_ANY);
}

absl::StatusOr<std::set<uint64_t>> KernelBooks::ReadClosed() const {
  std::set<uint64_t> closed;
  absl::Status status = ForEachEntry<uint64_t, uint8_t>(
      object_->maps.forgotten, [&](uint64_t process_id, uint8_t) { closed.insert(process_id); });
  if (!status.ok()) return status;
  return closed;
}

std::map<std::string, uint64_t> KernelBooks::KernelMemory() const {
  std::map<std::string, uint64_t> bytes;
  bpf_map* map;
  bpf_object__for_each_map(map, object_->obj) {
    if (bpf_map__is_internal(map)) continue;
    std::ifstream file(absl::StrCat("/proc/self/fdinfo/", bpf_map__fd(map)));
    for (std::string line; std::getline(file, line);) {
      uint64_t memory = 0;
      if (absl::StartsWith(line, "memlock:") && absl::SimpleAtoi(absl::StripPrefix(line, "memlock:"), &memory)) {
        bytes[bpf_map__name(map)] = memory;
      }
    }
  }
  return bytes;
}

}  // namespace heaptap::bpf
