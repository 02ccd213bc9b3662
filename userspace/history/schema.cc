// SPDX-License-Identifier: Apache-2.0
#include "userspace/history/schema.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/base/messages.h"
#include "userspace/base/printable_text.h"

namespace heaptap::history {
namespace {

// The version of the tables in README.md. Version 1 has the same tables, but points of an older form only
// (point_rows.h), so an older heaptap must not read a database that this one has written to.
constexpr int kSchemaVersion = 2;
constexpr int kOldestVersion = 1;

// A whole point of 200 paths takes about 1,600 bytes, and a row without a rowid must fit four times into a page.
constexpr uint64_t kPageBytes = 8192;
constexpr uint64_t kLogBytes = 16 << 20;
constexpr uint64_t kShareOfLog = 8;
// SQLite moves the log into the database at this size, or at the bound of the log.
constexpr uint64_t kCheckpointPages = 128;

constexpr char kTables[] = R"sql(
CREATE TABLE IF NOT EXISTS processes(
  id INTEGER PRIMARY KEY, service TEXT NOT NULL, command TEXT NOT NULL, pid INTEGER NOT NULL,
  process_id INTEGER NOT NULL, owner INTEGER, started INTEGER NOT NULL, ended INTEGER, how TEXT,
  last0 INTEGER, last1 INTEGER, last2 INTEGER,
  UNIQUE(process_id, pid, started));
CREATE INDEX IF NOT EXISTS processes_service ON processes(service);
CREATE INDEX IF NOT EXISTS processes_command ON processes(command);
CREATE INDEX IF NOT EXISTS processes_pid ON processes(pid);
CREATE INDEX IF NOT EXISTS processes_ended ON processes(ended);
CREATE TABLE IF NOT EXISTS ticks(level INTEGER, time INTEGER, PRIMARY KEY(level, time)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS points(
  level INTEGER, time INTEGER, process INTEGER, live_bytes INTEGER NOT NULL, live_objects INTEGER NOT NULL,
  rss_bytes INTEGER, limit_bytes INTEGER, allocated_bytes INTEGER NOT NULL, lg_sample INTEGER NOT NULL,
  lost INTEGER NOT NULL, whole INTEGER NOT NULL, rows BLOB NOT NULL,
  PRIMARY KEY(level, time, process)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS process_paths(
  process INTEGER, path INTEGER, number INTEGER NOT NULL, PRIMARY KEY(process, path)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS process_paths_path ON process_paths(path);
CREATE TABLE IF NOT EXISTS paths(id INTEGER PRIMARY KEY, frames BLOB NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS files(
  id INTEGER PRIMARY KEY, path TEXT NOT NULL, version BLOB NOT NULL, build_id TEXT, UNIQUE(path, version));
CREATE TABLE IF NOT EXISTS frames(
  id INTEGER PRIMARY KEY, file INTEGER NOT NULL, offset INTEGER NOT NULL, named INTEGER NOT NULL DEFAULT 0,
  UNIQUE(file, offset));
CREATE TABLE IF NOT EXISTS names(
  frame INTEGER, depth INTEGER, function TEXT NOT NULL, file TEXT NOT NULL, line INTEGER NOT NULL,
  PRIMARY KEY(frame, depth)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS marks(
  id INTEGER PRIMARY KEY, time INTEGER NOT NULL, process INTEGER, kind TEXT NOT NULL, text TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS marks_process ON marks(process);
)sql";

absl::StatusOr<int64_t> Integer(Database& database, const char* sql) {
  Statement read = database.Prepare(sql);
  const int64_t value = read.Step() ? read.Integer(0) : 0;
  if (!read.status().ok()) return read.status();
  return value;
}

absl::Status CheckWhole(Database& database) {
  Statement check = database.Prepare("PRAGMA quick_check(1)");
  if (!check.Step()) return check.status();
  const std::string answer = check.Text(0);
  return answer == "ok" ? absl::OkStatus() : absl::DataLossError(answer);
}

absl::Status Prepare(Database& database, uint64_t most_bytes) {
  const uint64_t checkpoint_pages = std::min(kCheckpointPages, MostLogBytes(most_bytes) / kPageBytes);
  for (const std::string& setting :
       {absl::StrCat("PRAGMA page_size = ", kPageBytes), std::string("PRAGMA auto_vacuum = INCREMENTAL"),
        std::string("PRAGMA journal_mode = WAL"), std::string("PRAGMA synchronous = NORMAL"),
        absl::StrCat("PRAGMA wal_autocheckpoint = ", checkpoint_pages),
        absl::StrCat("PRAGMA journal_size_limit = ", checkpoint_pages * kPageBytes)}) {
    if (absl::Status status = database.Execute(setting); !status.ok()) return status;
  }
  if (absl::Status status = CheckWhole(database); !status.ok()) return status;
  const absl::StatusOr<int64_t> version = Integer(database, "PRAGMA user_version");
  if (!version.ok()) return version.status();
  if (*version != 0 && (*version < kOldestVersion || *version > kSchemaVersion)) {
    return absl::FailedPreconditionError(absl::StrCat("it was written by another version of heaptap (schema ", *version,
                                                      ", this one has ", kSchemaVersion, ")"));
  }
  absl::Status status = database.Execute(kTables);
  if (status.ok()) status = database.Execute(absl::StrCat("PRAGMA user_version = ", kSchemaVersion));
  if (status.ok()) status = LimitPages(database, MostPages(most_bytes));
  return status;
}

absl::StatusOr<std::unique_ptr<Database>> OpenSound(const std::string& path, uint64_t most_bytes) {
  absl::StatusOr<std::unique_ptr<Database>> database = Database::Create(path);
  if (!database.ok()) return database;
  if (absl::Status status = Prepare(**database, most_bytes); !status.ok()) return status;
  return database;
}

}  // namespace

uint64_t MostLogBytes(uint64_t most_bytes) { return std::min(kLogBytes, most_bytes / kShareOfLog); }
// The log counts twice: a transaction that begins while the log is below its bound is written to the log, too.
uint64_t MostPages(uint64_t most_bytes) { return (most_bytes - 2 * MostLogBytes(most_bytes)) / kPageBytes; }

absl::Status LimitPages(Database& database, uint64_t most_pages) {
  return database.Execute(absl::StrCat("PRAGMA max_page_count = ", most_pages));
}

uint64_t LogBytes(const std::string& path) {
  struct stat log;
  return stat(absl::StrCat(path, "-wal").c_str(), &log) == 0 ? log.st_size : 0;
}

bool IsDiskFull(const std::string& path) {
  // A transaction of one moment writes less than this, unless very many processes start at that moment.
  constexpr uint64_t kRoom = 1 << 20;
  struct statvfs disk;
  // Root may use the reserved blocks, too.
  return statvfs(path.c_str(), &disk) == 0 && uint64_t{disk.f_bfree} * disk.f_frsize < kRoom;
}

absl::Status Check(const std::string& path) {
  const absl::StatusOr<std::unique_ptr<Database>> database = Database::Open(path);
  return database.ok() ? CheckWhole(**database) : database.status();
}

absl::StatusOr<std::unique_ptr<Database>> OpenForWriting(const std::string& path, uint64_t most_bytes) {
  absl::StatusOr<std::unique_ptr<Database>> database = OpenSound(path, most_bytes);
  if (!absl::IsDataLoss(database.status())) return database;
  const std::string aside = absl::StrCat(path, ".corrupt");
  if (rename(path.c_str(), aside.c_str()) != 0) {
    return absl::UnavailableError(absl::StrCat("it is corrupt, and cannot be renamed: ", strerror(errno)));
  }
  // The log belongs to the file that is set aside. If this file has no log, an older log must not stay there.
  for (const char* end : {"-wal", "-shm"}) {
    if (rename(absl::StrCat(path, end).c_str(), absl::StrCat(aside, end).c_str()) != 0) {
      remove(absl::StrCat(aside, end).c_str());
    }
  }
  base::Say(absl::StrCat("the history in ", base::Printable(path), " is corrupt (",
                         base::Printable(database.status().message()), "): it is now ", base::Printable(aside),
                         ", and a new one begins"));
  return OpenSound(path, most_bytes);
}

}  // namespace heaptap::history
