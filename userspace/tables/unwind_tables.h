// SPDX-License-Identifier: Apache-2.0
//
// The files that recorded processes map, with their unwind tables: TableReader has the tables read, KernelTables puts
// them into the kernel. Stacks through code without a table in the kernel are finished with the rules from here.
//
// Files are identified by the kernel's key. Not thread safe.
#ifndef HEAPTAP_USERSPACE_TABLES_UNWIND_TABLES_H_
#define HEAPTAP_USERSPACE_TABLES_UNWIND_TABLES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "bpf/books.h"
#include "bpf/events.h"
#include "bpf/unwind.h"
#include "userspace/base/thread_checker.h"
#include "userspace/bpf/file_key.h"
#include "userspace/bpf/unwind_maps.h"
#include "userspace/crews/errands.h"
#include "userspace/crews/hands.h"
#include "userspace/crews/looks.h"
#include "userspace/elf/mappings.h"
#include "userspace/spaces/seen_file.h"
#include "userspace/tables/kernel_tables.h"
#include "userspace/tables/table_reader.h"
#include "userspace/tables/version_checks.h"
#include "userspace/worker/file_version.h"

namespace heaptap::recording {

class UnwindTables {
 public:
  // The objects that this one uses. They must outlive it.
  struct Means {
    bpf::UnwindMaps& maps;
    int identify;  // descriptor of this program
    worker::Looks& looks;
    worker::Looks& orders;  // at files that are known already
    worker::Errands& errands;
    base::SubordinateIds ids = {};  // of the files' owners
  };
  // `budget`: bytes of kernel memory. Beyond `max_files` files, unused ones are forgotten, because processes can create
  // any number of files.
  UnwindTables(const Means& means, uint64_t budget, size_t max_files = HEAPTAP_DEFAULT_FILES / 2);

  // Which of the tables are in the kernel.
  KernelTables& kernel() { return kernel_; }
  const KernelTables& kernel() const { return kernel_; }

  // Begins to read the table of a file that will be entered soon.
  void ReadAhead(const SeenFile& file) { reader_.Read(file); }
  bool HasFileOf(const elf::Mapping& mapping) const { return FindFile(mapping) != nullptr; }
  // Enters a file that will be mapped.
  void Prepare(const SeenFile& file);
  // Enters a file that is mapped already, as /proc/PID/maps shows.
  void PrepareMapped(const SeenFile& file, const elf::Mapping& mapping);

  // Whether the table of the mapped file is being read. Meanwhile programs send raw stacks through its code.
  bool IsBeingRead(const elf::Mapping& mapping) const;
  // To be called when a stack waits for the table of the mapped file. This table is read before the others of its user.
  void Hasten(const elf::Mapping& mapping);
  // Whether any file is being looked at, or its table is being read.
  bool IsReading() const { return looks_under_way_ != 0 || reader_.IsReading(); }
  // Tables read, and files looked at or checked so far. What waits for one of them may go on when this changes.
  uint64_t tables_read() const { return reader_.tables_read() + looks_done_; }

  // Enters the file that a process maps: it is looked at, a worker reads its table, and the table goes into the kernel
  // if there is room. Meanwhile the file is being read (IsBeingRead). Call it for each mapping event. The version of a
  // known file is checked, and the file is read again if its version has changed; until then its table is used. An
  // unusable file is reported once and counts as having no table.
  void Enter(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  // Like Enter, for each HEAPTAP_EVENT_TABLE_WANTED: a process has met the file at `address`. `mappings`: the known
  // mappings that may hold the file. `done` gets the mapping that does.
  using OnFound = std::function<void(const elf::Mapping& mapping)>;
  void Find(const heaptap_file_key& key, pid_t pid, uint64_t address, std::vector<elf::Mapping> mappings, OnFound done);
  // Like Enter, for a mapping whose file is unknown. False: the file is not there, or there is no room for a look;
  // true: it is being looked at.
  bool EnterMapped(pid_t pid, const elf::Mapping& mapping);
  void EnterVdso();
  // Handles the looks that are done.
  void HandleLooks() {
    if (looks_under_way_ != 0) looks_.HandleDone();
  }

  // The rule at an address in a mapping; 0 if there is none, or the file was not entered.
  uint32_t FindRule(const elf::Mapping& mapping, uint64_t address) const;

  // The build-id of an entered file; none: the file is being read, or it is being checked whether it was rewritten. "":
  // it has none, or was not entered.
  std::optional<std::string> BuildId(const heaptap_file_key& key) const;
  // The build-id of the file that is mapped there; "": unknown, or it has none.
  std::string BuildIdOf(const elf::Mapping& mapping) const;

  // To be called before each batch of mapping events: within a batch, a file is looked at once. Files whose reading
  // failed, and may succeed now, are read again when a process meets them.
  void BeginBatch();

 private:
  struct File {
    std::string name;
    SharedTable table;  // null: none
    worker::FileVersion version;
    uid_t owner = base::kRoot;
    bool is_being_read = false;
    std::string build_id = {};
    bool has_failed = false;  // its reading has failed, and is tried again
    // Users who pay for looks at it that are under way. Meanwhile the file counts as being read.
    std::set<uid_t> lookers = {};
  };
  // What a look for a wanted file has found.
  struct Found {
    absl::StatusOr<worker::MappedFile> file = absl::NotFoundError("no mapping of the file");
    elf::Mapping mapping = {};
    bool is_mapped = false;  // the file is mapped there, but cannot be opened
  };
  // Whether the file is known. Then its table goes into the kernel, if there is room, and the file is checked.
  bool Knows(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  void HandleChecked(const VersionChecks::Check& check);
  void LookAt(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping);
  enum class Looking { kBegins, kIsUnderWay, kMustWait };
  Looking BeginLook(const heaptap_file_key& key, pid_t pid, const std::string& name);
  void EndLook(const heaptap_file_key& key, uid_t payer, pid_t pid, const Found& found);
  static void FindFor(worker::Hands& hands, int identify, const heaptap_file_key& key, pid_t pid, uint64_t address,
                      const std::vector<elf::Mapping>& mappings, Found& found);
  // The file is mapped but cannot be opened: it counts as having no table.
  void GiveUp(const heaptap_file_key& key, const elf::Mapping& mapping);

  // On overlayfs, /proc/PID/maps can show other numbers than those of the mapped file.
  void NoteShownAs(const elf::Mapping& mapping, const heaptap_file_key& key);
  const File* FindFile(const elf::Mapping& mapping) const;
  void EnterFile(const SeenFile& seen);
  void HandleRead(const TableReader::Reading& reading);
  // Gives an entered file its table.
  void Settle(const heaptap_file_key& key, File& file, const TableReader::Contents& contents);
  // Makes room for another file and its table.
  void Forget();
  // The next process that meets such a file asks again.
  void ForgetFiles(absl::FunctionRef<bool(const heaptap_file_key&, const File&)> is_forgotten);

  bpf::UnwindMaps& maps_;
  worker::Looks& looks_;
  const base::SubordinateIds ids_;
  const size_t max_files_;
  TableReader reader_;
  KernelTables kernel_;
  std::map<heaptap_file_key, File, bpf::FileKeyLess> files_;
  // Files by device and inode in /proc/PID/maps, where these differ from the key.
  std::map<std::pair<uint32_t, uint64_t>, heaptap_file_key> shown_as_;
  size_t failed_ = 0;                                      // files that may have failed
  std::set<heaptap_file_key, bpf::FileKeyLess> reported_;  // files with a message already printed
  uint64_t looks_done_ = 0;
  size_t looks_under_way_ = 0;
  using Place = std::pair<pid_t, uint64_t>;  // an address in a process
  std::set<Place> places_looked_at_;         // by EnterMapped; looks are under way
  // Mappings where EnterMapped found no file, and when: a process that has ended can leave thousands of stacks, whose
  // frames all ask.
  std::map<Place, base::Instant> not_there_;
  VersionChecks checks_;
  std::set<heaptap_file_key, bpf::FileKeyLess> checked_;  // files that had not changed, in this batch
  base::ThreadChecker thread_;
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_UNWIND_TABLES_H_
