// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/kernel_tables.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "userspace/base/clock.h"

namespace heaptap::recording {
namespace {

// Kernel memory for a node.
constexpr uint64_t kNodeBytes = 4096;

// A table that was used within this time keeps its place: loading two tables in turn would cost more than raw stacks.
constexpr uint64_t kResidence = 1'000'000'000;  // nanoseconds
constexpr absl::Duration kBalanceInterval = absl::Seconds(1);

// When unused tables make room, this fraction (1 / kReservePart) of the budget becomes free besides, so that not each
// table needs a search.
constexpr uint64_t kReservePart = 64;

// By then, the files of the processes that a collector takes over have been read, or the machine is so slow that raw
// stacks are the smaller problem.
constexpr absl::Duration kInheritance = absl::Seconds(10);

uint64_t Nodes(const unwind::FileTable& table) { return unwind::CountNodes(table.rows.size()); }

}  // namespace

uint64_t KernelBytes(uint64_t rows) { return unwind::CountNodes(rows) * kNodeBytes; }

KernelTables::KernelTables(bpf::UnwindMaps& maps, uint64_t budget)
    : maps_(maps), budget_nodes_(std::max<uint64_t>(budget / kNodeBytes, 1)), inherited_(maps) {}

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
  const base::OneThread one_thread(thread_);
  if (inherited_.Has(key)) return;
  SetState(key, HEAPTAP_FILE_WANTED);
  Leave(key);
}

void KernelTables::Remove(const heaptap_file_key& key) {
  const base::OneThread one_thread(thread_);
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
  if (use.number != 0) Unload(table, use);
  tables_.erase(entry);
}

void KernelTables::Place(const heaptap_file_key& key, const SharedTable& table, uid_t owner) {
  const base::OneThread one_thread(thread_);
  if (const auto known = files_.find(key); known != files_.end() && known->second != table) Leave(key);
  if (table == nullptr) return SetState(key, HEAPTAP_FILE_WITHOUT_TABLE);
  files_[key] = table;
  Use& use = tables_[table];
  use.owner = use.files.empty() || use.owner == owner ? owner : base::kRoot;
  use.files.insert(key);
  if (use.is_whole) return SetState(key, HEAPTAP_FILE_LOADED, table.get(), use.number);
  if (use.number == 0) Load(table, use);
  if (!use.is_whole) SetState(key, HEAPTAP_FILE_OUTSIDE);
}

bool KernelTables::IsLoaded(const SharedTable& table) const {
  const auto entry = tables_.find(table);
  return entry != tables_.end() && entry->second.number != 0;
}

void KernelTables::Load(const SharedTable& table, Use& use) {
  const uint64_t nodes = Nodes(*table);
  if (!MakeRoom(nodes, use.owner)) return;
  const uint32_t number = maps_.NewTable();
  const bool is_small = nodes <= kNodesAtOnce;
  if (is_small && !maps_.AddNodes(number, 0, unwind::MakeNodes(table->rows, 0, nodes)).ok()) return;
  use.number = number;
  used_nodes_ += nodes;
  is_small ? SetWhole(table, use) : loading_.push_back(table);
}

void KernelTables::SetWhole(const SharedTable& table, Use& use) {
  use.is_whole = true;
  for (const heaptap_file_key& key : use.files) SetState(key, HEAPTAP_FILE_LOADED, table.get(), use.number);
}

void KernelTables::LoadSome() {
  const base::OneThread one_thread(thread_);
  if (loading_.empty()) return;
  const SharedTable table = loading_.front();
  Use& use = tables_.at(table);
  const std::vector<heaptap_rows> piece = unwind::MakeNodes(table->rows, loaded_, kNodesAtOnce);
  if (!maps_.AddNodes(use.number, static_cast<uint32_t>(loaded_), piece).ok()) return Unload(table, use);
  loaded_ += piece.size();
  if (loaded_ < Nodes(*table)) return;
  StopLoading(table);
  SetWhole(table, use);
}

void KernelTables::StopLoading(const SharedTable& table) {
  const auto found = std::ranges::find(loading_, table);
  if (found == loading_.begin()) loaded_ = 0;
  loading_.erase(found);
}

bool KernelTables::MakeRoom(uint64_t nodes, uid_t owner) {
  if (nodes > budget_nodes_) return false;
  if (used_nodes_ + inherited_.nodes() + nodes <= budget_nodes_) return true;
  inherited_.RemoveAll();
  if (used_nodes_ + nodes <= budget_nodes_) return true;
  const auto refused = refused_.find(owner);
  if (refused != refused_.end() && refused->second <= nodes) return false;
  if (Displace(nodes, owner)) return true;
  refused_[owner] = nodes;
  return false;
}

bool KernelTables::Displace(uint64_t nodes, uid_t owner) {
  struct Loaded {
    uint64_t last_used;
    SharedTable table;
    Use* use;
  };
  std::vector<Loaded> oldest;
  std::map<uid_t, uint64_t> held;  // nodes, by owner
  for (auto& [table, use] : tables_) {
    if (use.owner != base::kRoot && use.number != 0) held[use.owner] += Nodes(*table);
    if (!use.is_whole) continue;
    uint64_t last_used = 0;
    for (const heaptap_file_key& key : use.files) {
      const std::optional<heaptap_file> known = maps_.ReadFile(key);
      if (known.has_value()) last_used = std::max<uint64_t>(last_used, known->last_used);
    }
    oldest.push_back({last_used, table, &use});
  }
  std::ranges::stable_sort(oldest, {}, &Loaded::last_used);
  const uint64_t now = base::Now().nanoseconds();
  const auto is_unused = [now](const Loaded& one) { return one.last_used + kResidence < now; };
  // A user whose tables take too much of the budget cannot displace the tables of other such users.
  const uint64_t most = budget_nodes_ / kUserPart;
  const bool may_displace = owner == base::kRoot || held[owner] + nodes <= most;
  const auto must_go = [&](const Loaded& one) {
    return may_displace && !is_unused(one) && one.use->owner != base::kRoot && held[one.use->owner] > most;
  };
  std::vector<Loaded> leaving;
  uint64_t room = budget_nodes_ - used_nodes_;
  const auto collect = [&](uint64_t wanted, absl::FunctionRef<bool(const Loaded&)> may_go) {
    for (const Loaded& one : oldest) {
      if (room >= wanted || !may_go(one)) continue;
      leaving.push_back(one);
      room += Nodes(*one.table);
      if (one.use->owner != base::kRoot) held[one.use->owner] -= Nodes(*one.table);
    }
  };
  collect(nodes + budget_nodes_ / kReservePart, is_unused);
  collect(nodes, must_go);
  if (room < nodes) return false;
  for (const Loaded& one : leaving) Unload(one.table, *one.use);
  return true;
}

void KernelTables::Unload(const SharedTable& table, Use& use) {
  // First make the table unreachable; a program that is reading it meets a missing node and sends a raw stack.
  for (const heaptap_file_key& key : use.files) SetState(key, HEAPTAP_FILE_OUTSIDE);
  const uint64_t nodes = Nodes(*table);
  uint64_t loaded = nodes;
  if (!use.is_whole) {
    loaded = table == loading_.front() ? loaded_ : 0;
    StopLoading(table);
  }
  maps_.RemoveTable(use.number, static_cast<uint32_t>(loaded));
  used_nodes_ -= nodes;
  use.number = 0;
  use.is_whole = false;
}

void KernelTables::Balance(base::Instant now) {
  const base::OneThread one_thread(thread_);
  if (now < balanced_ + kBalanceInterval) return;
  balanced_ = now;
  refused_.clear();
  if (inherited_until_ == base::Instant::InfinitePast()) inherited_until_ = now + kInheritance;
  if (now >= inherited_until_) inherited_.RemoveAll();
  for (const auto& [key, table] : files_) {
    Use& use = tables_.at(table);
    if (use.number == 0 && Fits(*table) && IsInUse(key)) Load(table, use);
  }
}

void KernelTables::SetState(const heaptap_file_key& key, uint32_t state, const unwind::FileTable* table,
                            uint32_t number) {
  heaptap_file file = {};
  file.state = state;
  if (table != nullptr) {
    file.table = number;
    file.base = table->base;
    file.levels = unwind::CountLevels(table->rows.size());
  }
  if (const std::optional<heaptap_file> known = maps_.ReadFile(key); known.has_value()) {
    file.last_used = known->last_used;
  }
  // If the map is full, the programs treat the file as one without a table, and count a loss.
  maps_.SetFile(key, file).IgnoreError();
  inherited_.Leave(key);
}

}  // namespace heaptap::recording
