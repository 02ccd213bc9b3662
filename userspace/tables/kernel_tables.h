// SPDX-License-Identifier: Apache-2.0
//
// Which unwind tables are in the kernel, and which file uses which of them.
//
// Tables in the kernel have a budget. When it is used up, the least recently used tables make room. A table that was
// used a moment ago stays, unless the tables of its user take more than a quarter of the budget. Large tables are
// loaded in pieces, between which other work goes on. The tables of an earlier collector serve until they are replaced,
// for ten seconds. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_TABLES_KERNEL_TABLES_H_
#define HEAPTAP_USERSPACE_TABLES_KERNEL_TABLES_H_

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "bpf/unwind.h"
#include "userspace/base/clock.h"
#include "userspace/base/thread_checker.h"
#include "userspace/base/user_ids.h"
#include "userspace/bpf/file_key.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/tables/inherited_tables.h"
#include "userspace/tables/table_reader.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::recording {

// Kernel memory for a table of `rows` rows.
uint64_t KernelBytes(uint64_t rows);

class KernelTables {
 public:
  // The most nodes that are loaded at once, which takes some milliseconds. The table of almost every file has no more.
  static constexpr size_t kNodesAtOnce = 256;
  // The tables of one user's files may keep this fraction (1 / kUserPart) of the budget while other users need room.
  static constexpr uint64_t kUserPart = 4;

  // `maps` must outlive this object. `budget`: bytes of kernel memory.
  KernelTables(bpf::UnwindMaps& maps, uint64_t budget);

  // The table of the file is being read; meanwhile programs send raw stacks through its code, or use the table of an
  // earlier collector.
  void SetWanted(const heaptap_file_key& key);
  // Enters a file with its table, which goes into the kernel if there is room, at once or by LoadSome. `owner`: of the
  // file; root's files have no bound.
  void Place(const heaptap_file_key& key, const SharedTable& table, uid_t owner = base::kRoot);
  // The file is unknown from now on: the next program that meets it asks for its table.
  void Remove(const heaptap_file_key& key);
  // Loads the next piece of a table that is loaded in pieces, if there is one.
  void LoadSome();
  bool IsLoading() const { return !loading_.empty(); }
  // Tries again to load the tables of files that are used. Call it from time to time; most calls do nothing.
  void Balance(base::Instant now);

  // Whether the kernel knows what to do with the file. A program may have removed the file because it could not send
  // its question, or the map had no room.
  bool IsPlaced(const heaptap_file_key& key) const;
  // Whether a program has used the file a moment ago.
  bool IsInUse(const heaptap_file_key& key) const;
  // Whether the table is loaded, or is being loaded.
  bool IsLoaded(const SharedTable& table) const;
  // Whether the table is not larger than the budget.
  bool Fits(const unwind::FileTable& table) const;

  uint64_t budget_bytes() const;
  uint64_t bytes() const;

 private:
  struct Use {
    uint32_t number = 0;  // in the kernel; 0: it is not there
    bool is_whole = false;
    uid_t owner = base::kRoot;  // of all its files; root, if they have several
    std::set<heaptap_file_key, bpf::FileKeyLess> files = {};
  };
  // Loads a table, or begins to, if there is room.
  void Load(const SharedTable& table, Use& use);
  // All files that share a table use it from now on.
  void SetWhole(const SharedTable& table, Use& use);
  bool MakeRoom(uint64_t nodes, uid_t owner);
  bool Displace(uint64_t nodes, uid_t owner);
  void Unload(const SharedTable& table, Use& use);
  void StopLoading(const SharedTable& table);
  // The file does not use its table any more. A table that no file uses is unloaded.
  void Leave(const heaptap_file_key& key);
  // `number`: of the table, if it is loaded.
  void SetState(const heaptap_file_key& key, uint32_t state, const unwind::FileTable* table = nullptr,
                uint32_t number = 0);

  bpf::UnwindMaps& maps_;
  const uint64_t budget_nodes_;
  InheritedTables inherited_;
  base::Instant inherited_until_ = base::Instant::InfinitePast();    // set by the first call of Balance
  uint64_t used_nodes_ = 0;                                          // without those of inherited_
  std::map<heaptap_file_key, SharedTable, bpf::FileKeyLess> files_;  // without those that have no table
  std::map<SharedTable, Use> tables_;                                // of these files
  std::deque<SharedTable> loading_;                                  // tables loaded in pieces; the first one now
  size_t loaded_ = 0;                                                // nodes of the first one
  // The least number of nodes for which there was no room, by owner, since the last Balance. Each search reads the
  // state of all files.
  std::map<uid_t, uint64_t> refused_;
  base::Instant balanced_ = base::Instant::InfinitePast();
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_KERNEL_TABLES_H_
