// SPDX-License-Identifier: Apache-2.0
//
// FinishStack on raw stacks of which all is hostile that a process has a say in: registers, memory, where it begins.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

#include "tests/fuzz/check.h"
#include "userspace/unwind/finish.h"
#include "userspace/unwind/stack_copy.h"

namespace {

using namespace heaptap;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider input(data, size);
  const auto number = [&] { return input.ConsumeIntegral<uint64_t>(); };
  heaptap_raw_stack raw = {};
  raw.memory_begin = input.ConsumeBool() ? 0x10000 : number();
  // Near the memory, mostly.
  const auto address = [&]() -> uint64_t {
    return input.ConsumeIntegralInRange(0, 3) != 0 ? raw.memory_begin + input.ConsumeIntegralInRange(-64, 1100)
                                                   : number();
  };
  raw.frame.rip = address();
  raw.frame.rsp = address();
  raw.frame.rbp = address();
  raw.frame.others = input.ConsumeIntegralInRange(0u, 2u);
  if (raw.frame.others == 2) raw.frame.others = address();
  for (__u64& word : raw.registers) word = address();
  raw.rip_bits = input.ConsumeIntegralInRange(0, 3);
  for (__u64& word : raw.missing) word = number();
  raw.stack.count = input.ConsumeIntegralInRange(1, HEAPTAP_MAX_FRAMES);
  raw.stack.end = HEAPTAP_STACK_UNFINISHED;
  for (uint32_t i = 0; i < raw.stack.count; i++) raw.stack.frames[i] = i + 2;
  if (raw.stack.count == HEAPTAP_MAX_FRAMES && input.ConsumeBool()) {
    raw.stack.frames[HEAPTAP_INNER_FRAMES] = HEAPTAP_FRAMES_LEFT_OUT;
  }

  const std::string rules = input.ConsumeRandomLengthString(256);
  const auto bytes = input.ConsumeRemainingBytes<uint8_t>();
  raw.memory_bytes = static_cast<uint32_t>(bytes.size());

  size_t asked = 0;
  const heaptap_stack stack =
      unwind::FinishStack(raw, unwind::StackCopy(bytes), [&](uint64_t) -> std::optional<uint32_t> {
        uint32_t rule = 0;
        const size_t at = asked++ * 4 % (rules.size() / 4 * 4 + 4);
        if (at + 4 > rules.size()) return std::nullopt;
        memcpy(&rule, rules.data() + at, sizeof(rule));
        return rule;
      });
  // The last frame goes if it is no code.
  const uint32_t kept = raw.stack.count - (stack.end == HEAPTAP_STACK_NO_CODE && raw.stack.count > 1 ? 1 : 0);
  Check(stack.count >= kept && stack.count <= HEAPTAP_MAX_FRAMES);
  Check(stack.end < HEAPTAP_STACK_ENDS && stack.end != HEAPTAP_STACK_UNFINISHED);
  Check(asked >= 1 && asked <= HEAPTAP_MAX_WALK);
  const uint32_t inner = std::min<uint32_t>(kept, HEAPTAP_INNER_FRAMES);
  Check(std::equal(raw.stack.frames, raw.stack.frames + inner, stack.frames));
  return 0;
}
