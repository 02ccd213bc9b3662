// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/bpf_harness.h"

#include <errno.h>
#include <stdlib.h>

#include <algorithm>
#include <utility>

namespace heaptap::harness {
namespace {

Kernel* g_kernel = nullptr;

// The size of the header of a ring's record.
constexpr uint64_t kRecordHeader = 8;

// Fills fresh memory, so that missing writes show.
constexpr int kUnwritten = 0xa5;

const host_map& Declared(std::string_view name) {
  for (uint32_t i = 0; i < host_map_count; i++) {
    if (name == host_maps[i].name) return host_maps[i];
  }
  abort();
}

}  // namespace

void* Map::Find(const void* key) {
  const std::string bytes(static_cast<const char*>(key), declared_->key_bytes);
  if (IsArray()) {
    uint32_t index;
    memcpy(&index, key, sizeof(index));
    if (index >= max_entries) return nullptr;
    Bytes& value = values_[bytes];
    if (value == nullptr) value = MakeValue();
    return value.get();
  }
  const auto found = values_.find(bytes);
  return found == values_.end() ? nullptr : found->second.get();
}

long Map::Update(const void* key, const void* value, uint64_t flags) {
  void* old = Find(key);
  if (IsArray()) {
    if (old == nullptr) return -E2BIG;
    if (flags == BPF_NOEXIST) return -EEXIST;
    memcpy(old, value, declared_->value_bytes);
    return 0;
  }
  if (old != nullptr && flags == BPF_NOEXIST) return -EEXIST;
  if (old == nullptr && flags == BPF_EXIST) return -ENOENT;
  if (old == nullptr && values_.size() >= max_entries) return -E2BIG;
  Bytes& place = values_[std::string(static_cast<const char*>(key), declared_->key_bytes)];
  if (place != nullptr) deleted_.push_back(std::move(place));
  place = MakeValue();
  memcpy(place.get(), value, declared_->value_bytes);
  return 0;
}

long Map::Delete(const void* key) {
  const auto found = values_.find(std::string(static_cast<const char*>(key), declared_->key_bytes));
  if (found == values_.end()) return -ENOENT;
  deleted_.push_back(std::move(found->second));
  values_.erase(found);
  return 0;
}

void Map::Clear() {
  for (auto& [key, value] : values_) deleted_.push_back(std::move(value));
  values_.clear();
}

uint64_t Ring::used() const {
  uint64_t sum = 0;
  for (const Record& record : records_) sum += (record.size + kRecordHeader + 7) / 8 * 8;
  return sum;
}

void* Ring::Reserve(uint64_t size) {
  if (used() + size + kRecordHeader > bytes) return nullptr;
  records_.push_back({.memory = std::make_unique<uint64_t[]>((size + 7) / 8), .size = size});
  memset(records_.back().memory.get(), kUnwritten, size);
  return records_.back().memory.get();
}

bool Ring::Submit(void* record) {
  for (Record& one : records_) {
    if (one.memory.get() == record) return one.is_submitted = true;
  }
  return false;
}

std::vector<std::string> Ring::Take() {
  std::vector<std::string> taken;
  consumed_ = produced();
  for (const Record& record : records_) {
    if (!record.is_submitted) abort();
    taken.emplace_back(reinterpret_cast<const char*>(record.memory.get()), record.size);
  }
  records_.clear();
  return taken;
}

Kernel::Kernel() {
  g_kernel = this;
  process.identity.id = 2;
  for (uint32_t i = 0; i < host_map_count; i++) {
    const host_map& declared = host_maps[i];
    if (declared.type == BPF_MAP_TYPE_RINGBUF) {
      rings_.try_emplace(declared.map, declared.max_entries);
    } else {
      maps_.try_emplace(declared.map, declared);
    }
  }
  // Made by the collector.
  for (uint32_t reason = 1; reason < HEAPTAP_LOSS_REASONS; reason++) {
    Put("losses", heaptap_loss_key{0, reason, 0}, heaptap_loss{});
  }
}

Kernel::~Kernel() { g_kernel = nullptr; }

Map& Kernel::map(std::string_view name) { return maps_.at(Declared(name).map); }
Ring& Kernel::ring(std::string_view name) { return rings_.at(Declared(name).map); }

Map* Kernel::FindMap(const void* address) {
  const auto found = maps_.find(address);
  if (found == maps_.end()) abort();
  return &found->second;
}

Ring* Kernel::FindRing(const void* address) {
  const auto found = rings_.find(address);
  if (found == rings_.end()) abort();
  return &found->second;
}

void Kernel::WriteWord(uint64_t address, uint64_t word) {
  const auto piece = std::prev(memory.upper_bound(address));
  const uint64_t offset = address - piece->first;
  if (offset + sizeof(word) > piece->second.size()) abort();
  memcpy(piece->second.data() + offset, &word, sizeof(word));
}

bool Kernel::ReadMemory(uint64_t address, void* to, uint64_t size) const {
  auto* bytes = static_cast<uint8_t*>(to);
  while (size > 0) {
    auto piece = memory.upper_bound(address);
    if (piece == memory.begin()) return false;
    --piece;
    const uint64_t offset = address - piece->first;
    if (offset >= piece->second.size()) return false;
    const uint64_t count = std::min(size, piece->second.size() - offset);
    memcpy(bytes, piece->second.data() + offset, count);
    bytes += count;
    address += count;
    size -= count;
  }
  return true;
}

host_context Kernel::Context(const Registers& registers) {
  const uint64_t(&numbers)[16] = registers.numbers;
  host_context context = {};
  context.registers.ax = numbers[0];
  context.registers.dx = numbers[1];
  context.registers.cx = numbers[2];
  context.registers.bx = numbers[3];
  context.registers.si = numbers[4];
  context.registers.di = numbers[5];
  context.registers.bp = numbers[6];
  context.registers.sp = numbers[7];
  context.registers.r8 = numbers[8];
  context.registers.r9 = numbers[9];
  context.registers.r10 = numbers[10];
  context.registers.r11 = numbers[11];
  context.registers.r12 = numbers[12];
  context.registers.r13 = numbers[13];
  context.registers.r14 = numbers[14];
  context.registers.r15 = numbers[15];
  context.registers.ip = registers.rip;
  context.process = &process;
  context.tgid = tgid;
  return context;
}

heaptap_stack Kernel::Walk(const Registers& registers, uint64_t* id) {
  host_context context = Context(registers);
  heaptap_stack stack = {};
  const uint64_t taken = host_take_stack(&context, &stack);
  if (id != nullptr) *id = taken;
  return stack;
}

std::optional<heaptap_stack> Kernel::Sample(const Registers& registers, uint64_t* id) {
  host_context context = Context(registers);
  heaptap_tally_key key = {.process_id = process.identity.id, .stack_id = 0, .tid = tgid, .reserved = 0};
  host_find_tally(&context, &key, 1);
  if (id != nullptr) *id = key.stack_id;
  const auto* stack = Find<heaptap_stack>("stacks", uint64_t{key.stack_id});
  return stack == nullptr ? std::nullopt : std::optional(*stack);
}

uint64_t Kernel::FindRule(uint64_t pc) {
  host_context context = Context({});
  return host_find_rule(&context, pc);
}

std::vector<heaptap_event> Kernel::TakeEvents() {
  std::vector<heaptap_event> events;
  for (const std::string& bytes : ring("events").Take()) memcpy(&events.emplace_back(), bytes.data(), bytes.size());
  return events;
}

std::vector<RawStack> Kernel::TakeRawStacks() {
  std::vector<RawStack> stacks;
  for (const std::string& bytes : ring("raw_stacks").Take()) {
    RawStack& raw = stacks.emplace_back();
    memcpy(&raw.header, bytes.data(), sizeof(raw.header));
    const std::string memory = bytes.substr(sizeof(raw.header), raw.header.memory_bytes);
    raw.memory.assign(memory.begin(), memory.end());
  }
  return stacks;
}

}  // namespace heaptap::harness

using heaptap::harness::g_kernel;
using heaptap::harness::Mapping;

namespace {

const char* NameOf(const void* map) {
  for (uint32_t i = 0; i < host_map_count; i++) {
    if (host_maps[i].map == map) return host_maps[i].name;
  }
  abort();
}

}  // namespace

// --- the helpers -----------------------------------------------------------------------------------------------------

void* host_map_lookup_elem(const void* map, const void* key) {
  g_kernel->calls.lookup++;
  if (g_kernel->before_lookup) g_kernel->before_lookup(NameOf(map));
  return g_kernel->FindMap(map)->Find(key);
}

long host_map_update_elem(const void* map, const void* key, const void* value, __u64 flags) {
  if (g_kernel->before_update) g_kernel->before_update(NameOf(map));
  return g_kernel->FindMap(map)->Update(key, value, flags);
}

long host_map_delete_elem(const void* map, const void* key) { return g_kernel->FindMap(map)->Delete(key); }

void* host_ringbuf_reserve(const void* map, __u64 size, __u64) { return g_kernel->FindRing(map)->Reserve(size); }

void host_ringbuf_submit(void* record, __u64) {
  for (const char* name : {"events", "raw_stacks"}) {
    if (g_kernel->ring(name).Submit(record)) return;
  }
  abort();
}

__u64 host_ringbuf_query(const void* map, __u64 what) {
  const heaptap::harness::Ring* ring = g_kernel->FindRing(map);
  if (what == BPF_RB_AVAIL_DATA) return ring->used();
  if (what == BPF_RB_RING_SIZE) return ring->bytes;
  if (what == BPF_RB_CONS_POS) return ring->consumed();
  if (what == BPF_RB_PROD_POS) return ring->produced();
  abort();
}

long host_probe_read_user(void* to, __u32 size, const void* from) {
  g_kernel->calls.read_user++;
  if (g_kernel->ReadMemory(reinterpret_cast<uint64_t>(from), to, size)) return 0;
  memset(to, 0, size);
  return -EFAULT;
}

// A locked-down kernel.
long host_probe_write_user(void*, const void*, __u32) { return -EPERM; }

long host_probe_read_kernel(void* to, __u32 size, const void* from) {
  memcpy(to, from, size);
  return 0;
}

long host_get_current_comm(void* to, __u32 size) {
  memset(to, 0, size);
  return 0;
}

__u64 host_get_current_pid_tgid(void) { return uint64_t{g_kernel->tgid} << 32 | g_kernel->tid; }

__u64 host_ktime_get_ns(void) { return ++g_kernel->time; }

struct task_struct* host_get_current_task_btf(void) {
  static mm_struct___seqcount memory;
  static task_struct task;
  task.mm = reinterpret_cast<mm_struct*>(&memory);
  memory.mm_lock_seq.sequence = static_cast<uint32_t>(g_kernel->lock_sequence);
  return &task;
}

long host_find_vma(__u64 address, struct vm_area_struct** found) {
  g_kernel->calls.find_mapping++;
  if (g_kernel->before_lookup) g_kernel->before_lookup("mappings");
  if (g_kernel->busy > 0) {
    g_kernel->busy--;
    return -EBUSY;
  }
  static super_block block;
  static inode node;
  static file mapped;
  static mm_struct memory;
  static vm_area_struct area;
  for (const Mapping& mapping : g_kernel->mappings) {
    if (address < mapping.start || address >= mapping.end) continue;
    if (mapping.file.has_value()) {
      block = {mapping.file->device};
      node = {mapping.file->inode, mapping.file->generation, &block};
      mapped = {&node};
    }
    memory.start_stack = g_kernel->arguments;
    memory.context.vdso = mapping.is_vdso ? reinterpret_cast<void*>(mapping.start) : nullptr;
    area = {.vm_start = mapping.start,
            .vm_end = mapping.end,
            .vm_flags = mapping.executable ? uint64_t{4} : 0,
            .vm_pgoff = mapping.file_offset / heaptap::harness::kPage,
            .vm_mm = &memory,
            .vm_file = mapping.file.has_value() ? &mapped : nullptr};
    *found = &area;
    return 0;
  }
  return -ENOENT;
}
