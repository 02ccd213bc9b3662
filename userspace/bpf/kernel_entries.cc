// SPDX-License-Identifier: Apache-2.0
#include "userspace/bpf/kernel_entries.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <string.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bpf/heaptap.skel.h"
#include "userspace/bpf/kernel_error.h"
#include "userspace/bpf/map_access.h"

namespace heaptap::bpf {

namespace {

bool IsObject(const heaptap_live& object) {
  return object.serial != HEAPTAP_LIVE_NONE && object.serial != HEAPTAP_LIVE_CLAIMED;
}

void Add(heaptap_tally& sum, const heaptap_tally& more) {
  for (const auto half : {&heaptap_tally::allocated, &heaptap_tally::freed}) {
    for (const auto field : {&heaptap_count::objects, &heaptap_count::bytes, &heaptap_count::weight,
                             &heaptap_count::weighted_objects, &heaptap_count::variance}) {
      (sum.*half).*field += (more.*half).*field;
    }
  }
}

}  // namespace

absl::Status KernelEntries::VisitTallies(absl::FunctionRef<void(uint64_t, const TallyEntry&)> visit) const {
  absl::ReaderMutexLock lock(&folding());
  // The kernel has a tally for each that the process has counted, unless it was folded meanwhile.
  Counted counted = ReadCounted();
  absl::Status status = ForEachEntry<heaptap_tally_key, heaptap_tally>(
      skeleton_->maps.tallies, [&](const heaptap_tally_key& key, const heaptap_tally& tally) {
        TallyEntry entry = {key.stack_id, key.tid, tally};
        if (const auto found = counted.find({key.process_id, key.stack_id, key.tid}); found != counted.end()) {
          Add(entry.tally, found->second);
          counted.erase(found);
        }
        visit(key.process_id, entry);
      });
  if (!status.ok()) return status;
  for (const auto& [key, tally] : counted) visit(std::get<0>(key), {std::get<1>(key), std::get<2>(key), tally});
  return absl::OkStatus();
}

KernelEntries::Counted KernelEntries::ReadCounted() const {
  Counted counted;
  areas_.VisitCounts([&](uint64_t process_id, const TallyEntry& entry) {
    Add(counted[{process_id, entry.stack_id, entry.tid}], entry.tally);
  });
  return counted;
}

absl::StatusOr<std::vector<TallyEntry>> KernelEntries::ReadTallies(uint64_t process_id) const {
  std::vector<TallyEntry> entries;
  absl::Status status = VisitTallies([&](uint64_t id, const TallyEntry& entry) {
    if (id == process_id) entries.push_back(entry);
  });
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<std::map<uint64_t, std::vector<TallyEntry>>> KernelEntries::ReadAllTallies() const {
  std::map<uint64_t, std::vector<TallyEntry>> entries;
  absl::Status status = VisitTallies([&](uint64_t id, const TallyEntry& entry) { entries[id].push_back(entry); });
  if (!status.ok()) return status;
  return entries;
}

absl::StatusOr<std::map<uint64_t, LiveTotals>> KernelEntries::ReadLiveTotals() const {
  std::map<uint64_t, LiveTotals> processes;
  absl::Status status = ForEachEntry<heaptap_live_key, heaptap_live>(
      skeleton_->maps.live, [&](const heaptap_live_key& key, const heaptap_live& object) {
        if (!IsObject(object)) return;
        LiveTotals& totals = processes[key.process_id];
        totals.objects++;
        totals.bytes += object.size;
        totals.weight += object.weight;
      });
  if (!status.ok()) return status;
  areas_.VisitCounts([&](uint64_t process_id, const TallyEntry& entry) {
    const heaptap_tally& tally = entry.tally;
    if (tally.allocated.objects == tally.freed.objects) return;
    LiveTotals& totals = processes[process_id];
    totals.objects += tally.allocated.objects - tally.freed.objects;
    totals.bytes += tally.allocated.bytes - tally.freed.bytes;
    totals.weight += tally.allocated.weight - tally.freed.weight;
  });
  return processes;
}

absl::Status KernelEntries::VisitLive(uint64_t process_id, absl::FunctionRef<void(const heaptap_live&)> visit) const {
  return ForEachEntry<heaptap_live_key, heaptap_live>(skeleton_->maps.live,
                                                      [&](const heaptap_live_key& key, const heaptap_live& object) {
                                                        if (key.process_id == process_id && IsObject(object))
                                                          visit(object);
                                                      });
}

absl::StatusOr<heaptap_stack> KernelEntries::ReadStack(uint64_t stack_id) const {
  heaptap_stack stack;
  if (stack_id == HEAPTAP_NO_STACK) return absl::NotFoundError("sample without a stack");
  if (const int error = LookUp(skeleton_->maps.stacks, stack_id, stack); error != 0) {
    return KernelError(error, "reading a stack");
  }
  stack.count = std::min<uint32_t>(stack.count, HEAPTAP_MAX_FRAMES);
  return stack;
}

absl::StatusOr<ThreadName> KernelEntries::ReadThreadName(uint64_t process_id, uint32_t tid) const {
  const heaptap_thread_key key = {process_id, tid, 0};
  heaptap_thread_name value;
  if (const int error = LookUp(skeleton_->maps.names, key, value); error != 0) {
    return error == -ENOENT ? absl::NotFoundError("the thread has no name in the books")
                            : KernelError(error, "reading the name of a thread");
  }
  return ThreadName{std::string(value.name, strnlen(value.name, sizeof(value.name))), value.given != 0};
}

absl::StatusOr<std::vector<heaptap_record>> KernelEntries::ReadRecords(uint64_t process_id) const {
  std::vector<heaptap_record> records;
  absl::Status status =
      ForEachEntry<uint32_t, heaptap_record>(skeleton_->maps.records, [&](uint32_t, const heaptap_record& record) {
        if (record.number != 0 && record.process_id == process_id) records.push_back(record);
      });
  if (!status.ok()) return status;
  std::sort(records.begin(), records.end(),
            [](const heaptap_record& a, const heaptap_record& b) { return a.number < b.number; });
  return records;
}

Losses KernelEntries::ReadLosses(uint64_t process_id) const {
  Losses losses = {};
  for (uint32_t reason = HEAPTAP_NO_LOSS + 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    const heaptap_loss_key key = {process_id, reason, 0};
    LookUp(skeleton_->maps.losses, key, losses[reason]);
  }
  return losses;
}

std::map<uint64_t, Losses> KernelEntries::ReadAllLosses() const {
  std::map<uint64_t, Losses> losses;
  const auto add = [&](const heaptap_loss_key& key, const heaptap_loss& loss) {
    if (key.reason >= HEAPTAP_LOSS_REASONS) return;
    heaptap_loss& sum = losses[(key.process_id & HEAPTAP_LOSSES_OF_USER) != 0 ? 0 : key.process_id][key.reason];
    sum.events += loss.events;
    sum.weight += loss.weight;
  };
  ForEachEntry<heaptap_loss_key, heaptap_loss>(skeleton_->maps.losses, add).IgnoreError();
  return losses;
}

}  // namespace heaptap::bpf
