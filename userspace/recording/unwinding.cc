// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/unwinding.h"

#include <string.h>

#include <algorithm>
#include <utility>

namespace heaptap::recording {

Unwinding::Unwinding(const UnwindTables::Means& means, const AddressSpaces& spaces, uint64_t budget, Answer answer)
    : hands_(means.hands),
      identify_(means.identify),
      spaces_(spaces),
      answer_(std::move(answer)),
      tables_(means, budget),
      stacks_(means.maps, tables_, [this](pid_t pid, const elf::Mapping& mapping) { EnterMapped(pid, mapping); }) {
  tables_.EnterVdso();
}

void Unwinding::BeginBatch() {
  tables_.BeginBatch();
  not_there_.clear();
  HandleTablesRead();
}

void Unwinding::HandleMapping(const bpf::MappingEvent& event) {
  tables_.Enter({event.mapping.inode, KernelDevice(event.mapping), event.generation}, event.pid, event.mapping);
}

void Unwinding::HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news) {
  heaptap_file_key key;
  memcpy(&key, event.memory, sizeof(key));
  const auto enter = [&](const elf::Mapping& mapping) {
    return mapping.start <= event.argument && event.argument < mapping.end && tables_.Enter(key, event.tgid, mapping);
  };
  for (const bpf::MappingEvent& mapped : news) {
    if (mapped.kind == bpf::MappingEvent::kMap && mapped.pid == static_cast<pid_t>(event.tgid) && enter(mapped.mapping))
      return;
  }
  const AddressSpace* space = spaces_.Find(event.tgid);
  const elf::Mapping* known = space == nullptr ? nullptr : space->mappings.Find(event.argument);
  if (known != nullptr && enter(*known)) return;
  // The known mappings may be outdated: unmapping sends no event.
  absl::StatusOr<std::vector<elf::Mapping>> mappings = hands_.ReadExecutableMappings(event.tgid);
  if (mappings.ok() && std::any_of(mappings->begin(), mappings->end(), enter)) return;
  if (mappings.ok()) {
    for (const elf::Mapping& mapping : *mappings) {
      const bool is_there = mapping.start <= event.argument && event.argument < mapping.end;
      const bool is_it = mapping.inode == key.inode && KernelDevice(mapping) == key.device;
      if (is_there && is_it) return tables_.GiveUp(key, mapping);
    }
  }
  tables_.Refuse(key);
}

void Unwinding::HandleQuestion(uint64_t process_id, pid_t pid, uint32_t asked) {
  const AddressSpace* const space = spaces_.Find(pid);
  const auto is_being_read = [this](const elf::Mapping& mapping) { return tables_.IsBeingRead(mapping); };
  if (space != nullptr && std::any_of(space->mappings.begin(), space->mappings.end(), is_being_read)) {
    asked_[process_id] = {pid, asked};
  } else {
    answer_(process_id, asked);
  }
}

void Unwinding::HandleTablesRead() {
  if (tables_read_ == tables_.tables_read()) return;
  tables_read_ = tables_.tables_read();
  stacks_.Retry();
  for (const auto& [process_id, question] : std::exchange(asked_, {})) {
    HandleQuestion(process_id, question.pid, question.asked);
  }
}

void Unwinding::EnterMapped(pid_t pid, const elf::Mapping& mapping) {
  if (not_there_.contains({pid, mapping.start})) return;
  const absl::StatusOr<worker::MappedFile> seen = hands_.Look(identify_, pid, mapping);
  if (seen.ok()) {
    tables_.PrepareMapped(ToSeenFile(*seen, pid, mapping), mapping);
  } else {
    not_there_.insert({pid, mapping.start});
  }
}

void Unwinding::HandleRawStack(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space) {
  stacks_.Finish(std::move(stack), pid, std::move(space));
}

}  // namespace heaptap::recording
