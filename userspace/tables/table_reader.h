// SPDX-License-Identifier: Apache-2.0
//
// Has workers read the unwind tables of files, and keeps the tables by version of the file.
//
// Files with equal tables, such as a library in two containers, share one: tables are compared, because a build-id is
// only a file's claim. Not thread safe.
#ifndef HEAPTAP_USERSPACE_TABLES_TABLE_READER_H_
#define HEAPTAP_USERSPACE_TABLES_TABLE_READER_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "userspace/base/clock.h"
#include "userspace/base/retries.h"
#include "userspace/crews/errands.h"
#include "userspace/spaces/seen_file.h"
#include "userspace/unwind/file_table.h"
#include "userspace/worker/file_version.h"
#include "userspace/worker/reader_jobs.h"

namespace heaptap::recording {

// Null: the file has no unwind information.
using SharedTable = std::shared_ptr<const unwind::FileTable>;

class TableReader {
 public:
  // What a file of one version has.
  struct Contents {
    absl::StatusOr<SharedTable> table = nullptr;
    std::string build_id = {};  // bytes; empty: none
  };
  // The result of reading a file of the version `asked`.
  struct Reading {
    worker::FileVersion asked;
    // The version that was read: the file may have been written to meanwhile. None: the reader did not get the file,
    // because its process is gone or has mapped another file there.
    std::optional<worker::FileVersion> version;
    Contents contents;
  };
  using Done = std::function<void(const Reading& reading)>;
  // `errands` must outlive this object. `done` is called for each file that has been read.
  TableReader(worker::Errands& errands, Done done) : errands_(errands), done_(std::move(done)) {}

  // Begins to read the table of a file, unless this version has been read or is being read. The payer joins a reading
  // that is under way.
  void Read(const SeenFile& file);
  // To be called when stacks wait for the table of a version that is being read. See UnwindTables::Hasten.
  void Hasten(const worker::FileVersion& version);
  // The result for a version; null: it has not been read, or is forgotten.
  const Contents* Find(const worker::FileVersion& version) const;
  // Whether an error of Contents::table is about the contents of the file. Others may pass.
  static bool IsVerdict(const absl::Status& status);
  // Whether a version whose reading failed may be read again.
  bool IsDue(const worker::FileVersion& version, base::Instant now) const { return retries_.IsDue(version, now); }
  // An equal table that exists already, or else a new one. It must not outlive this object.
  SharedTable Share(unwind::FileTable rows);

  bool IsReading() const { return !being_read_.empty(); }
  bool IsReading(const worker::FileVersion& version) const { return being_read_.contains(version); }
  // Files that have been read so far.
  uint64_t tables_read() const { return tables_read_; }
  // Bytes of all tables that exist.
  uint64_t bytes_kept() const { return bytes_kept_; }
  // Forgets what has been read. Tables in use stay.
  void Forget() { read_.clear(); }

 private:
  void HandleRead(const worker::FileVersion& asked, const worker::Answer& answer);
  // Remembers the result of reading a version.
  Contents Keep(const worker::IdentityOfFile& identity, absl::StatusOr<unwind::FileTable> rows);

  worker::Errands& errands_;
  const Done done_;
  uint64_t bytes_kept_ = 0;
  uint64_t tables_read_ = 0;
  struct Job {
    uid_t payer;
    worker::Errands::JobId id;
    bool is_hastened = false;
  };
  std::map<worker::FileVersion, Job> being_read_;
  std::multimap<uint64_t, std::weak_ptr<const unwind::FileTable>> by_content_;
  std::map<worker::FileVersion, Contents> read_;
  base::Retries<worker::FileVersion> retries_{base::RetryPauses{}};
};

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_TABLES_TABLE_READER_H_
