// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/retention.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "userspace/history/levels.h"
#include "userspace/history/point_rows.h"
#include "userspace/history/schema.h"

namespace heaptap::history {
namespace {

absl::StatusOr<uint64_t> UsedPages(Database& database) {
  Statement pages =
      database.Prepare("SELECT page_count - freelist_count FROM pragma_page_count, pragma_freelist_count");
  if (!pages.Step()) return pages.status();
  return pages.Integer(0);
}

// When the first share of the pages is in use, points are removed until only the second share is. The rest is for what
// is written until the next pruning.
constexpr double kFull = 0.9;
constexpr double kEnough = 0.85;
// The room that is made at a time for a transaction that found none. The points of a moment in which many processes
// start need more room than kFull leaves.
constexpr double kRoom = 0.1;
// A database that stays full, because nothing more can be removed, is pruned again when this share was written: finding
// the user with the most bytes takes a second in a database of 500 MB.
constexpr double kWorthPruning = 0.01;
// After this many windows, another user may have the most bytes.
constexpr size_t kWindowsAtATime = 16;
// Of a user's ended processes, one in this many is removed at a time, for the same reason.
constexpr size_t kEndedAtATime = 8;

// Free pages are used again. If more than this share is free, some pages go back to the file system.
constexpr double kFree = 0.25;
constexpr char kGiveBack[] = "PRAGMA incremental_vacuum(1024)";

// A transaction. Rolls back at its end, unless it was committed.
class Transaction {
 public:
  explicit Transaction(Database& database) : database_(database), begun_(database.Execute("BEGIN IMMEDIATE")) {}
  ~Transaction() {
    if (begun_.ok() && !is_committed_) database_.Execute("ROLLBACK").IgnoreError();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  const absl::Status& begun() const { return begun_; }
  absl::Status Commit() {
    absl::Status status = database_.Execute("COMMIT");
    is_committed_ = status.ok();
    return status;
  }

 private:
  Database& database_;
  absl::Status begun_;
  bool is_committed_ = false;
};

// Removes the points of a level before `time`: those of one user (-1: of processes without a user), or of all users.
absl::Status RemovePoints(Database& database, size_t level, int64_t time, std::optional<int64_t> owner) {
  const std::string of_owner =
      owner.has_value() ? " AND process IN (SELECT id FROM processes WHERE coalesce(owner, -1) = ?3)" : "";
  Statement remove =
      database.Prepare(absl::StrCat("DELETE FROM points WHERE level = ?1 AND time < ?2", of_owner).c_str());
  remove.Bind(static_cast<int64_t>(level)).Bind(time);
  if (owner.has_value()) remove.Bind(*owner);
  if (absl::Status status = remove.Run(); !status.ok()) return status;
  const std::string last = absl::StrCat("last", level);
  Statement forget = database.Prepare(absl::StrCat("UPDATE processes SET ", last, " = NULL WHERE ", last, " < ?1",
                                                   owner.has_value() ? " AND coalesce(owner, -1) = ?2" : "")
                                          .c_str());
  forget.Bind(time);
  if (owner.has_value()) forget.Bind(*owner);
  if (absl::Status status = forget.Run(); !status.ok()) return status;
  if (owner.has_value()) return absl::OkStatus();
  Statement ticks = database.Prepare("DELETE FROM ticks WHERE level = ? AND time < ?");
  return ticks.Bind(static_cast<int64_t>(level)).Bind(time).Run();
}

// The end of the window of the level's oldest point, of one user or of all users. None: there is no point before
// `limit`, or the window ends after `limit`.
absl::StatusOr<std::optional<int64_t>> OldestWindow(Database& database, size_t level, int64_t limit,
                                                    std::optional<int64_t> owner) {
  Statement first =
      database.Prepare(owner.has_value() ? "SELECT time FROM points CROSS JOIN processes ON processes.id = process "
                                           "WHERE level = ?1 AND coalesce(owner, -1) = ?2 ORDER BY time LIMIT 1"
                                         : "SELECT time FROM ticks WHERE level = ?1 ORDER BY time LIMIT 1");
  first.Bind(static_cast<int64_t>(level));
  if (owner.has_value()) first.Bind(*owner);
  if (!first.Step()) return first.status().ok() ? absl::StatusOr<std::optional<int64_t>>(std::nullopt) : first.status();
  const int64_t end =
      WindowBegin(level, first.Integer(0)) + kStepsOfWindow * absl::ToInt64Milliseconds(Levels()[level].step);
  return end <= limit ? std::optional<int64_t>(end) : std::nullopt;
}

// Removes one window in a transaction of its own, so that no transaction is long and the log stays small.
absl::Status RemoveWindow(Database& database, size_t level, int64_t end, std::optional<int64_t> owner) {
  Transaction transaction(database);
  if (!transaction.begun().ok()) return transaction.begun();
  if (absl::Status status = RemovePoints(database, level, end, owner); !status.ok()) return status;
  return transaction.Commit();
}

absl::Status RemoveOld(Database& database, absl::Time now) {
  for (size_t level = 0; level < kLevels; level++) {
    const int64_t limit = absl::ToUnixMillis(now - Levels()[level].age);
    for (;;) {
      const auto end = OldestWindow(database, level, limit, std::nullopt);
      if (!end.ok()) return end.status();
      if (!end->has_value()) break;
      if (absl::Status status = RemoveWindow(database, level, **end, std::nullopt); !status.ok()) return status;
    }
  }
  Statement marks = database.Prepare("DELETE FROM marks WHERE time < ?");
  return marks.Bind(absl::ToUnixMillis(now - Levels()[kLevels - 1].age)).Run();
}

// Removes the frames that no path has.
absl::Status RemoveUnusedFrames(Database& database) {
  absl::flat_hash_set<int64_t> used;
  Statement paths = database.Prepare("SELECT frames FROM paths");
  while (paths.Step()) {
    const absl::StatusOr<std::vector<uint64_t>> frames = DecodeNumbers(paths.Text(0));
    if (!frames.ok()) return absl::DataLossError(frames.status().message());
    used.insert(frames->begin(), frames->end());
  }
  if (!paths.status().ok()) return paths.status();
  std::vector<int64_t> unused;
  Statement frames = database.Prepare("SELECT id FROM frames");
  while (frames.Step()) {
    if (!used.contains(frames.Integer(0))) unused.push_back(frames.Integer(0));
  }
  if (!frames.status().ok()) return frames.status();
  Statement remove = database.Prepare("DELETE FROM frames WHERE id = ?");
  Statement remove_names = database.Prepare("DELETE FROM names WHERE frame = ?");
  for (const int64_t frame : unused) {
    absl::Status status = remove.Bind(frame).Run();
    if (status.ok()) status = remove_names.Bind(frame).Run();
    if (!status.ok()) return status;
  }
  return database.Execute("DELETE FROM files WHERE id NOT IN (SELECT file FROM frames)");
}

// Removes ended processes without points, and what only they had.
absl::Status RemoveOrphans(Database& database) {
  Transaction transaction(database);
  if (!transaction.begun().ok()) return transaction.begun();
  absl::Status status = database.Execute(
      "DELETE FROM processes WHERE ended IS NOT NULL AND last0 IS NULL AND last1 IS NULL AND last2 IS NULL");
  if (!status.ok() || database.changes() == 0) return status;
  for (const char* sql : {"DELETE FROM marks WHERE process IS NOT NULL AND process NOT IN (SELECT id FROM processes)",
                          "DELETE FROM process_paths WHERE process NOT IN (SELECT id FROM processes)",
                          "DELETE FROM paths WHERE id NOT IN (SELECT path FROM process_paths)"}) {
    if (status = database.Execute(sql); !status.ok()) return status;
  }
  if (status = RemoveUnusedFrames(database); !status.ok()) return status;
  return transaction.Commit();
}

// Removes some of the user's windows, those of the finest level first. False: there is none.
absl::StatusOr<bool> RemoveWindows(Database& database, int64_t owner, uint64_t enough_pages) {
  Statement newest = database.Prepare("SELECT max(time) FROM ticks WHERE level = ?");
  bool has_removed = false;
  for (size_t level = 0, windows = 0; level < kLevels && windows < kWindowsAtATime;) {
    newest.Reset().Bind(static_cast<int64_t>(level));
    // The window of the latest points is in use.
    const int64_t limit = newest.Step() ? WindowBegin(level, newest.Integer(0)) : 0;
    newest.Reset();
    const auto end = OldestWindow(database, level, limit, owner);
    if (!end.ok()) return end.status();
    if (!end->has_value()) {
      level++;
      continue;
    }
    if (absl::Status status = RemoveWindow(database, level, **end, owner); !status.ok()) return status;
    has_removed = true;
    windows++;
    const absl::StatusOr<uint64_t> used = UsedPages(database);
    if (!used.ok()) return used.status();
    if (*used < enough_pages) break;
  }
  return has_removed;
}

// Removes the points of some of the user's ended processes, those that ended first. False: there is no such process.
absl::StatusOr<bool> RemoveEnded(Database& database, int64_t owner) {
  Transaction transaction(database);
  if (!transaction.begun().ok()) return transaction.begun();
  Statement ended = database.Prepare(
      "SELECT id, started FROM processes WHERE ended IS NOT NULL AND coalesce(owner, -1) = ? "
      "AND coalesce(last0, last1, last2) IS NOT NULL ORDER BY ended");
  std::vector<std::pair<int64_t, int64_t>> processes;
  for (ended.Bind(owner); ended.Step();) processes.emplace_back(ended.Integer(0), ended.Integer(1));
  if (!ended.status().ok()) return ended.status();
  if (processes.empty()) return false;
  processes.resize((processes.size() + kEndedAtATime - 1) / kEndedAtATime);
  Statement remove = database.Prepare("DELETE FROM points WHERE level = ? AND time >= ? AND process = ?");
  Statement forget = database.Prepare("UPDATE processes SET last0 = NULL, last1 = NULL, last2 = NULL WHERE id = ?");
  for (const auto& [id, started] : processes) {
    absl::Status status = forget.Bind(id).Run();
    for (size_t level = 0; status.ok() && level < kLevels; level++) {
      status = remove.Bind(static_cast<int64_t>(level)).Bind(started).Bind(id).Run();
    }
    if (!status.ok()) return status;
  }
  if (absl::Status status = transaction.Commit(); !status.ok()) return status;
  if (absl::Status status = RemoveOrphans(database); !status.ok()) return status;
  return true;
}

// Removes some points of the user with the most bytes. False: there is nothing more to remove.
absl::StatusOr<bool> RemoveFromLargest(Database& database, uint64_t enough_pages) {
  Statement largest = database.Prepare(
      "SELECT coalesce(owner, -1) AS user, sum(40 + length(rows)) AS bytes FROM points "
      "JOIN processes ON processes.id = points.process GROUP BY user ORDER BY bytes DESC LIMIT 1");
  if (!largest.Step()) return largest.status().ok() ? absl::StatusOr<bool>(false) : largest.status();
  const int64_t owner = largest.Integer(0);
  largest.Reset();
  absl::StatusOr<bool> removed = RemoveWindows(database, owner, enough_pages);
  if (!removed.ok() || *removed) return removed;
  // Only windows in use are left, in which each point of a running process needs the points before it.
  return RemoveEnded(database, owner);
}

// Gives free pages back to the file system: all pages beyond the bound, which may have been larger at the last start,
// and some others if many are free.
absl::Status GiveBack(Database& database, uint64_t most_pages) {
  for (;;) {
    Statement count =
        database.Prepare("SELECT page_count, freelist_count FROM pragma_page_count, pragma_freelist_count");
    if (!count.Step()) return count.status();
    const auto pages = static_cast<uint64_t>(count.Integer(0));
    const auto free = static_cast<uint64_t>(count.Integer(1));
    count.Reset();
    const bool is_too_large = pages > most_pages && free > 0;
    if (!is_too_large && static_cast<double>(free) <= kFree * static_cast<double>(pages)) break;
    if (absl::Status status = database.Execute(kGiveBack); !status.ok()) return status;
    if (absl::Status status = database.Execute("PRAGMA wal_checkpoint(TRUNCATE)"); !status.ok()) return status;
    if (!is_too_large) break;
  }
  return LimitPages(database, most_pages);
}

uint64_t ShareOf(uint64_t pages, double share) { return static_cast<uint64_t>(share * static_cast<double>(pages)); }

bool IsFull(uint64_t used, uint64_t most_pages) { return used >= ShareOf(most_pages, kFull); }

// Removes points until fewer than `enough_pages` pages are in use, and whatever no point needs. Returns the number of
// pages that are still in use.
absl::StatusOr<uint64_t> PruneTo(Database& database, uint64_t enough_pages, uint64_t most_pages) {
  for (;;) {
    absl::StatusOr<uint64_t> used = UsedPages(database);
    if (!used.ok()) return used;
    if (*used < enough_pages) break;
    const absl::StatusOr<bool> removed = RemoveFromLargest(database, enough_pages);
    if (!removed.ok()) return removed.status();
    if (!*removed) break;
  }
  if (absl::Status status = RemoveOrphans(database); !status.ok()) return status;
  if (absl::Status status = GiveBack(database, most_pages); !status.ok()) return status;
  return UsedPages(database);
}

}  // namespace

absl::StatusOr<uint64_t> Prune(Database& database, uint64_t most_pages, absl::Time now) {
  if (absl::Status status = RemoveOld(database, now); !status.ok()) return status;
  absl::StatusOr<uint64_t> used = UsedPages(database);
  if (!used.ok()) return used;
  return PruneTo(database, IsFull(*used, most_pages) ? ShareOf(most_pages, kEnough) : most_pages, most_pages);
}

absl::Status Pruner::PruneIfDue(Database& database, absl::Time now) {
  const absl::StatusOr<uint64_t> used = UsedPages(database);
  if (!used.ok()) return used.status();
  const bool is_filling = IsFull(*used, most_pages_) && *used > pages_ + ShareOf(most_pages_, kWorthPruning);
  if (!is_filling && base::Now() - pruned_ < kInterval) return absl::OkStatus();
  pruned_ = base::Now();
  const absl::StatusOr<uint64_t> left = Prune(database, most_pages_, now);
  pages_ = left.value_or(*used);
  return left.status();
}

bool Pruner::MakeRoom(Database& database, absl::Time now) {
  if (base::Now() < no_room_until_) return false;
  const uint64_t used = UsedPages(database).value_or(0);
  const absl::Status old = RemoveOld(database, now);
  const uint64_t enough = used - std::min(used, ShareOf(most_pages_, kRoom));
  const uint64_t left = old.ok() ? PruneTo(database, enough, most_pages_).value_or(used) : used;
  if (left < used) return true;
  no_room_until_ = base::Now() + kInterval;
  return false;
}

}  // namespace heaptap::history
