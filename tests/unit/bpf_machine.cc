// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/bpf_machine.h"

#include <cstddef>
#include <set>

#include "heaptap/contract.h"

namespace heaptap::harness {
namespace {

// SCRATCH_SLOTS of bpf/scratch.bpf.h; struct scratch begins with `claimed`.
constexpr uint32_t kScratchSlots = 8;
constexpr uint64_t kStackBytes = 4 * kPage;
constexpr uint64_t kNoEntries = 1 << 30;

// The losses that lose a sample (enum heaptap_loss_reason).
constexpr uint32_t kLostSamples[] = {HEAPTAP_LOSS_LIVE_FULL, HEAPTAP_LOSS_TALLIES_FULL, HEAPTAP_LOSS_BAD_SAMPLE,
                                     HEAPTAP_LOSS_LIVE_SHARE, HEAPTAP_LOSS_TALLIES_SHARE};

uint64_t LostSamples(const Losses& losses) {
  uint64_t sum = 0;
  for (const uint32_t reason : kLostSamples) {
    if (losses.count(reason) != 0) sum += losses.at(reason);
  }
  return sum;
}

void Add(Totals& sum, const heaptap_count& count) {
  sum.objects += count.objects;
  sum.bytes += count.bytes;
  sum.weight += count.weight;
}

bool IsObject(const heaptap_live& entry) {
  return entry.serial != HEAPTAP_LIVE_NONE && entry.serial != HEAPTAP_LIVE_CLAIMED;
}

}  // namespace

Machine::Machine() {
  kernel.mappings = {{.start = kCode, .end = kCode + kPage, .executable = true}};
  kernel.memory[kStackMemory].resize(kStackBytes);
  kernel.memory[kPending].resize(sizeof(heaptap_pending));
  kernel.memory[kArguments].resize(kPage);
  Counter(HEAPTAP_COUNTER_NEXT_PROCESS_ID) = 2;
  Counter(HEAPTAP_COUNTER_SWEEP_AT) = kNoEntries;
}

// --- processes -------------------------------------------------------------------------------------------------------

heaptap_process& Machine::Track(uint32_t tgid, uint32_t flags) {
  heaptap_process process = {};
  process.identity.id = next_id_;
  next_id_ += 2;
  process.flags = flags;
  process.marks = heaptap_first_marks(&process.triggers);
  kernel.Put("processes", tgid, process);
  RunAs(tgid);
  return *Process(tgid);
}

void Machine::RunAs(uint32_t tgid, uint32_t tid) {
  kernel.tgid = tgid;
  kernel.tid = tid == 0 ? tgid : tid;
}

void Machine::Fork(uint32_t parent, uint32_t child, bool shares_memory) {
  mm_struct memory[2] = {};
  task_struct tasks[2] = {};
  tasks[0].mm = &memory[0];
  tasks[0].tgid = static_cast<int>(parent);
  tasks[1].mm = &memory[shares_memory ? 0 : 1];
  tasks[1].tgid = static_cast<int>(child);
  uint64_t arguments[2] = {reinterpret_cast<uint64_t>(&tasks[0]), reinterpret_cast<uint64_t>(&tasks[1])};
  process_fork(reinterpret_cast<bpf_raw_tracepoint_args*>(arguments));
}

void Machine::BeginThread(uint32_t tgid) { Fork(tgid, tgid, true); }

void Machine::Exec(uint32_t tgid) {
  RunAs(tgid);
  task_struct task = {};
  task.tgid = static_cast<int>(tgid);
  uint64_t arguments[1] = {reinterpret_cast<uint64_t>(&task)};
  process_exec(reinterpret_cast<bpf_raw_tracepoint_args*>(arguments));
}

void Machine::Exit(uint32_t tgid, const Ending& ending) {
  RunAs(tgid, ending.tid);
  mm_struct memory = {};
  signal_struct signal = {};
  signal.live.counter = ending.other_threads;
  if (ending.is_of_group) signal.flags = SIGNAL_GROUP_EXIT;
  signal.group_exit_code = ending.group_code;
  if (ending.is_by_oom_kill) signal.oom_mm = &memory;
  task_struct task = {};
  task.pid = static_cast<int>(ending.tid);
  task.tgid = static_cast<int>(tgid);
  task.exit_code = ending.code;
  task.signal = &signal;
  uint64_t arguments[1] = {reinterpret_cast<uint64_t>(&task)};
  process_exit(reinterpret_cast<bpf_raw_tracepoint_args*>(arguments));
}

void Machine::Forget(uint64_t id) {
  kernel.Put("forgotten", id, uint8_t{1});
  std::vector<heaptap_tally_key> keys;
  kernel.map("tallies").ForEachEntry<heaptap_tally_key, heaptap_tally>([&](const auto& key, const auto&) {
    if (key.process_id == id) keys.push_back(key);
  });
  for (const heaptap_tally_key& key : keys) kernel.Remove("tallies", key);
  heaptap_tallies_deleted argument = {.tallies = keys.size()};
  tallies_deleted(&argument);
  for (uint32_t reason = 0; reason < HEAPTAP_LOSS_REASONS; reason++) {
    kernel.Remove("losses", heaptap_loss_key{id, reason, 0});
  }
  made_.erase(id);
}

// --- what the calling thread does ------------------------------------------------------------------------------------

pt_regs Machine::Registers(uint64_t stack) const {
  pt_regs registers = {};
  registers.ip = kCode + stack;
  registers.sp = kStackMemory;
  return registers;
}

uint64_t Machine::BooksOf(uint32_t tgid) {
  const heaptap_process* process = Process(tgid);
  if (process == nullptr || process->flags & HEAPTAP_PROCESS_IGNORED) return 0;
  if ((process->flags & HEAPTAP_PROCESS_SHARES_PARENT) == 0) return process->identity.id;
  return Id(process->identity.parent_tgid) == process->identity.id ? process->identity.id : 0;
}

void Machine::Take(int (*program)(pt_regs*), pt_regs& registers) {
  uint64_t id = BooksOf(kernel.tgid);
  EXPECT_EQ(program(&registers), 0);
  if (id == 0) id = BooksOf(kernel.tgid);
  if (id != 0) made_[id]++;
}

void Machine::Hold(uint32_t slot, const std::vector<heaptap_free>& frees) {
  heaptap_pending& pending = *reinterpret_cast<heaptap_pending*>(kernel.memory[kPending].data());
  heaptap_slot& place = pending.slots[slot - 1];
  place.count = static_cast<uint32_t>(frees.size());
  for (size_t i = 0; i < frees.size() && i < HEAPTAP_SLOT_FREES; i++) place.frees[i] = frees[i];
  pending.used = std::max<uint64_t>(pending.used, slot);
}

namespace {

uint64_t FreesOf(uint32_t slot) {
  return kPending + offsetof(heaptap_pending, slots) + (slot - 1) * sizeof(heaptap_slot) +
         offsetof(heaptap_slot, frees);
}

}  // namespace

uint64_t Machine::Fire(const Sample& sample) {
  pt_regs registers = Registers(sample.stack);
  registers.di = sample.address;
  registers.si = sample.size;
  registers.dx = sample.weight;
  registers.cx = sample.serial != 0 ? sample.serial : next_serial_++;
  if (sample.slot != 0) {
    Hold(sample.slot, sample.frees);
    registers.r8 = FreesOf(sample.slot);
    registers.r9 = HEAPTAP_WHERE(sample.slot, sample.frees.size());
  }
  if (!sample.frees.empty()) {
    registers.r10 = sample.frees[0].address;
    registers.r11 = sample.frees[0].serial;
  }
  const uint64_t serial = registers.cx;
  kernel.cookie = HEAPTAP_PROBE_SAMPLE_SITE;
  Take(probe_sample, registers);
  if (sample.slot != 0) Hold(sample.slot, {});
  return serial;
}

void Machine::Alloc(const Sample& sample) {
  pt_regs registers = Registers(sample.stack);
  registers.di = sample.address;
  registers.si = sample.size;
  registers.dx = sample.weight;
  registers.cx = sample.heap;
  registers.r8 = sample.name;
  kernel.cookie = sample.heap != 0 ? HEAPTAP_PROBE_HEAP_ALLOC_SITE : HEAPTAP_PROBE_ALLOC_SITE;
  Take(probe_sample, registers);
}

void Machine::Free(uint64_t address, uint64_t heap, uint64_t stack) {
  pt_regs registers = Registers(stack);
  registers.di = address;
  registers.si = heap;
  kernel.cookie = heap != 0 ? HEAPTAP_PROBE_HEAP_FREE_SITE : HEAPTAP_PROBE_FREE_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
}

void Machine::HandOver(const std::vector<heaptap_free>& frees, uint32_t slot, uint64_t stack) {
  Hold(slot, frees);
  pt_regs registers = Registers(stack);
  registers.di = FreesOf(slot);
  registers.si = HEAPTAP_WHERE(slot, frees.size());
  kernel.cookie = HEAPTAP_PROBE_FREES_SITE;
  EXPECT_EQ(probe_free(&registers), 0);
  Hold(slot, {});
}

void Machine::Call(int (*program)(pt_regs*), const void* bytes, uint64_t size) {
  ASSERT_TRUE(kernel.WriteMemory(kArguments, bytes, size));
  Call(program, kArguments);
}

void Machine::Call(int (*program)(pt_regs*), uint64_t argument) {
  pt_regs registers = Registers(1);
  registers.di = argument;
  EXPECT_EQ(program(&registers), 0);
}

// --- the books -------------------------------------------------------------------------------------------------------

heaptap_live* Machine::Live(uint64_t address, uint32_t tgid) {
  return kernel.Find<heaptap_live>("live", heaptap_live_key{Id(tgid), address});
}

uint64_t Machine::StackId(uint64_t address, uint32_t tgid) {
  const heaptap_live* entry = Live(address, tgid);
  return entry == nullptr ? HEAPTAP_NO_STACK : entry->stack_id;
}

heaptap_tally* Machine::Tally(uint64_t stack_id, uint32_t tid, uint32_t tgid) {
  return kernel.Find<heaptap_tally>("tallies", heaptap_tally_key{Id(tgid), stack_id, tid, 0});
}

Totals Machine::Allocated(uint64_t id) {
  Totals sum;
  kernel.map("tallies").ForEachEntry<heaptap_tally_key, heaptap_tally>([&](const auto& key, const auto& tally) {
    if (key.process_id == id) Add(sum, tally.allocated);
  });
  return sum;
}

Totals Machine::Freed(uint64_t id) {
  Totals sum;
  kernel.map("tallies").ForEachEntry<heaptap_tally_key, heaptap_tally>([&](const auto& key, const auto& tally) {
    if (key.process_id == id) Add(sum, tally.freed);
  });
  return sum;
}

Totals Machine::LiveObjects(uint64_t id) {
  Totals sum;
  kernel.map("live").ForEachEntry<heaptap_live_key, heaptap_live>([&](const auto& key, const auto& entry) {
    if (key.process_id == id && IsObject(entry)) Add(sum, {1, entry.size, entry.weight, 0});
  });
  return sum;
}

Losses Machine::LossesOf(uint64_t id) {
  Losses losses;
  kernel.map("losses").ForEachEntry<heaptap_loss_key, heaptap_loss>([&](const auto& key, const auto& loss) {
    if (key.process_id == id && loss.events != 0) losses[key.reason] += loss.events;
  });
  return losses;
}

Losses Machine::AllLosses() {
  Losses losses;
  kernel.map("losses").ForEachEntry<heaptap_loss_key, heaptap_loss>([&](const auto& key, const auto& loss) {
    if (loss.events != 0) losses[key.reason] += loss.events;
  });
  return losses;
}

std::vector<uint32_t> Machine::TakeKinds() {
  std::vector<uint32_t> kinds;
  for (const heaptap_event& event : kernel.TakeEvents()) kinds.push_back(event.kind);
  return kinds;
}

void Machine::ClaimScratch(bool is_claimed) {
  for (uint32_t slot = 0; slot < kScratchSlots; slot++) *kernel.Find<uint64_t>("scratch", slot) = is_claimed ? 1 : 0;
}

void Machine::ExpectBalanced() {
  std::set<uint64_t> ids;
  for (const auto& [id, count] : made_) ids.insert(id);
  kernel.map("tallies").ForEachEntry<heaptap_tally_key, heaptap_tally>([&](const auto& key, const auto&) {
    ids.insert(key.process_id);
    // No thread owns the tally of a heap, so it stays without its stack.
    const bool may_lack_stack = (key.tid & HEAPTAP_HEAP_TID) != 0 || key.stack_id == HEAPTAP_NO_STACK;
    EXPECT_TRUE(may_lack_stack || kernel.Find<heaptap_stack>("stacks", uint64_t{key.stack_id}) != nullptr);
  });
  uint64_t made = 0;
  uint64_t recorded = 0;
  for (const uint64_t id : ids) {
    const Totals allocated = Allocated(id);
    const Totals freed = Freed(id);
    const Totals live = LiveObjects(id);
    EXPECT_EQ(allocated.objects - freed.objects, live.objects) << "of " << id;
    EXPECT_EQ(allocated.bytes - freed.bytes, live.bytes) << "of " << id;
    EXPECT_EQ(allocated.weight - freed.weight, live.weight) << "of " << id;
    made += made_[id];
    recorded += allocated.objects;
  }
  EXPECT_EQ(recorded + LostSamples(AllLosses()), made);
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_TALLIES), kernel.map("tallies").size());
  EXPECT_EQ(Counter(HEAPTAP_COUNTER_LIVE_ENTRIES), kernel.map("live").size());
  kernel.map("processes").ForEach<heaptap_process>([&](const heaptap_process& process) { ExpectFigures(process); });
  for (uint32_t slot = 0; slot < kScratchSlots; slot++) EXPECT_EQ(*kernel.Find<uint64_t>("scratch", slot), 0);
}

void Machine::ExpectFigures(const heaptap_process& process) {
  if (has_own_figures || process.flags & HEAPTAP_PROCESS_SHARES_PARENT) return;
  const uint64_t id = process.identity.id;
  const bool has_figures = (process.flags & HEAPTAP_PROCESS_FIGURES) != 0;
  const Totals live = has_figures ? LiveObjects(id) : Totals{};
  uint64_t tallies = 0;
  kernel.map("tallies").ForEachEntry<heaptap_tally_key, heaptap_tally>(
      [&](const auto& key, const auto&) { tallies += key.process_id == id && has_figures; });
  EXPECT_EQ(process.figures.live_objects, live.objects);
  EXPECT_EQ(process.figures.live_weight, live.weight);
  EXPECT_EQ(process.figures.allocated_weight, has_figures ? Allocated(id).weight : 0);
  EXPECT_EQ(process.figures.tallies, tallies);
}

}  // namespace heaptap::harness
