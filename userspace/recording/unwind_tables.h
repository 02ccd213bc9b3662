// SPDX-License-Identifier: Apache-2.0
//
// The unwind tables of all files that recorded processes map, and which of them are in the kernel.
//
// Files are identified by the kernel's key. Files with equal tables, such as a library in two containers, share one:
// tables are compared, because a build-id is only a file's claim. Tables in the kernel have a budget. When it is used
// up, the least recently used tables make room, unless they were used a moment ago; stacks through code without a table
// in the kernel are finished here.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_UNWIND_TABLES_H_
#define HEAPTAP_USERSPACE_RECORDING_UNWIND_TABLES_H_

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/elf/mappings.h"
#include "userspace/recording/seen_file.h"
#include "userspace/unwind/file_table.h"
#include "userspace/worker/errands.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/hands.h"

namespace heaptap::recording {

// Kernel memory for a table of `rows` rows.
uint64_t KernelBytes(uint64_t rows);

// The device as in a heaptap_file_key.
uint32_t KernelDevice(const elf::Mapping& mapping);

class UnwindTables {
 public:
  // What it needs of others, which must outlive this object.
  struct Means {
    bpf::UnwindMaps& maps;
    int identify;  // descriptor of this program
    worker::Hands& hands;
    worker::Errands& errands;
  };
  // `budget`: bytes of kernel memory. Beyond `max_files` files, unused ones are forgotten, because processes can create
  // any number of files.
  UnwindTables(const Means& means, uint64_t budget, size_t max_files = HEAPTAP_DEFAULT_FILES / 2);

  // Begins to read the table of a file that will be entered soon.
  void ReadAhead(const SeenFile& file);
  bool HasFileOf(const elf::Mapping& mapping) const { return FindFile(mapping) != nullptr; }
  // Enters a file that will be mapped.
  void Prepare(const SeenFile& file);
  // Enters a file that is mapped already, as /proc/PID/maps shows.
  void PrepareMapped(const SeenFile& file, const elf::Mapping& mapping);

  // Whether the table of the mapped file is being read. Meanwhile programs send raw stacks through its code.
  bool IsBeingRead(const elf::Mapping& mapping) const;
  // Whether the table of any file is being read.
  bool IsReading() const { return !being_read_.empty(); }
  // Tables read so far; a raw stack that waits for one may be finished when this changes.
  uint64_t tables_read() const { return tables_read_; }

  // Enters the file that a process maps: a worker reads its table, which then goes into the kernel if there is room.
  // Call it for each mapping event and for each HEAPTAP_EVENT_TABLE_WANTED. A known file costs a look-up and a stat,
  // and is read again if it was rewritten. An unusable file is reported once and counts as having no table. False: the
  // file cannot be opened, because the process is gone or maps something else by now.
  bool Enter(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  void EnterVdso();
  // The number of the next table; later ones follow.
  void StartFrom(uint32_t number) { next_number_ = number; }
  // The file is mapped but cannot be opened: it counts as having no table.
  void GiveUp(const heaptap_file_key& key, const elf::Mapping& mapping);
  // The file cannot be opened because its process is gone or maps another file by now: the next process that meets it
  // asks again.
  void Refuse(const heaptap_file_key& key) { maps_.RemoveFile(key); }

  // The rule at an address in a mapping; 0 if there is none, or the file was not entered.
  uint32_t FindRule(const elf::Mapping& mapping, uint64_t address) const;

  // To be called before each batch of mapping events: within a batch, a file is looked at once.
  void BeginBatch() { looked_at_.clear(); }
  // Tries again to place tables that found no room. Call it from time to time; most calls do nothing.
  void Balance(absl::Time now);

  uint64_t kernel_bytes() const;

 private:
  struct Table {
    unwind::FileTable rows;
    uint32_t number = 0;  // in the kernel; 0: not loaded
    uint32_t nodes = 0;
  };
  using Key = std::tuple<uint32_t, uint64_t, uint32_t>;  // device, inode, generation
  using Version = worker::FileVersion;
  struct File {
    std::string name;
    std::shared_ptr<Table> table;  // null: none
    Version version;
    bool is_being_read = false;
  };
  static Key MakeKey(const heaptap_file_key& key);
  // Whether the file has changed since it was entered.
  bool WasRewritten(const Key& key, const File& file, pid_t pid, const elf::Mapping& mapping);

  // On overlayfs, /proc/PID/maps can show other numbers than those of the mapped file.
  void NoteShownAs(const elf::Mapping& mapping, const heaptap_file_key& key);
  const File* FindFile(const elf::Mapping& mapping) const;
  void EnterFile(const SeenFile& seen);
  void HandleRead(const Version& version, const worker::Answer& answer);
  // Forgets the files whose table could not be read: the next process that meets them asks again.
  void ForgetUnread(const Version& version);
  // Gives an entered file its table.
  void Settle(const Key& key, File& file, const absl::StatusOr<std::shared_ptr<Table>>& table);
  // Removes a file, and its table if no other file shares it.
  void Leave(const Key& key);
  // Remembers the result of reading a version of a file.
  absl::StatusOr<std::shared_ptr<Table>> Keep(const Version& version, absl::StatusOr<unwind::FileTable> rows);
  // An equal table that exists already, or else a new one.
  std::shared_ptr<Table> Share(unwind::FileTable rows);
  // Enters a file with its state; puts its table into the kernel if there is room.
  void Place(const heaptap_file_key& key, const File& file);
  bool MakeRoom(uint64_t nodes);
  void SetState(const heaptap_file_key& key, const Table* table, uint32_t state);
  void Unload(const std::shared_ptr<Table>& table);
  void Forget();
  void ForgetUnused();

  bpf::UnwindMaps& maps_;
  const int identify_;
  worker::Hands& hands_;
  worker::Errands& errands_;
  const uint64_t budget_nodes_;
  const size_t max_files_;
  uint64_t used_nodes_ = 0;
  uint32_t next_number_ = 1;
  uint64_t rows_kept_ = 0;
  std::map<Key, File> files_;
  std::map<std::pair<uint32_t, uint64_t>, Key> shown_as_;  // device and inode in /proc/PID/maps, where they differ
  std::set<Key> reported_;                                 // files with a message already printed
  std::map<Version, absl::StatusOr<std::shared_ptr<Table>>> read_;
  std::set<Version> being_read_;
  std::set<Key> looked_at_;  // files that had not changed, in this batch
  uint64_t tables_read_ = 0;
  std::multimap<uint64_t, std::weak_ptr<Table>> by_content_;
  absl::Time balanced_ = absl::InfinitePast();
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_UNWIND_TABLES_H_
