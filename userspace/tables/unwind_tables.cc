// SPDX-License-Identifier: Apache-2.0
#include "userspace/tables/unwind_tables.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/base/clock.h"
#include "userspace/base/file_descriptor.h"
#include "userspace/base/messages.h"
#include "userspace/bpf/file_key.h"
#include "userspace/elf/file.h"
#include "userspace/process/maps.h"

namespace heaptap::recording {
namespace {

// Tables kept here: as many as fit in the kernel's budget, as many again that wait for room, and kKeptBytes more.
constexpr uint64_t kKeptPerBudget = 2;
constexpr uint64_t kKeptBytes = 64 << 20;
// The most notes about files.
constexpr size_t kMaxNotes = 4096;

// A mapping where no file was found is not looked at again for this long.
constexpr absl::Duration kNotThere = absl::Seconds(1);

constexpr char kFollowFramePointers[] = "; stacks through it follow frame pointers";

constexpr heaptap_file_key kVdso = {HEAPTAP_VDSO_INODE, 0, 0};

// The table of the vDSO, which this process shares with all others; without rows if the vDSO cannot be read.
unwind::FileTable ReadVdso() {
  const auto address = static_cast<uint64_t>(getauxval(AT_SYSINFO_EHDR));
  absl::StatusOr<std::vector<elf::Mapping>> mappings = process::ReadExecutableMappings(getpid());
  base::FileDescriptor memory(open("/proc/self/mem", O_RDONLY | O_CLOEXEC));
  base::FileDescriptor copy(memfd_create("vdso", MFD_CLOEXEC));
  if (address == 0 || !mappings.ok() || !memory.valid() || !copy.valid()) return {};
  for (const elf::Mapping& mapping : *mappings) {
    if (mapping.start != address) continue;
    std::string image(mapping.end - mapping.start, '\0');
    const auto size = static_cast<ssize_t>(image.size());
    if (pread(memory.get(), image.data(), image.size(), static_cast<off_t>(address)) != size ||
        write(copy.get(), image.data(), image.size()) != size) {
      return {};
    }
    const absl::StatusOr<elf::File> opened = elf::File::Open(copy.get());
    if (!opened.ok()) return {};
    return unwind::ReadFileTable(*opened).value_or(unwind::FileTable());
  }
  return {};
}

}  // namespace

UnwindTables::UnwindTables(const Means& means, uint64_t budget, size_t max_files)
    : maps_(means.maps),
      looks_(means.looks),
      ids_(means.ids),
      max_files_(max_files),
      reader_(means.errands, [this](const TableReader::Reading& reading) { HandleRead(reading); }),
      kernel_(means.maps, budget),
      checks_(means.orders, [this](const VersionChecks::Check& check) { HandleChecked(check); }) {}

void UnwindTables::HandleRead(const TableReader::Reading& reading) {
  const auto was_read = [&](const File& file) { return file.is_being_read && file.version == reading.asked; };
  if (!reading.version.has_value()) {
    return ForgetFiles([&](const heaptap_file_key&, const File& file) { return was_read(file); });
  }
  for (auto& [key, file] : files_) {
    if (!was_read(file)) continue;
    file.version = *reading.version;
    Settle(key, file, reading.contents);
  }
}

void UnwindTables::BeginBatch() {
  const base::OneThread one_thread(thread_);
  checked_.clear();
  checks_.BeginWaiting();
  if (failed_ == 0) return;
  failed_ = 0;
  const base::Instant now = base::Now();
  ForgetFiles([&](const heaptap_file_key&, const File& file) {
    const bool is_due = file.has_failed && reader_.IsDue(file.version, now);
    failed_ += file.has_failed && !is_due ? 1 : 0;
    return is_due;
  });
}

bool UnwindTables::IsBeingRead(const elf::Mapping& mapping) const {
  const File* file = FindFile(mapping);
  return file != nullptr && file->is_being_read;
}

void UnwindTables::Hasten(const elf::Mapping& mapping) {
  if (const File* file = FindFile(mapping); file != nullptr) reader_.Hasten(file->version);
}

void UnwindTables::Prepare(const SeenFile& file) {
  const base::OneThread one_thread(thread_);
  if (!files_.contains(file.identity.key)) EnterFile(file);
}

void UnwindTables::PrepareMapped(const SeenFile& file, const elf::Mapping& mapping) {
  NoteShownAs(mapping, file.identity.key);
  Prepare(file);
}

void UnwindTables::NoteShownAs(const elf::Mapping& mapping, const heaptap_file_key& key) {
  if (bpf::KernelDevice(mapping) == key.device && mapping.inode == key.inode) return;
  if (shown_as_.size() >= kMaxNotes) shown_as_.clear();
  shown_as_[{bpf::KernelDevice(mapping), mapping.inode}] = key;
}

bool UnwindTables::Knows(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  const auto known = files_.find(key);
  if (known == files_.end() || !known->second.lookers.empty()) return false;
  const File& file = known->second;
  if (!file.is_being_read && !kernel_.IsPlaced(key)) kernel_.Place(key, file.table, file.owner);
  if (!checked_.contains(key)) checks_.Begin(key, pid, mapping);
  return true;
}

void UnwindTables::HandleChecked(const VersionChecks::Check& check) {
  looks_done_++;
  const auto known = files_.find(check.key);
  if (!check.version.ok() || known == files_.end() || !check.version->IsSameFile(known->second.version)) return;
  if (*check.version == known->second.version) {
    checked_.insert(check.key);
  } else {
    LookAt(check.key, check.pid, check.mapping);
  }
}

// Each user's processes get a look of their own, because a look on one user's account may take long.
UnwindTables::Looking UnwindTables::BeginLook(const heaptap_file_key& key, pid_t pid, const std::string& name) {
  const uid_t payer = looks_.PayerOf(pid);
  const auto known = files_.find(key);
  if (known != files_.end() && known->second.lookers.contains(payer)) return Looking::kIsUnderWay;
  if (!looks_.HasRoom(pid)) return Looking::kMustWait;
  if (known == files_.end()) Forget();
  kernel_.SetWanted(key);
  File& file = files_[key];
  if (file.name.empty()) file.name = name;
  file.is_being_read = true;
  file.lookers.insert(payer);
  looks_under_way_++;
  return Looking::kBegins;
}

void UnwindTables::Enter(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  const base::OneThread one_thread(thread_);
  if (!Knows(key, pid, mapping)) LookAt(key, pid, mapping);
}

void UnwindTables::LookAt(const heaptap_file_key& key, pid_t pid, const elf::Mapping& mapping) {
  if (BeginLook(key, pid, mapping.path) != Looking::kBegins) return;
  const auto found = std::make_shared<Found>();
  found->mapping = mapping;
  looks_.Start(
      pid,
      [key, pid, found](worker::Hands& hands, int identify) {
        found->file = hands.Look(identify, pid, found->mapping, &key);
      },
      [this, key, pid, payer = looks_.PayerOf(pid), found] { EndLook(key, payer, pid, *found); });
}

void UnwindTables::Find(const heaptap_file_key& key, pid_t pid, uint64_t address, std::vector<elf::Mapping> mappings,
                        OnFound done) {
  const base::OneThread one_thread(thread_);
  for (const elf::Mapping& mapping : mappings) {
    if (Knows(key, pid, mapping)) return done(mapping);
  }
  switch (BeginLook(key, pid, mappings.empty() ? "" : mappings.front().path)) {
    case Looking::kIsUnderWay:
      return;
    case Looking::kMustWait:
      return maps_.RemoveFile(key);  // the next process that meets it asks again
    case Looking::kBegins:
      break;
  }
  const auto found = std::make_shared<Found>();
  looks_.Start(
      pid,
      [key, pid, address, mappings = std::move(mappings), found](worker::Hands& hands, int identify) {
        FindFor(hands, identify, key, pid, address, mappings, *found);
      },
      [this, key, pid, payer = looks_.PayerOf(pid), found, done = std::move(done)] {
        EndLook(key, payer, pid, *found);
        if (found->file.ok()) return done(found->mapping);
        if (found->is_mapped) GiveUp(key, found->mapping);
      });
}

void UnwindTables::FindFor(worker::Hands& hands, int identify, const heaptap_file_key& key, pid_t pid, uint64_t address,
                           const std::vector<elf::Mapping>& mappings, Found& found) {
  const auto is_it = [&](const elf::Mapping& mapping) {
    if (address < mapping.start || mapping.end <= address) return false;
    found.file = hands.Look(identify, pid, mapping, &key);
    found.mapping = mapping;
    return found.file.ok();
  };
  if (std::ranges::any_of(mappings, is_it)) return;
  // The known mappings may be outdated: unmapping sends no event.
  const absl::StatusOr<std::vector<elf::Mapping>> now = hands.ReadExecutableMappings(pid);
  if (!now.ok() || std::ranges::any_of(*now, is_it)) return;
  for (const elf::Mapping& mapping : *now) {
    if (address < mapping.start || mapping.end <= address) continue;
    found.mapping = mapping;
    // If the process was late, the next one that meets the file asks again.
    found.is_mapped =
        mapping.inode == key.inode && bpf::KernelDevice(mapping) == key.device && !worker::MayPass(found.file.status());
  }
}

void UnwindTables::EndLook(const heaptap_file_key& key, uid_t payer, pid_t pid, const Found& found) {
  looks_done_++;
  looks_under_way_--;
  const auto entry = files_.find(key);
  if (entry != files_.end()) entry->second.lookers.erase(payer);
  if (found.file.ok()) {
    NoteShownAs(found.mapping, key);
    // Perhaps another look has found it already.
    const bool is_known = entry != files_.end() && entry->second.version == found.file->version &&
                          (!entry->second.is_being_read || reader_.IsReading(entry->second.version));
    if (!is_known) EnterFile(ToSeenFile(*found.file, pid, found.mapping));
  } else if (entry != files_.end() && entry->second.lookers.empty() && !reader_.IsReading(entry->second.version)) {
    // The next process that meets the file asks again.
    kernel_.Remove(key);
    files_.erase(entry);
  }
}

void UnwindTables::GiveUp(const heaptap_file_key& key, const elf::Mapping& mapping) {
  base::Say(absl::StrCat("no unwind table for ", base::AsciiOnly(mapping.path), ": the mapped file cannot be opened",
                         kFollowFramePointers));
  files_[key] = {.name = mapping.path, .table = nullptr, .version = {}};
  kernel_.Place(key, nullptr);
}

void UnwindTables::EnterFile(const SeenFile& seen) {
  Forget();
  const heaptap_file_key& key = seen.identity.key;
  kernel_.SetWanted(key);
  File& file = files_[key];
  file = {.name = seen.name,
          .table = nullptr,
          .version = seen.identity.version,
          .owner = ids_.OwnerOf(seen.identity.owner)};
  if (const auto* known = reader_.Find(file.version); known != nullptr) return Settle(key, file, *known);
  file.is_being_read = true;
  reader_.Read(seen);
}

void UnwindTables::Settle(const heaptap_file_key& key, File& file, const TableReader::Contents& contents) {
  const absl::StatusOr<SharedTable>& table = contents.table;
  file.is_being_read = false;
  file.build_id = contents.build_id;
  file.has_failed = !table.ok() && !TableReader::IsVerdict(table.status());
  failed_ += file.has_failed ? 1 : 0;
  if (table.ok()) {
    file.table = *table;
  } else if (!absl::IsNotFound(table.status()) && reported_.insert(key).second) {
    base::Say(absl::StrCat("no unwind table for ", base::AsciiOnly(file.name), ": ",
                           base::AsciiOnly(table.status().message()), kFollowFramePointers));
  }
  if (file.table != nullptr && !kernel_.Fits(*file.table) && reported_.insert(key).second) {
    base::Say(absl::StrCat("the unwind table of ", base::AsciiOnly(file.name), " takes ",
                           KernelBytes(file.table->rows.size()),
                           " bytes, more than --unwind-memory allows; the collector unwinds stacks through it"));
  }
  kernel_.Place(key, file.table, file.owner);
}

bool UnwindTables::EnterMapped(pid_t pid, const elf::Mapping& mapping) {
  const Place place = {pid, mapping.start};
  if (places_looked_at_.contains(place)) return true;
  const auto gone = not_there_.find(place);
  if (gone != not_there_.end() && base::Now() - gone->second < kNotThere) return false;
  if (!looks_.HasRoom(pid)) return false;
  places_looked_at_.insert(place);
  looks_under_way_++;
  looks_.Look(pid, mapping, [this, place, pid, mapping](const absl::StatusOr<worker::MappedFile>& seen) {
    places_looked_at_.erase(place);
    looks_under_way_--;
    looks_done_++;
    if (seen.ok()) PrepareMapped(ToSeenFile(*seen, pid, mapping), mapping);
    // A process that was late is asked again.
    if (HasFileOf(mapping) || worker::MayPass(seen.status())) return;
    if (not_there_.size() >= kMaxNotes) not_there_.clear();
    not_there_[place] = base::Now();
  });
  return true;
}

void UnwindTables::EnterVdso() {
  if (files_.contains(kVdso)) return;
  File& file = files_[kVdso];
  file.name = "[vdso]";
  unwind::FileTable rows = ReadVdso();
  if (!rows.rows.empty()) file.table = reader_.Share(std::move(rows));
  kernel_.Place(kVdso, file.table);
}

void UnwindTables::Forget() {
  if (reported_.size() > kMaxNotes) reported_.clear();
  if (files_.size() >= max_files_) {
    ForgetFiles([this](const heaptap_file_key& key, const File&) {
      return key.inode != HEAPTAP_VDSO_INODE && !kernel_.IsInUse(key);
    });
  }
  if (reader_.bytes_kept() <= kKeptBytes + kKeptPerBudget * kernel_.budget_bytes()) return;
  reader_.Forget();
  // Forgets the files whose tables wait for room.
  ForgetFiles([this](const heaptap_file_key&, const File& file) {
    return file.table != nullptr && !kernel_.IsLoaded(file.table);
  });
}

void UnwindTables::ForgetFiles(absl::FunctionRef<bool(const heaptap_file_key&, const File&)> is_forgotten) {
  std::erase_if(files_, [&](const auto& entry) {
    if (!is_forgotten(entry.first, entry.second)) return false;
    kernel_.Remove(entry.first);
    return true;
  });
}

const UnwindTables::File* UnwindTables::FindFile(const elf::Mapping& mapping) const {
  const auto find = [this](const heaptap_file_key& key) {
    const auto entry = files_.find(key);
    return entry == files_.end() ? nullptr : &entry->second;
  };
  if (mapping.inode == 0) return mapping.path == "[vdso]" ? find(kVdso) : nullptr;
  const uint32_t device = bpf::KernelDevice(mapping);
  // /proc/PID/maps has no generation; the mapped file is the latest one.
  auto entry = files_.upper_bound({mapping.inode, device, ~uint32_t{0}});
  if (entry != files_.begin() && (--entry)->first.device == device && entry->first.inode == mapping.inode) {
    return &entry->second;
  }
  const auto shown = shown_as_.find({device, mapping.inode});
  return shown == shown_as_.end() ? nullptr : find(shown->second);
}

uint32_t UnwindTables::FindRule(const elf::Mapping& mapping, uint64_t address) const {
  const File* file = FindFile(mapping);
  if (file == nullptr || file->table == nullptr) return 0;
  return unwind::RuleAtOffset(*file->table, address - mapping.start + (mapping.inode == 0 ? 0 : mapping.file_offset));
}

std::optional<std::string> UnwindTables::BuildId(const heaptap_file_key& key) const {
  const auto known = files_.find(key);
  if (known == files_.end()) return "";
  if (known->second.is_being_read || checks_.IsChecking(key)) return std::nullopt;
  return known->second.build_id;
}

std::string UnwindTables::BuildIdOf(const elf::Mapping& mapping) const {
  const File* file = FindFile(mapping);
  return file == nullptr || file->is_being_read ? "" : file->build_id;
}

}  // namespace heaptap::recording
