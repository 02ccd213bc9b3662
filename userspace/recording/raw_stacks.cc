// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/raw_stacks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/unwind/finish.h"

namespace heaptap::recording {
namespace {

// A rule that ends a walk.
const uint32_t kUnknownRule = heaptap_unwind_rule(HEAPTAP_CFA_UNKNOWN, 0, 0, 0, 0);

}  // namespace

const elf::Mapping* RawStacks::TryFinish(const heaptap_raw_stack& header, absl::Span<const uint8_t> memory, pid_t pid,
                                         const AddressSpace& space, bool may_wait) {
  const elf::Mapping* waits_for = nullptr;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space.mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    // The kernel asks only for the first missing table; the stack may need others.
    if (mapping->inode != 0 && !tables_.HasFileOf(*mapping)) enter_(pid, *mapping);
    if (tables_.IsBeingRead(*mapping)) {
      waits_for = mapping;
      return kUnknownRule;
    }
    return tables_.FindRule(*mapping, address);
  };
  heaptap_stack finished = unwind::FinishStack(header, memory, find_rule);
  if (waits_for != nullptr && may_wait) return waits_for;
  if (waits_for != nullptr) finished.end = HEAPTAP_STACK_NO_TABLE;
  maps_.ReplaceStack(header.stack_id, finished);
  return nullptr;
}

void RawStacks::Finish(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space) {
  const uint64_t process_id = stack.header.process_id;
  const auto known = of_each_.find(process_id);
  const bool has_room = bytes_ < kMaxBytes && (known == of_each_.end() || known->second.bytes() < kMaxBytesOfOne);
  const elf::Mapping* waits_for = TryFinish(stack.header, stack.memory, pid, *space, has_room);
  if (waits_for == nullptr) return;
  OfOne& of_one = of_each_[process_id];
  const size_t before = of_one.bytes();
  StackMemory::Copy memory = of_one.memory.Keep(stack.memory);
  of_one.stacks++;
  bytes_ += of_one.bytes() - before;
  waiting_.push_back({stack.header, std::move(memory), pid, std::move(space), waits_for, base::Now()});
}

void RawStacks::Retry() {
  if (tables_read_ == tables_.tables_read()) return;
  tables_read_ = tables_.tables_read();
  const base::Instant now = base::Now();
  std::erase_if(waiting_, [&](Waiting& one) {
    const bool may_wait = now - one.since < kMaxWait;
    if (may_wait && tables_.IsBeingRead(*one.waits_for)) return false;
    one.waits_for = TryFinish(one.header, StackMemory::Get(one.memory), one.pid, *one.space, may_wait);
    if (one.waits_for != nullptr) return false;
    Drop(one);
    return true;
  });
}

void RawStacks::Drop(const Waiting& one) {
  const auto of_one = of_each_.find(one.header.process_id);
  const size_t before = of_one->second.bytes();
  of_one->second.memory.Drop(one.memory);
  of_one->second.stacks--;
  bytes_ -= before - of_one->second.bytes();
  if (of_one->second.stacks == 0) of_each_.erase(of_one);
}

bool RawStacks::IsWorthWaiting(uint64_t process_id, base::Instant now) const {
  if (!IsWaiting(process_id)) return false;
  const auto oldest =
      std::ranges::find_if(waiting_, [&](const Waiting& one) { return one.header.process_id == process_id; });
  return now - oldest->since < kPatience;
}

}  // namespace heaptap::recording
