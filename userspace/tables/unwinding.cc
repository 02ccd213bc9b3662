// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/unwinding.h"

#include <string.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "userspace/bpf/file_key.h"

namespace heaptap::recording {
namespace {

// The most mappings that wait for the build-ids of their files.
constexpr size_t kMaxUnidentified = 1 << 14;

}  // namespace

Unwinding::Unwinding(const UnwindTables::Means& means, AddressSpaces& spaces, uint64_t budget, Answer answer)
    : spaces_(spaces),
      answer_(std::move(answer)),
      tables_(means, budget),
      moved_code_(means.orders, spaces_),
      stacks_(means.maps, tables_) {
  tables_.EnterVdso();
}

void Unwinding::BeginBatch() {
  tables_.BeginBatch();
  moved_code_.BeginBatch();
  HandleTablesRead();
}

void Unwinding::HandleMapping(const bpf::MappingEvent& event) {
  const heaptap_file_key key = {event.mapping.inode, bpf::KernelDevice(event.mapping), event.mapping.generation};
  tables_.Enter(key, event.pid, event.mapping);
  IdentifyFile(key, event.pid, event.mapping);
}

void Unwinding::IdentifyFile(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  if (const std::optional<std::string> build_id = tables_.BuildId(key); build_id.has_value()) {
    spaces_.SetBuildId(pid, mapping, *build_id);
  } else if (unidentified_.size() < kMaxUnidentified) {
    elf::Mapping place = mapping;
    place.path.clear();
    unidentified_.insert_or_assign({pid, mapping.start}, std::pair(key, std::move(place)));
  }
}

void Unwinding::IdentifyFiles(pid_t pid) {
  const std::shared_ptr<const AddressSpace> space = spaces_.Share(pid);
  if (space == nullptr) return;
  for (const elf::Mapping& mapping : space->mappings) {
    if (mapping.inode == 0 || !mapping.build_id.empty()) continue;
    spaces_.SetBuildId(pid, mapping, tables_.BuildIdOf(mapping));
  }
}

void Unwinding::HandleTableWanted(const heaptap_event& event, const std::vector<bpf::MappingEvent>& news) {
  heaptap_file_key key;
  memcpy(&key, event.memory, sizeof(key));
  const auto pid = static_cast<pid_t>(event.tgid);
  std::vector<elf::Mapping> mappings;
  for (const bpf::MappingEvent& mapped : news) {
    if (mapped.kind == bpf::MappingEvent::kMap && mapped.pid == pid && mapped.mapping.start <= event.argument &&
        event.argument < mapped.mapping.end) {
      mappings.push_back(mapped.mapping);
    }
  }
  const AddressSpace* space = spaces_.Find(pid);
  const elf::Mapping* known = space == nullptr ? nullptr : space->mappings.Find(event.argument);
  if (known != nullptr) mappings.push_back(*known);
  tables_.Find(key, pid, event.argument, std::move(mappings),
               [this, key, pid](const elf::Mapping& mapping) { IdentifyFile(key, pid, mapping); });
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
  tables_.HandleLooks();
  if (tables_read_ == tables_.tables_read()) return;
  tables_read_ = tables_.tables_read();
  stacks_.Retry();
  for (const auto& [place, file] : std::exchange(unidentified_, {})) {
    IdentifyFile(file.first, place.first, file.second);
  }
  for (const auto& [process_id, question] : std::exchange(asked_, {})) {
    HandleQuestion(process_id, question.pid, question.asked);
  }
}

void Unwinding::HandleRawStack(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space) {
  stacks_.Finish(std::move(stack), pid, std::move(space));
}

}  // namespace heaptap::recording
