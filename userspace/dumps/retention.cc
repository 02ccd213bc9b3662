// SPDX-License-Identifier: Apache-2.0
#include "userspace/dumps/retention.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace heaptap::recording {
namespace {

bool IsNumber(absl::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// The status of a dump; none if the name does not, or no longer, belong to one.
std::optional<struct stat> DumpStatus(int folder, const char* name) {
  struct stat status;
  if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid()) return {};
  return status;
}

}  // namespace

bool IsDumpName(absl::string_view name) {
  // Checked from the right, because the first part may contain dots.
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '.');
  if (parts.size() < 5 || parts[0].empty() || parts.back() != "heap") return false;
  const absl::string_view kind = parts[parts.size() - 2];
  if (kind.empty() || !IsNumber(parts[parts.size() - 3]) || !IsNumber(parts[parts.size() - 4])) return false;
  return kind == "f" || (absl::StrContains("imu", kind.substr(0, 1)) && IsNumber(kind.substr(1)));
}

bool DumpPruner::Dump::operator<(const Dump& other) const {
  return std::tie(written, name) < std::tie(other.written, other.name);
}

void DumpPruner::Added(absl::string_view path, uint64_t bytes) {
  newest_ = std::string(path.substr(path.rfind('/') + 1));
  files_++;
  bytes_ += bytes;
}

bool DumpPruner::HasBounds() const {
  return retention_.max_age > absl::ZeroDuration() || retention_.max_files > 0 || retention_.max_bytes > 0;
}

bool DumpPruner::AreCountAndBytesPassed() const {
  return (retention_.max_files > 0 && files_ > retention_.max_files) ||
         (retention_.max_bytes > 0 && bytes_ > retention_.max_bytes);
}

bool DumpPruner::IsTooOld(const Dump& dump, absl::Time now) const {
  return retention_.max_age > absl::ZeroDuration() && now - dump.written > retention_.max_age;
}

absl::Status DumpPruner::ReadFolder(absl::Time now) {
  is_read_ = false;
  // A separate open file with its own position.
  base::FileDescriptor copy(openat(folder_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!copy.valid()) return absl::ErrnoToStatus(errno, "cannot read the folder of dumps");
  DIR* entries = fdopendir(copy.get());
  if (entries == nullptr) return absl::ErrnoToStatus(errno, "cannot read the folder of dumps");
  (void)copy.Release();
  const absl::Cleanup close = [entries] { closedir(entries); };

  files_ = 0;
  bytes_ = 0;
  std::vector<Dump> oldest;  // a heap with the latest on top
  // One above kMaxOldest, because the newest dump may be among them.
  constexpr size_t kMaxKept = kMaxOldest + 1;
  std::optional<Dump> latest;
  bool has_newest = false;
  errno = 0;
  while (const dirent* entry = readdir(entries)) {
    const bool may_be_regular = entry->d_type == DT_REG || entry->d_type == DT_UNKNOWN;
    const std::optional<struct stat> status =
        may_be_regular && IsDumpName(entry->d_name) ? DumpStatus(folder_.get(), entry->d_name) : std::nullopt;
    errno = 0;
    if (!status.has_value()) continue;
    Dump dump = {.written = absl::TimeFromTimespec(status->st_mtim),
                 .bytes = static_cast<uint64_t>(status->st_size),
                 .name = entry->d_name};
    files_++;
    bytes_ += dump.bytes;
    has_newest |= dump.name == newest_;
    if (!latest.has_value() || *latest < dump) latest = dump;
    if (oldest.size() < kMaxKept || dump < oldest.front()) {
      if (oldest.size() == kMaxKept) {
        std::pop_heap(oldest.begin(), oldest.end());
        oldest.pop_back();
      }
      oldest.push_back(std::move(dump));
      std::push_heap(oldest.begin(), oldest.end());
    }
  }
  if (errno != 0) return absl::ErrnoToStatus(errno, "cannot read the folder of dumps");
  // If the clock was set back, the last dump written is not the latest by its time.
  if (!has_newest) newest_ = latest.has_value() ? latest->name : "";
  std::sort_heap(oldest.begin(), oldest.end());
  std::erase_if(oldest, [this](const Dump& dump) { return dump.name == newest_; });
  oldest_.assign(std::make_move_iterator(oldest.begin()), std::make_move_iterator(oldest.end()));
  is_read_ = true;
  read_ = now;
  return absl::OkStatus();
}

absl::StatusOr<bool> DumpPruner::Remove(const Dump& dump) const {
  const std::optional<struct stat> status = DumpStatus(folder_.get(), dump.name.c_str());
  // Already removed, or replaced.
  if (!status.has_value() || absl::TimeFromTimespec(status->st_mtim) != dump.written) return false;
  if (unlinkat(folder_.get(), dump.name.c_str(), 0) == 0) return true;
  if (errno == ENOENT) return false;
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot remove the old dump ", dump.name));
}

absl::StatusOr<DumpPruner::Removed> DumpPruner::RemoveOldest(absl::Time now) {
  Removed removed;
  while (AreCountAndBytesPassed() || (!oldest_.empty() && IsTooOld(oldest_.front(), now))) {
    if (oldest_.empty()) break;
    const Dump dump = std::move(oldest_.front());
    oldest_.pop_front();
    const absl::StatusOr<bool> gone = Remove(dump);
    if (!gone.ok()) {
      return absl::Status(gone.status().code(), absl::StrCat(gone.status().message(), "; ", removed.files, " others (",
                                                             removed.bytes, " bytes) were removed"));
    }
    files_--;
    bytes_ -= dump.bytes;
    if (!*gone) continue;
    removed.files++;
    removed.bytes += dump.bytes;
  }
  return removed;
}

bool DumpPruner::MustRead(absl::Time now) const {
  if (!is_read_) return true;
  if (oldest_.empty()) return files_ > 1;
  return AreCountAndBytesPassed() && (now < read_ || now - read_ > kTrusted);
}

absl::StatusOr<DumpPruner::Removed> DumpPruner::Prune(absl::Time now) {
  Removed removed;
  if (HasBounds() && now >= failed_ && now - failed_ < kPatience) return removed;
  absl::StatusOr<Removed> result = HasBounds() ? RemoveAll(now) : removed;
  pruning_.Note(result.status());
  if (!result.ok()) {
    is_read_ = false;
    failed_ = now;
  }
  return result;
}

absl::StatusOr<DumpPruner::Removed> DumpPruner::RemoveAll(absl::Time now) {
  Removed removed;
  absl::StatusOr<Removed> step;
  do {
    const absl::Status reading = MustRead(now) ? ReadFolder(now) : absl::OkStatus();
    step = reading.ok() ? RemoveOldest(now) : reading;
    if (!step.ok()) return step;
    removed.files += step->files;
    removed.bytes += step->bytes;
    // There may be more to remove than oldest_ held.
  } while (step->files > 0 && oldest_.empty() && files_ > 1);
  return removed;
}

}  // namespace heaptap::recording
