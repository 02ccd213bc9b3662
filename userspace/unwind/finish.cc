// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/finish.h"

#include <algorithm>

namespace heaptap::unwind {
namespace {

struct Copy {
  const heaptap_raw_stack* raw;
  const StackCopy& memory;
  bool ended = false;  // a read went beyond the copy
};

bool IsMissing(const heaptap_raw_stack& raw, uint64_t offset) {
  const uint64_t chunk = offset / HEAPTAP_CHUNK_BYTES;
  return chunk < HEAPTAP_MOST_STACK_CHUNKS &&
         (raw.missing[chunk / HEAPTAP_CHUNKS_PER_WORD] >> chunk % HEAPTAP_CHUNKS_PER_WORD & 1) != 0;
}

int ReadCopy(void* context, uint64_t address, __u64* word) {
  Copy& copy = *static_cast<Copy*>(context);
  const uint64_t offset = address - copy.raw->memory_begin;
  uint64_t read;
  if (!copy.memory.ReadWord(offset, read) || IsMissing(*copy.raw, offset) ||
      IsMissing(*copy.raw, offset + sizeof(read) - 1)) {
    copy.ended = true;
    return -1;
  }
  *word = read;
  return 0;
}

int ReadRegister(void* context, uint32_t number, __u64* word) {
  *word = static_cast<Copy*>(context)->raw->registers[number & 15];
  return 0;
}

}  // namespace
}  // namespace heaptap::unwind

#define HEAPTAP_UNWIND_READ(context, address, word) heaptap::unwind::ReadCopy(context, address, word)
#define HEAPTAP_UNWIND_REGISTER(context, number, word) heaptap::unwind::ReadRegister(context, number, word)
#include "bpf/unwind_step.h"

namespace heaptap::unwind {

heaptap_stack FinishStack(const heaptap_raw_stack& raw, const StackCopy& memory, const RuleFinder& find_rule) {
  Copy copy = {&raw, memory};
  heaptap_stack stack = raw.stack;
  stack.count = std::clamp<uint32_t>(stack.count, 1, HEAPTAP_MAX_FRAMES);
  heaptap_stack_reopen(&stack);
  heaptap_unwind_frame frame = raw.frame;
  uint32_t rip_bits = raw.rip_bits;
  for (;;) {
    std::optional<uint32_t> rule = find_rule(frame.rip - (rip_bits & HEAPTAP_RIP_RETURN));
    if (rule == 0u && rip_bits != 0) rule = heaptap_unwind_start_rule(find_rule(frame.rip).value_or(0));
    if (!rule.has_value()) {
      stack.end = HEAPTAP_STACK_NO_CODE;
      break;
    }
    copy.ended = false;
    if (heaptap_unwind_add(&stack, &frame, &rip_bits, *rule, &copy) != 0) {
      if (copy.ended) stack.end = HEAPTAP_STACK_RAW_ENDED;
      break;
    }
  }
  // An address outside of all code is not a frame.
  const bool without_last = stack.end == HEAPTAP_STACK_NO_CODE && stack.count > 1;
  __u64 space[HEAPTAP_OUTER_FRAMES];
  heaptap_stack_close(&stack, without_last ? 1 : 0, space);
  return stack;
}

}  // namespace heaptap::unwind
