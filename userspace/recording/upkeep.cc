// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/upkeep.h"

#include <set>
#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "userspace/process/facts.h"

namespace heaptap::recording {
namespace {

// The state of younger processes is not saved: most of them end soon.
constexpr absl::Duration kSaveAfter = absl::Seconds(1);

// Time for saving states, in each second.
constexpr absl::Duration kSaveTime = absl::Milliseconds(100);

// Time for reading mappings again after lost mapping events, in each second.
constexpr absl::Duration kRepairTime = absl::Milliseconds(100);

}  // namespace

absl::Status Upkeep::SaveStates(TargetStates& states, absl::Time now) {
  const absl::Time end = absl::Now() + kSaveTime;
  // Continues where the last call stopped.
  auto next = targets_.upper_bound(last_saved_);
  for (size_t left = targets_.size(); left > 0; left--, ++next) {
    if (next == targets_.end()) next = targets_.begin();
    auto& [process_id, target] = *next;
    if (target.is_saved || target.ending.has_value() || now - target.since < kSaveAfter) continue;
    const AddressSpace* space = dumps_.Space(target);
    if (space == nullptr) continue;
    if (absl::Status status = states.Save(target, *space); !status.ok()) return status;
    target.is_saved = true;
    last_saved_ = process_id;
    if (absl::Now() > end) break;
  }
  return absl::OkStatus();
}

// Any process can map files so fast that mapping events of all processes are lost.
void Upkeep::RepairSpaces() {
  if (const uint64_t lost = mapping_events_.lost(); lost != mappings_lost_) {
    mappings_lost_ = lost;
    for (auto& [process_id, target] : targets_) target.has_lost_mappings = true;
    spaces_.DropEnded();
  }
  const absl::Time end = absl::Now() + kRepairTime;
  for (auto& [process_id, target] : targets_) {
    if (!target.has_lost_mappings || target.ending.has_value()) continue;
    target.has_lost_mappings = false;
    const absl::StatusOr<std::vector<elf::Mapping>> mappings = hands_.ReadExecutableMappings(target.pid);
    if (!mappings.ok() || !books_.processes().IsCurrent(target.pid, process_id)) continue;
    if (spaces_.Find(target.pid) == nullptr) {
      const absl::StatusOr<process::Facts> facts = hands_.Facts(target.pid);
      spaces_.Keep(target.pid, {.mappings = {}, .executable = facts.ok() ? facts->executable : ""});
    }
    spaces_.Hold(target.pid);
    for (const elf::Mapping& mapping : *mappings) {
      bpf::MappingEvent event = {};
      event.kind = bpf::MappingEvent::kMap;
      event.pid = target.pid;
      event.mapping = mapping;
      spaces_.Apply(event);
    }
    target.is_saved = false;
    if (absl::Now() > end) return;
  }
}

void Upkeep::FoldThreads(const std::map<uint64_t, std::vector<bpf::TallyEntry>>& tallies) {
  for (const auto& [process_id, entries] : tallies) {
    const Target* target = targets_.Find(process_id);
    if (target == nullptr || target->ending.has_value()) continue;
    // Read before checking which threads live.
    const absl::StatusOr<heaptap_process> process = books_.processes().Read(target->pid);
    if (!process.ok() || process->identity.id != process_id) continue;
    const auto may_be_folded = [](const bpf::TallyEntry& entry) {
      return entry.tid != 0 && entry.tally.allocated.objects == entry.tally.freed.objects;
    };
    std::set<uint32_t> tids;
    for (const bpf::TallyEntry& entry : entries) {
      if (may_be_folded(entry)) tids.insert(entry.tid);
    }
    const absl::StatusOr<std::map<uint32_t, std::string>> living =
        hands_.ThreadNames(target->pid, std::vector<uint32_t>(tids.begin(), tids.end()));
    if (!living.ok()) continue;
    for (const bpf::TallyEntry& entry : entries) {
      if (may_be_folded(entry) && !living->contains(entry.tid)) {
        books_.Fold(target->pid, process_id, entry, process->threads_begun);
      }
    }
  }
}

}  // namespace heaptap::recording
