// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/raw_stacks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/unwind/finish.h"
#include "userspace/unwind/stack_copy.h"

namespace heaptap::recording {
namespace {

// A rule that ends a walk.
const uint32_t kUnknownRule = heaptap_unwind_rule(HEAPTAP_CFA_UNKNOWN, 0, 0, 0, 0);

// The size of a part of a stack's memory with its entry in OfOne::parts.
constexpr size_t kPartBytes = HEAPTAP_CHUNK_BYTES + unwind::StackCopier::kOverhead + 2 * sizeof(uint64_t);

// The size of a stack that waits, without the parts of its memory.
size_t OwnBytes(const bpf::RawStack& stack) {
  // The rest of its entry, and what an allocator adds.
  constexpr size_t kOverhead = 128;
  return sizeof(stack) + kOverhead + stack.memory.parts().size() * sizeof(unwind::StackCopy::Part);
}

}  // namespace

const elf::Mapping* RawStacks::TryFinish(const bpf::RawStack& stack, pid_t pid, const AddressSpace& space,
                                         bool may_wait) {
  const elf::Mapping* waits_for = nullptr;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space.mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    // The kernel asks only for the first missing table; the stack may need others.
    const bool is_unknown = mapping->inode != 0 && !tables_.HasFileOf(*mapping);
    if ((is_unknown && tables_.EnterMapped(pid, *mapping)) || tables_.IsBeingRead(*mapping)) {
      waits_for = mapping;
      return kUnknownRule;
    }
    return tables_.FindRule(*mapping, address);
  };
  heaptap_stack finished = unwind::FinishStack(stack.header, stack.memory, find_rule);
  if (waits_for != nullptr) tables_.Hasten(*waits_for);
  if (waits_for != nullptr && may_wait) return waits_for;
  if (waits_for != nullptr) finished.end = HEAPTAP_STACK_NO_TABLE;
  maps_.ReplaceStack(stack.header.stack_id, finished);
  return nullptr;
}

void RawStacks::Finish(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space) {
  const auto known = of_each_.find(stack.header.process_id);
  const size_t of_this = known == of_each_.end() ? 0 : known->second.bytes;
  const bool has_room = of_this + bytes_ < kMaxBytes;
  const elf::Mapping* waits_for = TryFinish(stack, pid, *space, has_room);
  if (waits_for == nullptr) return;
  Add(stack);
  waiting_.push_back({std::move(stack), pid, std::move(space), waits_for, base::Now()});
}

void RawStacks::Retry() {
  if (tables_read_ == tables_.tables_read()) return;
  tables_read_ = tables_.tables_read();
  const base::Instant now = base::Now();
  std::erase_if(waiting_, [&](Waiting& one) {
    const bool may_wait = now - one.since < kMaxWait;
    if (may_wait && tables_.IsBeingRead(*one.waits_for)) return false;
    one.waits_for = TryFinish(one.stack, one.pid, *one.space, may_wait);
    if (one.waits_for != nullptr) return false;
    Drop(one.stack);
    return true;
  });
}

void RawStacks::Add(const bpf::RawStack& stack) {
  OfOne& of_one = of_each_[stack.header.process_id];
  size_t added = OwnBytes(stack);
  for (const unwind::StackCopy::Part& part : stack.memory.parts()) {
    if (of_one.parts[part.get()]++ == 0) added += kPartBytes;
  }
  of_one.stacks++;
  of_one.bytes += added;
  bytes_ += added;
}

void RawStacks::Drop(const bpf::RawStack& stack) {
  const auto entry = of_each_.find(stack.header.process_id);
  OfOne& of_one = entry->second;
  size_t dropped = OwnBytes(stack);
  for (const unwind::StackCopy::Part& part : stack.memory.parts()) {
    const auto users = of_one.parts.find(part.get());
    if (--users->second != 0) continue;
    of_one.parts.erase(users);
    dropped += kPartBytes;
  }
  of_one.bytes -= dropped;
  bytes_ -= dropped;
  if (--of_one.stacks == 0) of_each_.erase(entry);
}

bool RawStacks::IsWorthWaiting(uint64_t process_id, base::Instant now) const {
  if (!IsWaiting(process_id)) return false;
  const auto oldest =
      std::ranges::find_if(waiting_, [&](const Waiting& one) { return one.stack.header.process_id == process_id; });
  return now - oldest->since < kPatience;
}

}  // namespace heaptap::recording
