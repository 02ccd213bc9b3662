// SPDX-License-Identifier: Apache-2.0
//
// The unwind tables of all files that recorded processes map, and which of them are in the kernel.
//
// Files are known by the kernel's key. Files whose tables are equal, such as a library in two containers, share one:
// tables are compared, not build-ids, which are only what a file says of itself. Tables in the kernel have a budget;
// when it is used up, those that were not looked at for the longest time make room, if that is long ago, and stacks
// through their code are finished here.
//
// Not thread safe.
#ifndef HEAPTAP_USERSPACE_SERVICE_UNWIND_TABLES_H_
#define HEAPTAP_USERSPACE_SERVICE_UNWIND_TABLES_H_

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/elf/mappings.h"
#include "userspace/unwind/file_table.h"

namespace heaptap::service {

// Of kernel memory, for a table of so many rows.
uint64_t KernelBytes(uint64_t rows);

// The device in a heaptap_file_key.
uint32_t KernelDevice(const elf::Mapping& mapping);

class UnwindTables {
 public:
  // `maps` must outlive this. `budget`: bytes of kernel memory. Of more than `max_files` files those are forgotten that
  // programs do not look at: processes can make as many as they like.
  UnwindTables(bpf::UnwindMaps& maps, uint64_t budget, size_t max_files = HEAPTAP_DEFAULT_FILES / 2);

  // Reads the tables of open files that will be entered soon, several at a time.
  void ReadAhead(absl::Span<const int> files);
  bool IsEntered(const heaptap_file_key& key) const { return files_.contains(MakeKey(key)); }
  bool HasFileOf(const elf::Mapping& mapping) const { return FindFile(mapping) != nullptr; }
  // Enters an open file that will be mapped.
  void Prepare(int fd, absl::string_view name);
  // Enters an open file that is mapped already, as /proc/PID/maps shows.
  void PrepareMapped(int fd, const elf::Mapping& mapping);

  // Enters the file that a process maps: its table goes into the kernel if there is room. To be called for each mapping
  // event and for each HEAPTAP_EVENT_TABLE_WANTED; a file that is known costs a look-up and a stat, and is read again
  // if it was rewritten. What is wrong with a file is said once, and it counts as having no table. False: the file is
  // not there, as the process is gone or maps something else by now.
  bool Enter(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  void EnterVdso();
  // Tables get numbers from this one on.
  void StartFrom(uint32_t number) { next_number_ = number; }
  // The file is mapped, but cannot be had: it counts as having no table.
  void GiveUp(const heaptap_file_key& key, const elf::Mapping& mapping);
  // The file cannot be had because the process that met it is gone or maps another by now: who meets it next asks
  // again.
  void Refuse(const heaptap_file_key& key) { maps_.RemoveFile(key); }

  // The rule at an address in a mapping; 0 if there is none, or the file was not entered.
  uint32_t FindRule(const elf::Mapping& mapping, uint64_t address) const;

  // Lets tables that found no room have another try. To be called from time to time; does nothing most times.
  void Balance(absl::Time now);

  uint64_t kernel_bytes() const;

 private:
  struct Table {
    unwind::FileTable rows;
    uint32_t number = 0;  // in the kernel; 0: not there
    uint32_t nodes = 0;
  };
  using Key = std::tuple<uint32_t, uint64_t, uint32_t>;           // device, inode, generation
  using Version = std::tuple<dev_t, ino_t, time_t, long, off_t>;  // of a file: identity, last change, size
  struct File {
    std::string name;
    std::shared_ptr<Table> table;  // null: none
    Version version;
  };
  static Key MakeKey(const heaptap_file_key& key);
  static Version MakeVersion(const struct stat& status);
  // Whether the file has changed since it was entered.
  static bool WasRewritten(const File& file, pid_t pid, const elf::Mapping& mapping);

  // The file of this key, which the process has or had mapped there.
  absl::StatusOr<elf::MappedFile> Open(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) const;
  // On overlayfs lists of mappings show other numbers than those of the file that is mapped.
  void NoteShownAs(const elf::Mapping& mapping, const heaptap_file_key& key);
  bool IsFile(const elf::MappedFile& file, const heaptap_file_key& key) const;
  const File* FindFile(const elf::Mapping& mapping) const;
  void EnterFile(const heaptap_file_key& key, int fd, absl::string_view name);
  // Forgets what was entered there; who uses it finds it again, or not.
  void Leave(const Key& key);
  absl::StatusOr<std::shared_ptr<Table>> Read(int fd, const struct stat& status);
  // What was read of a version of a file.
  absl::StatusOr<std::shared_ptr<Table>> Keep(const Version& version, absl::StatusOr<unwind::FileTable> rows);
  // The table that is equal, if there is one, or else this one.
  std::shared_ptr<Table> Share(unwind::FileTable rows);
  // Enters a file with its state; puts its table into the kernel if there is room.
  void Place(const heaptap_file_key& key, const File& file);
  bool MakeRoom(uint64_t nodes);
  void SetState(const heaptap_file_key& key, const Table* table, uint32_t state);
  void Unload(const std::shared_ptr<Table>& table);
  void Forget();
  void ForgetUnused();

  bpf::UnwindMaps& maps_;
  const uint64_t budget_nodes_;
  const size_t max_files_;
  uint64_t used_nodes_ = 0;
  uint32_t next_number_ = 1;
  uint64_t rows_kept_ = 0;
  std::map<Key, File> files_;
  std::map<std::pair<uint32_t, uint64_t>, Key> shown_as_;  // device and inode in lists of mappings, where they differ
  std::set<Key> said_;                                     // files of which something was said
  std::map<Version, absl::StatusOr<std::shared_ptr<Table>>> read_;
  std::multimap<uint64_t, std::weak_ptr<Table>> by_content_;
  absl::Time balanced_ = absl::InfinitePast();
};

}  // namespace heaptap::service

#endif  // HEAPTAP_USERSPACE_SERVICE_UNWIND_TABLES_H_
