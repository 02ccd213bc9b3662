// SPDX-License-Identifier: Apache-2.0
//
// The eBPF programs' walk, their own code, in a process whose registers, memory, mappings and tables are all hostile;
// then the collector's end of the same stack.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/unit/bpf_harness.h"
#include "userspace/unwind/finish.h"

namespace {

using namespace heaptap;
using harness::kPage;

constexpr uint64_t kMaxReads = 16 * HEAPTAP_MAX_WALK + HEAPTAP_MOST_STACK_CHUNKS;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data, size) {}

  uint64_t Number(uint64_t least, uint64_t most) { return data_.ConsumeIntegralInRange<uint64_t>(least, most); }
  bool Choice() { return data_.ConsumeBool(); }
  uint32_t Word() { return data_.ConsumeIntegral<uint32_t>(); }
  // Near something that is there, mostly.
  uint64_t Address() {
    static constexpr uint64_t kNear[] = {0x10000, 0x20000, 0x7ff000000000, uint64_t{1} << 47, uint64_t{1} << 63, 0};
    const uint64_t what = Number(0, 7);
    return what < 6 ? kNear[what] + Number(0, 4 * kPage) : data_.ConsumeIntegral<uint64_t>();
  }
  std::string Bytes(size_t most) { return data_.ConsumeRandomLengthString(most); }

 private:
  FuzzedDataProvider data_;
};

void MakeProcess(Input& input, harness::Kernel& kernel) {
  for (uint64_t count = input.Number(0, 5); count > 0; count--) {
    harness::Mapping mapping = {.start = input.Address() & ~(kPage - 1)};
    mapping.end = mapping.start + input.Number(1, 8) * kPage;
    mapping.executable = input.Choice();
    mapping.is_vdso = input.Choice();
    if (input.Choice()) mapping.file = heaptap_file_key{input.Number(0, 2), 1, 0};
    mapping.file_offset = input.Number(0, 3) * kPage;
    kernel.mappings.push_back(mapping);
  }
  uint64_t end = 0;
  for (const uint64_t begin : {0x10000ull, 0x20000ull, 0x7ff000000000ull, (1ull << 47) - 64}) {
    if (!input.Choice() || begin < end) continue;
    std::vector<uint8_t> memory(input.Number(1, 4 * kPage));
    // Addresses that lead somewhere, at any place.
    for (uint64_t words = input.Number(0, 40); words > 0; words--) {
      const uint64_t word = input.Address();
      const uint64_t at = input.Number(0, memory.size() - 1);
      memcpy(memory.data() + at, &word, std::min(sizeof(word), memory.size() - at));
    }
    end = begin + memory.size();
    kernel.memory[begin] = std::move(memory);
  }
  kernel.lock_sequence = input.Number(0, 3);
  kernel.arguments = input.Address();
  kernel.busy = static_cast<int>(input.Number(0, 7));
}

void MakeTables(Input& input, harness::Kernel& kernel) {
  for (uint64_t inode = 0; inode < 3; inode++) {
    if (!input.Choice()) continue;
    heaptap_file file = {};
    file.state = input.Number(0, 4);
    file.table = input.Number(0, 2);
    file.levels = input.Choice() ? input.Number(1, 3) : input.Word();
    file.base = input.Choice() ? input.Number(0, 3) * kPage : input.Address();
    kernel.Put("files", heaptap_file_key{inode, 1, 0}, file);
  }
  for (uint64_t count = input.Number(0, 4); count > 0; count--) {
    heaptap_rows node;
    std::fill(std::begin(node.rows), std::end(node.rows), heaptap_row{~0u, 0});
    const uint64_t rows = input.Number(0, 20);
    for (uint64_t i = 0; i < rows; i++) {
      node.rows[i] = {
          static_cast<uint32_t>(input.Choice() ? 16 * i : input.Number(0, 5 * kPage)),
          static_cast<uint32_t>(input.Choice() ? input.Number(0, 9) | input.Number(0, 3) << 16 : input.Word())};
    }
    if (input.Choice()) std::fill(node.rows + rows, std::end(node.rows), heaptap_row{input.Word(), input.Word()});
    kernel.Put("rows", heaptap_rows_key{static_cast<uint32_t>(input.Number(0, 2)), input.Choice() ? 0 : input.Word()},
               node);
  }
}

void CheckStack(const heaptap_stack& stack, uint64_t rip) {
  Check(stack.count >= 1 && stack.count <= HEAPTAP_MAX_FRAMES);
  Check(stack.end < HEAPTAP_STACK_ENDS);
  Check(stack.frames[0] == rip);
  if (stack.end == HEAPTAP_STACK_TRUNCATED) Check(stack.count == HEAPTAP_MAX_FRAMES);
}

// Every chunk of a copy is the process's memory, or is missing there.
void CheckMemory(harness::Kernel& kernel, const harness::RawStack& raw) {
  for (uint64_t at = 0; at < raw.memory.size(); at += HEAPTAP_CHUNK_BYTES) {
    const uint64_t chunk = at / HEAPTAP_CHUNK_BYTES;
    std::vector<uint8_t> memory(HEAPTAP_CHUNK_BYTES);
    const bool is_there = kernel.ReadMemory(raw.header.memory_begin + at, memory.data(), memory.size());
    const bool is_missing =
        (raw.header.missing[chunk / HEAPTAP_CHUNKS_PER_WORD] >> chunk % HEAPTAP_CHUNKS_PER_WORD & 1) != 0;
    Check(is_there || is_missing);
    Check(is_missing || std::equal(memory.begin(), memory.end(), raw.memory.begin() + static_cast<ptrdiff_t>(at)));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  harness::Kernel kernel;
  MakeProcess(input, kernel);
  MakeTables(input, kernel);
  harness::Registers registers;
  for (uint64_t& word : registers.numbers) word = input.Address();
  registers.rip = input.Address();
  if (input.Choice()) kernel.ring("events").bytes = 64;
  if (input.Choice()) kernel.ring("raw_stacks").bytes = input.Number(0, 1 << 17);
  if (input.Choice()) kernel.map("files").max_entries = 1;

  for (int i = 0; i < 3; i++) {
    kernel.calls = {};
    const std::optional<heaptap_stack> stack = kernel.Sample(registers);
    Check(stack.has_value());
    CheckStack(*stack, registers.rip);
    Check(kernel.calls.find_mapping <= 3 * HEAPTAP_MAX_WALK + 1);
    Check(kernel.calls.read_user <= kMaxReads);
    const std::vector<harness::RawStack> raw_stacks = kernel.TakeRawStacks();
    Check(raw_stacks.size() == (stack->end == HEAPTAP_STACK_UNFINISHED));
    for (const harness::RawStack& raw : raw_stacks) {
      const heaptap_raw_stack& header = raw.header;
      CheckStack(header.stack, registers.rip);
      Check(header.memory_bytes == raw.memory.size());
      Check(header.frame.rip == header.stack.frames[header.stack.count - 1]);
      Check(header.memory_begin <= header.frame.rsp && header.frame.rsp - header.memory_begin < HEAPTAP_CHUNK_BYTES);
      CheckMemory(kernel, raw);
      uint64_t rules = 0;
      const heaptap_stack whole =
          unwind::FinishStack(header, unwind::StackCopy(raw.memory), [&](uint64_t) -> std::optional<uint32_t> {
            rules++;
            return input.Choice() ? std::optional<uint32_t>(input.Word()) : std::nullopt;
          });
      CheckStack(whole, registers.rip);
      Check(whole.end != HEAPTAP_STACK_UNFINISHED && rules <= HEAPTAP_MAX_WALK);
      // The last frame goes if it is no code.
      const uint32_t kept = header.stack.count - (whole.end == HEAPTAP_STACK_NO_CODE && header.stack.count > 1 ? 1 : 0);
      Check(whole.count >= kept);
      const uint32_t inner = std::min<uint32_t>(kept, HEAPTAP_INNER_FRAMES);
      Check(std::equal(header.stack.frames, header.stack.frames + inner, whole.frames));
    }
    kernel.TakeEvents();
    kernel.busy = 0;
    kernel.lock_sequence += input.Number(0, 1);
  }
  return 0;
}
