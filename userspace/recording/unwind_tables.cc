// SPDX-License-Identifier: Apache-2.0
#include "userspace/recording/unwind_tables.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/elf/file.h"
#include "userspace/process/maps.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::recording {
namespace {

// Kernel memory for a node.
constexpr uint64_t kNodeBytes = 4096;

// A table that was used within this time keeps its place: loading two tables in turn would cost more than raw stacks.
constexpr uint64_t kResidence = 1'000'000'000;  // nanoseconds
constexpr absl::Duration kBalanceInterval = absl::Seconds(1);

// Tables kept here: as many as fit in the kernel's budget, as many again that wait for room, and kKeptBytes more.
constexpr uint64_t kKeptPerBudget = 2;
constexpr uint64_t kKeptBytes = 64 << 20;
// Files whose tables are kept for reuse.
constexpr size_t kMaxRead = 4096;

constexpr char kFollowFramePointers[] = "; stacks through it follow frame pointers";

// The kernel's dev_t (include/linux/kdev_t.h).
constexpr uint32_t kMinorBits = 20;

uint64_t MonotonicNanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

absl::StatusOr<unwind::FileTable> RowsOf(const worker::Answer& answer) {
  if (answer.IsFault()) {
    return absl::InvalidArgumentError(absl::StrCat("reading it failed: ", answer.status.message()));
  }
  if (!answer.status.ok()) return answer.status;
  absl::StatusOr<worker::TableOfFile> table = worker::DecodeTable(answer.bytes);
  if (!table.ok()) return table.status();
  return std::move(table->table);
}

}  // namespace

uint32_t KernelDevice(const elf::Mapping& mapping) { return mapping.device_major << kMinorBits | mapping.device_minor; }

uint64_t KernelBytes(uint64_t rows) { return unwind::CountNodes(rows) * kNodeBytes; }

UnwindTables::UnwindTables(const Means& means, uint64_t budget, size_t max_files)
    : maps_(means.maps),
      identify_(means.identify),
      hands_(means.hands),
      errands_(means.errands),
      budget_nodes_(std::max<uint64_t>(budget / kNodeBytes, 1)),
      max_files_(max_files) {}

UnwindTables::Key UnwindTables::MakeKey(const heaptap_file_key& key) { return {key.device, key.inode, key.generation}; }

uint64_t UnwindTables::kernel_bytes() const { return used_nodes_ * kNodeBytes; }

std::shared_ptr<UnwindTables::Table> UnwindTables::Share(unwind::FileTable rows) {
  const auto bytes =
      absl::string_view(reinterpret_cast<const char*>(rows.rows.data()), rows.rows.size() * sizeof(heaptap_row));
  const uint64_t content = absl::HashOf(rows.base, bytes);
  for (auto [entry, end] = by_content_.equal_range(content); entry != end;) {
    std::shared_ptr<Table> table = entry->second.lock();
    if (table == nullptr) {
      entry = by_content_.erase(entry);
      continue;
    }
    if (table->rows == rows) return table;
    ++entry;
  }
  rows_kept_ += rows.rows.size();
  auto table = std::shared_ptr<Table>(new Table{.rows = std::move(rows)}, [this](Table* gone) {
    rows_kept_ -= gone->rows.rows.size();
    delete gone;
  });
  table->nodes = unwind::CountNodes(table->rows.rows.size());
  by_content_.emplace(content, table);
  return table;
}

absl::StatusOr<std::shared_ptr<UnwindTables::Table>> UnwindTables::Keep(const Version& version,
                                                                        absl::StatusOr<unwind::FileTable> rows) {
  absl::StatusOr<std::shared_ptr<Table>> table = nullptr;
  if (!rows.ok()) {
    table = rows.status();
  } else if (!rows->rows.empty()) {
    table = Share(*std::move(rows));
  }
  // Remembers an invalid file too, since parsing it may have taken long; other errors may be temporary.
  if (!table.ok() && !absl::IsInvalidArgument(table.status()) && !absl::IsNotFound(table.status())) return table;
  if (read_.size() >= kMaxRead) read_.clear();
  read_.insert_or_assign(version, table);
  return table;
}

void UnwindTables::ReadAhead(const SeenFile& file) {
  const Version version = file.identity.version;
  if (read_.contains(version) || !being_read_.insert(version).second) return;
  errands_.Start(file.user(), {.job = worker::Job::kTable, .file = file.file}, {.answer_bytes = worker::kMaxTableBytes},
                 [this, version, open = file.open](const worker::Answer& answer) { HandleRead(version, answer); });
}

void UnwindTables::HandleRead(const Version& version, const worker::Answer& answer) {
  being_read_.erase(version);
  tables_read_++;
  // The file may have been written to meanwhile. Without a version, the reader did not get it: the process is gone, or
  // has mapped another file there.
  const absl::StatusOr<Version> read_version = worker::DecodeVersion(answer.bytes);
  if (!read_version.ok() && !answer.IsFault()) return ForgetUnread(version);
  const Version& known = read_version.ok() ? *read_version : version;
  const absl::StatusOr<std::shared_ptr<Table>> table = Keep(known, RowsOf(answer));
  for (auto& [key, file] : files_) {
    if (!file.is_being_read || file.version != version) continue;
    file.version = known;
    Settle(key, file, table);
  }
}

void UnwindTables::ForgetUnread(const Version& version) {
  for (auto entry = files_.begin(); entry != files_.end();) {
    if (!entry->second.is_being_read || entry->second.version != version) {
      ++entry;
      continue;
    }
    const auto& [device, inode, generation] = entry->first;
    Refuse({inode, device, generation});
    entry = files_.erase(entry);
  }
}

bool UnwindTables::IsBeingRead(const elf::Mapping& mapping) const {
  const File* file = FindFile(mapping);
  return file != nullptr && file->is_being_read;
}

void UnwindTables::Prepare(const SeenFile& file) {
  if (!files_.contains(MakeKey(file.identity.key))) EnterFile(file);
}

void UnwindTables::PrepareMapped(const SeenFile& file, const elf::Mapping& mapping) {
  NoteShownAs(mapping, file.identity.key);
  Prepare(file);
}

void UnwindTables::NoteShownAs(const elf::Mapping& mapping, const heaptap_file_key& key) {
  if (KernelDevice(mapping) == key.device && mapping.inode == key.inode) return;
  if (shown_as_.size() >= kMaxRead) shown_as_.clear();
  shown_as_[{KernelDevice(mapping), mapping.inode}] = MakeKey(key);
}

bool UnwindTables::WasRewritten(const Key& key, const File& file, pid_t pid, const elf::Mapping& mapping) {
  if (looked_at_.contains(key)) return false;
  const absl::StatusOr<Version> version = hands_.Version(pid, mapping);
  if (!version.ok() || !version->IsSameFile(file.version)) return false;
  if (*version != file.version) return true;
  looked_at_.insert(key);
  return false;
}

bool UnwindTables::Enter(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  const auto known = files_.find(MakeKey(key));
  if (known != files_.end() && !WasRewritten(known->first, known->second, pid, mapping)) {
    // The map may have had no room for the entry, or an eBPF program that could not send its question removed it.
    const std::optional<heaptap_file> entered = maps_.ReadFile(key);
    const bool is_missing = !entered.has_value() || entered->state == HEAPTAP_FILE_WANTED;
    if (is_missing && !known->second.is_being_read) Place(key, known->second);
    return true;
  }
  const absl::StatusOr<worker::MappedFile> seen = hands_.Look(identify_, pid, mapping, &key);
  if (!seen.ok()) return false;
  NoteShownAs(mapping, key);
  EnterFile(ToSeenFile(*seen, pid, mapping));
  return true;
}

void UnwindTables::GiveUp(const heaptap_file_key& key, const elf::Mapping& mapping) {
  base::Say(absl::StrCat("no unwind table for ", base::AsciiOnly(mapping.path), ": the mapped file cannot be opened",
                         kFollowFramePointers));
  Place(key, files_[MakeKey(key)] = {.name = mapping.path, .table = nullptr, .version = {}});
}

void UnwindTables::EnterFile(const SeenFile& seen) {
  Forget();
  const heaptap_file_key& key = seen.identity.key;
  SetState(key, nullptr, HEAPTAP_FILE_WANTED);
  Leave(MakeKey(key));
  File& file = files_[MakeKey(key)];
  file = {.name = seen.name, .table = nullptr, .version = seen.identity.version};
  if (const auto known = read_.find(file.version); known != read_.end()) {
    return Settle(MakeKey(key), file, known->second);
  }
  file.is_being_read = true;
  ReadAhead(seen);
}

void UnwindTables::Settle(const Key& key, File& file, const absl::StatusOr<std::shared_ptr<Table>>& table) {
  file.is_being_read = false;
  if (table.ok()) {
    file.table = *table;
  } else if (!absl::IsNotFound(table.status()) && reported_.insert(key).second) {
    base::Say(absl::StrCat("no unwind table for ", base::AsciiOnly(file.name), ": ",
                           base::AsciiOnly(table.status().message()), kFollowFramePointers));
  }
  if (file.table != nullptr && file.table->nodes > budget_nodes_ && reported_.insert(key).second) {
    base::Say(absl::StrCat("the unwind table of ", base::AsciiOnly(file.name), " takes ",
                           file.table->nodes * kNodeBytes,
                           " bytes, more than --unwind-memory allows; the collector unwinds stacks through it"));
  }
  Place({std::get<1>(key), std::get<0>(key), std::get<2>(key)}, file);
}

void UnwindTables::Leave(const Key& key) {
  const auto entry = files_.find(key);
  if (entry == files_.end()) return;
  const std::shared_ptr<Table> table = entry->second.table;
  files_.erase(entry);
  if (table == nullptr || table->number == 0) return;
  for (const auto& [other, file] : files_) {
    if (file.table == table) return;
  }
  Unload(table);
}

void UnwindTables::EnterVdso() {
  const heaptap_file_key key = {HEAPTAP_VDSO_INODE, 0, 0};
  if (files_.contains(MakeKey(key))) return;
  File& file = files_[MakeKey(key)];
  file.name = "[vdso]";
  // All processes share one vDSO, this one too.
  const auto address = static_cast<uint64_t>(getauxval(AT_SYSINFO_EHDR));
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  base::FileDescriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  base::FileDescriptor copy(memfd_create("vdso", MFD_CLOEXEC));
  if (address != 0 && mappings.ok() && memory.valid() && copy.valid()) {
    for (const elf::Mapping& mapping : *mappings) {
      if (mapping.start != address) continue;
      std::string image(mapping.end - mapping.start, '\0');
      const auto size = static_cast<ssize_t>(image.size());
      if (pread(memory.get(), image.data(), image.size(), static_cast<off_t>(address)) == size &&
          write(copy.get(), image.data(), image.size()) == size) {
        const absl::StatusOr<elf::File> opened = elf::File::Open(copy.get());
        if (!opened.ok()) continue;
        absl::StatusOr<unwind::FileTable> rows = unwind::ReadFileTable(*opened);
        if (rows.ok() && !rows->rows.empty()) file.table = Share(*std::move(rows));
      }
    }
  }
  Place(key, file);
}

void UnwindTables::SetState(const heaptap_file_key& key, const Table* table, uint32_t state) {
  heaptap_file file = {};
  file.state = state;
  if (table != nullptr && state == HEAPTAP_FILE_LOADED) {
    file.table = table->number;
    file.base = table->rows.base;
    for (uint64_t nodes = 1; nodes < table->rows.rows.size(); nodes *= HEAPTAP_ROWS_PER_NODE) file.levels++;
    file.levels = std::max<uint32_t>(file.levels, 1);
  }
  if (const std::optional<heaptap_file> known = maps_.ReadFile(key); known.has_value()) {
    file.last_used = known->last_used;
  }
  // If the map is full, the programs treat the file as one without a table, and count a loss.
  maps_.SetFile(key, file).IgnoreError();
}

void UnwindTables::Place(const heaptap_file_key& key, const File& file) {
  Table* table = file.table.get();
  if (table == nullptr) return SetState(key, nullptr, HEAPTAP_FILE_WITHOUT_TABLE);
  if (table->number == 0 && MakeRoom(table->nodes)) {
    const uint32_t number = next_number_++;
    if (maps_.AddTable(number, unwind::MakeTree(table->rows.rows).nodes).ok()) {
      table->number = number;
      used_nodes_ += table->nodes;
      // All files that share the table use it now.
      for (const auto& [other, sharing] : files_) {
        if (sharing.table == file.table) {
          SetState({std::get<1>(other), std::get<0>(other), std::get<2>(other)}, table, HEAPTAP_FILE_LOADED);
        }
      }
      return;
    }
  }
  SetState(key, table, table->number != 0 ? HEAPTAP_FILE_LOADED : HEAPTAP_FILE_OUTSIDE);
}

bool UnwindTables::MakeRoom(uint64_t nodes) {
  if (nodes > budget_nodes_) return false;
  if (used_nodes_ + nodes <= budget_nodes_) return true;
  std::map<std::shared_ptr<Table>, uint64_t> last_used;
  for (const auto& [key, file] : files_) {
    if (file.table == nullptr || file.table->number == 0) continue;
    const std::optional<heaptap_file> known = maps_.ReadFile({std::get<1>(key), std::get<0>(key), std::get<2>(key)});
    uint64_t& last = last_used[file.table];
    if (known.has_value()) last = std::max<uint64_t>(last, known->last_used);
  }
  std::vector<std::pair<uint64_t, std::shared_ptr<Table>>> oldest;
  const uint64_t now = MonotonicNanoseconds();
  for (auto& [table, last] : last_used) {
    if (last + kResidence < now) oldest.emplace_back(last, table);
  }
  std::sort(oldest.begin(), oldest.end());
  uint64_t room = budget_nodes_ - used_nodes_;
  size_t count = 0;
  while (count < oldest.size() && room < nodes) room += oldest[count++].second->nodes;
  if (room < nodes) return false;
  for (size_t i = 0; i < count; i++) Unload(oldest[i].second);
  return true;
}

void UnwindTables::Unload(const std::shared_ptr<Table>& table) {
  // First make the table unreachable; a program that is reading it meets a missing node and sends a raw stack.
  for (const auto& [key, file] : files_) {
    if (file.table == table) {
      SetState({std::get<1>(key), std::get<0>(key), std::get<2>(key)}, nullptr, HEAPTAP_FILE_OUTSIDE);
    }
  }
  maps_.RemoveTable(table->number, table->nodes);
  used_nodes_ -= table->nodes;
  table->number = 0;
}

void UnwindTables::Balance(absl::Time now) {
  if (now < balanced_ + kBalanceInterval) return;
  balanced_ = now;
  const uint64_t recently = MonotonicNanoseconds() - kResidence;
  for (const auto& [key, file] : files_) {
    if (file.table == nullptr || file.table->number != 0 || file.table->nodes > budget_nodes_) continue;
    const heaptap_file_key kernel_key = {std::get<1>(key), std::get<0>(key), std::get<2>(key)};
    const std::optional<heaptap_file> known = maps_.ReadFile(kernel_key);
    if (known.has_value() && known->last_used >= recently) Place(kernel_key, file);
  }
}

void UnwindTables::Forget() {
  if (by_content_.size() > 2 * kMaxRead) {
    std::erase_if(by_content_, [](const auto& entry) { return entry.second.expired(); });
  }
  if (reported_.size() > kMaxRead) reported_.clear();
  if (files_.size() >= max_files_) ForgetUnused();
  if (rows_kept_ * sizeof(heaptap_row) <= kKeptBytes + kKeptPerBudget * budget_nodes_ * kNodeBytes) return;
  read_.clear();
  for (auto entry = files_.begin(); entry != files_.end();) {
    const bool is_waiting = entry->second.table != nullptr && entry->second.table->number == 0;
    if (is_waiting) {
      const auto& [device, inode, generation] = entry->first;
      maps_.RemoveFile({inode, device, generation});
      entry = files_.erase(entry);
    } else {
      ++entry;
    }
  }
}

void UnwindTables::ForgetUnused() {
  const uint64_t now = MonotonicNanoseconds();
  std::set<std::shared_ptr<Table>> tables;
  for (auto entry = files_.begin(); entry != files_.end();) {
    const auto& [device, inode, generation] = entry->first;
    const heaptap_file_key key = {inode, device, generation};
    const std::optional<heaptap_file> known = maps_.ReadFile(key);
    if (inode == HEAPTAP_VDSO_INODE || (known.has_value() && known->last_used + kResidence >= now)) {
      ++entry;
      continue;
    }
    maps_.RemoveFile(key);
    if (entry->second.table != nullptr && entry->second.table->number != 0) tables.insert(entry->second.table);
    entry = files_.erase(entry);
  }
  for (const auto& [key, file] : files_) tables.erase(file.table);
  for (const std::shared_ptr<Table>& table : tables) Unload(table);
}

const UnwindTables::File* UnwindTables::FindFile(const elf::Mapping& mapping) const {
  if (mapping.inode == 0) {
    const auto vdso = files_.find({0, HEAPTAP_VDSO_INODE, 0});
    return mapping.path == "[vdso]" && vdso != files_.end() ? &vdso->second : nullptr;
  }
  const uint32_t device = KernelDevice(mapping);
  // /proc/PID/maps has no generation; the mapped file is the latest one.
  auto entry = files_.upper_bound({device, mapping.inode, ~uint32_t{0}});
  if (entry != files_.begin() && std::get<0>((--entry)->first) == device &&
      std::get<1>(entry->first) == mapping.inode) {
    return &entry->second;
  }
  const auto shown = shown_as_.find({device, mapping.inode});
  if (shown == shown_as_.end()) return nullptr;
  entry = files_.find(shown->second);
  return entry == files_.end() ? nullptr : &entry->second;
}

uint32_t UnwindTables::FindRule(const elf::Mapping& mapping, uint64_t address) const {
  const File* file = FindFile(mapping);
  if (file == nullptr || file->table == nullptr) return 0;
  return unwind::RuleAtOffset(file->table->rows,
                              address - mapping.start + (mapping.inode == 0 ? 0 : mapping.file_offset));
}

}  // namespace heaptap::recording
