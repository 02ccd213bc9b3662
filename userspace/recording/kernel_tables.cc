// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/kernel_tables.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

// Kernel memory for a node.
constexpr uint64_t kNodeBytes = 4096;

// A table that was used within this time keeps its place: loading two tables in turn would cost more than raw stacks.
constexpr uint64_t kResidence = 1'000'000'000;  // nanoseconds
constexpr absl::Duration kBalanceInterval = absl::Seconds(1);

// By then, the files of the processes that a collector takes over have been read, or the machine is so slow that raw
// stacks are the smaller problem.
constexpr absl::Duration kInheritance = absl::Seconds(10);

uint64_t Nodes(const unwind::FileTable& table) { return unwind::CountNodes(table.rows.size()); }

}  // namespace

uint64_t KernelBytes(uint64_t rows) { return unwind::CountNodes(rows) * kNodeBytes; }

KernelTables::KernelTables(bpf::UnwindMaps& maps, uint64_t budget)
    : maps_(maps),
      budget_nodes_(std::max<uint64_t>(budget / kNodeBytes, 1)),
      inherited_(maps),
      next_number_(inherited_.next_number()) {}

uint64_t KernelTables::budget_bytes() const { return budget_nodes_ * kNodeBytes; }
uint64_t KernelTables::bytes() const { return (used_nodes_ + inherited_.nodes()) * kNodeBytes; }

bool KernelTables::Fits(const unwind::FileTable& table) const { return Nodes(table) <= budget_nodes_; }

bool KernelTables::IsPlaced(const heaptap_file_key& key) const {
  const std::optional<heaptap_file> file = maps_.ReadFile(key);
  return file.has_value() && file->state != HEAPTAP_FILE_WANTED;
}

bool KernelTables::IsInUse(const heaptap_file_key& key) const {
  const std::optional<heaptap_file> file = maps_.ReadFile(key);
  return file.has_value() && file->last_used + kResidence >= base::Now().nanoseconds();
}

void KernelTables::SetWanted(const heaptap_file_key& key) {
  if (inherited_.Has(key)) return;
  SetState(key, HEAPTAP_FILE_WANTED);
  Leave(key);
}

void KernelTables::Remove(const heaptap_file_key& key) {
  maps_.RemoveFile(key);
  inherited_.Leave(key);
  Leave(key);
}

void KernelTables::Leave(const heaptap_file_key& key) {
  const auto file = files_.find(key);
  if (file == files_.end()) return;
  const auto entry = tables_.find(file->second);
  files_.erase(file);
  auto& [table, use] = *entry;
  use.files.erase(key);
  if (!use.files.empty()) return;
  if (use.number != 0) Unload(*table, use);
  tables_.erase(entry);
}

void KernelTables::Place(const heaptap_file_key& key, const SharedTable& table) {
  if (const auto known = files_.find(key); known != files_.end() && known->second != table) Leave(key);
  if (table == nullptr) return SetState(key, HEAPTAP_FILE_WITHOUT_TABLE);
  files_[key] = table;
  Use& use = tables_[table];
  use.files.insert(key);
  if (use.number != 0) return SetState(key, HEAPTAP_FILE_LOADED, table.get(), use.number);
  if (!Load(*table, use)) SetState(key, HEAPTAP_FILE_OUTSIDE);
}

bool KernelTables::IsLoaded(const SharedTable& table) const {
  const auto entry = tables_.find(table);
  return entry != tables_.end() && entry->second.number != 0;
}

bool KernelTables::Load(const unwind::FileTable& table, Use& use) {
  const uint64_t nodes = Nodes(table);
  if (!MakeRoom(nodes)) return false;
  const uint32_t number = next_number_++;
  if (!maps_.AddTable(number, unwind::MakeTree(table.rows).nodes).ok()) return false;
  use.number = number;
  used_nodes_ += nodes;
  // All files that share the table use it now.
  for (const heaptap_file_key& key : use.files) SetState(key, HEAPTAP_FILE_LOADED, &table, number);
  return true;
}

bool KernelTables::MakeRoom(uint64_t nodes) {
  if (nodes > budget_nodes_) return false;
  if (used_nodes_ + inherited_.nodes() + nodes <= budget_nodes_) return true;
  inherited_.RemoveAll();
  if (used_nodes_ + nodes <= budget_nodes_) return true;
  struct Loaded {
    uint64_t last_used;
    const unwind::FileTable* table;
    Use* use;
  };
  std::vector<Loaded> oldest;
  const uint64_t now = base::Now().nanoseconds();
  for (auto& [table, use] : tables_) {
    if (use.number == 0) continue;
    uint64_t last_used = 0;
    for (const heaptap_file_key& key : use.files) {
      const std::optional<heaptap_file> known = maps_.ReadFile(key);
      if (known.has_value()) last_used = std::max<uint64_t>(last_used, known->last_used);
    }
    if (last_used + kResidence < now) oldest.push_back({last_used, table.get(), &use});
  }
  std::ranges::stable_sort(oldest, {}, &Loaded::last_used);
  uint64_t room = budget_nodes_ - used_nodes_;
  size_t count = 0;
  while (count < oldest.size() && room < nodes) room += Nodes(*oldest[count++].table);
  if (room < nodes) return false;
  for (size_t i = 0; i < count; i++) Unload(*oldest[i].table, *oldest[i].use);
  return true;
}

void KernelTables::Unload(const unwind::FileTable& table, Use& use) {
  // First make the table unreachable; a program that is reading it meets a missing node and sends a raw stack.
  for (const heaptap_file_key& key : use.files) SetState(key, HEAPTAP_FILE_OUTSIDE);
  const auto nodes = static_cast<uint32_t>(Nodes(table));
  maps_.RemoveTable(use.number, nodes);
  used_nodes_ -= nodes;
  use.number = 0;
}

void KernelTables::Balance(base::Instant now) {
  if (now < balanced_ + kBalanceInterval) return;
  balanced_ = now;
  if (inherited_until_ == base::Instant::InfinitePast()) inherited_until_ = now + kInheritance;
  if (now >= inherited_until_) inherited_.RemoveAll();
  for (const auto& [key, table] : files_) {
    Use& use = tables_.at(table);
    if (use.number == 0 && Fits(*table) && IsInUse(key)) Load(*table, use);
  }
}

void KernelTables::SetState(const heaptap_file_key& key, uint32_t state, const unwind::FileTable* table,
                            uint32_t number) {
  heaptap_file file = {};
  file.state = state;
  if (table != nullptr) {
    file.table = number;
    file.base = table->base;
    for (uint64_t nodes = 1; nodes < table->rows.size(); nodes *= HEAPTAP_ROWS_PER_NODE) file.levels++;
    file.levels = std::max<uint32_t>(file.levels, 1);
  }
  if (const std::optional<heaptap_file> known = maps_.ReadFile(key); known.has_value()) {
    file.last_used = known->last_used;
  }
  // If the map is full, the programs treat the file as one without a table, and count a loss.
  maps_.SetFile(key, file).IgnoreError();
  inherited_.Leave(key);
}

}  // namespace heaptap::recording
