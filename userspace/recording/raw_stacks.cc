// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/raw_stacks.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "userspace/base/clock.h"
#include "userspace/unwind/finish.h"

namespace heaptap::recording {
namespace {

size_t BytesOf(const bpf::RawStack& stack) { return sizeof(stack) + stack.memory.size(); }

}  // namespace

bool RawStacks::TryFinish(const bpf::RawStack& stack, pid_t pid, const AddressSpace& space, bool may_wait) {
  bool waits = false;
  const auto find_rule = [&](uint64_t address) -> std::optional<uint32_t> {
    const elf::Mapping* mapping = space.mappings.Find(address);
    if (mapping == nullptr) return std::nullopt;
    // The kernel asks only for the first missing table; the stack may need others.
    if (mapping->inode != 0 && !tables_.HasFileOf(*mapping)) enter_(pid, *mapping);
    waits |= tables_.IsBeingRead(*mapping);
    return tables_.FindRule(*mapping, address);
  };
  const heaptap_stack finished = unwind::FinishStack(stack.header, stack.memory, find_rule);
  if (waits && may_wait) return false;
  maps_.ReplaceStack(stack.header.stack_id, finished);
  return true;
}

void RawStacks::Finish(bpf::RawStack stack, pid_t pid, std::shared_ptr<const AddressSpace> space) {
  const size_t bytes = BytesOf(stack);
  const auto of_one = bytes_of_.find(stack.header.process_id);
  const bool has_room =
      bytes_ + bytes <= kMaxBytes && (of_one == bytes_of_.end() || of_one->second + bytes <= kMaxBytesOfOne);
  if (TryFinish(stack, pid, *space, has_room)) return;
  bytes_ += bytes;
  bytes_of_[stack.header.process_id] += bytes;
  waiting_.push_back({std::move(stack), pid, std::move(space), base::Now()});
}

void RawStacks::Retry() {
  if (tables_read_ == tables_.tables_read()) return;
  tables_read_ = tables_.tables_read();
  const base::Instant now = base::Now();
  std::erase_if(waiting_, [&](const Waiting& one) {
    if (!TryFinish(one.stack, one.pid, *one.space, now - one.since < kMaxWait)) return false;
    const size_t bytes = BytesOf(one.stack);
    bytes_ -= bytes;
    const auto of_one = bytes_of_.find(one.stack.header.process_id);
    of_one->second -= bytes;
    if (of_one->second == 0) bytes_of_.erase(of_one);
    return true;
  });
}

bool RawStacks::IsWorthWaiting(uint64_t process_id, base::Instant now) const {
  if (!IsWaiting(process_id)) return false;
  const auto oldest =
      std::ranges::find_if(waiting_, [&](const Waiting& one) { return one.stack.header.process_id == process_id; });
  return now - oldest->since < kPatience;
}

}  // namespace heaptap::recording
