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
    Value& value = values_[bytes];
    if (value.bytes == nullptr) value.bytes = MakeValue();
    return value.bytes.get();
  }
  const auto found = values_.find(bytes);
  if (found == values_.end()) return nullptr;
  found->second.last_use = ++uses_;
  return found->second.bytes.get();
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
  if (old == nullptr && values_.size() >= max_entries) {
    if (declared_->type != BPF_MAP_TYPE_LRU_HASH || values_.empty()) return -E2BIG;
    DropOldest();
  }
  Value& place = values_[std::string(static_cast<const char*>(key), declared_->key_bytes)];
  if (place.bytes != nullptr) deleted_.push_back(std::move(place.bytes));
  place = {MakeValue(), ++uses_};
  memcpy(place.bytes.get(), value, declared_->value_bytes);
  return 0;
}

void Map::DropOldest() {
  const auto oldest = std::min_element(values_.begin(), values_.end(), [](const auto& a, const auto& b) {
    return a.second.last_use < b.second.last_use;
  });
  deleted_.push_back(std::move(oldest->second.bytes));
  values_.erase(oldest);
}

std::vector<std::string> Map::Keys() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_) keys.push_back(key);
  return keys;
}

long Map::Delete(const void* key) {
  const auto found = values_.find(std::string(static_cast<const char*>(key), declared_->key_bytes));
  if (found == values_.end()) return -ENOENT;
  deleted_.push_back(std::move(found->second.bytes));
  values_.erase(found);
  return 0;
}

void Map::Clear() {
  for (auto& [key, value] : values_) deleted_.push_back(std::move(value.bytes));
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

std::vector<std::string> Ring::Take(size_t most) {
  std::vector<std::string> taken;
  const uint64_t before = produced();
  const auto end = records_.begin() + static_cast<ptrdiff_t>(std::min(most, records_.size()));
  for (auto record = records_.begin(); record != end; ++record) {
    if (!record->is_submitted) abort();
    taken.emplace_back(reinterpret_cast<const char*>(record->memory.get()), record->size);
  }
  records_.erase(records_.begin(), end);
  consumed_ = before - used();
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

Kernel& Kernel::Current() {
  if (g_kernel == nullptr) abort();
  return *g_kernel;
}

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
  if (!WriteMemory(address, &word, sizeof(word))) abort();
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

bool Kernel::WriteMemory(uint64_t address, const void* from, uint64_t size) {
  auto piece = memory.upper_bound(address);
  if (piece == memory.begin()) return false;
  --piece;
  const uint64_t offset = address - piece->first;
  if (offset > piece->second.size() || size > piece->second.size() - offset) return false;
  memcpy(piece->second.data() + offset, from, size);
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
