// SPDX-License-Identifier: Apache-2.0
//
// The tables of the history (README.md describes them), and the file that holds them. Functions here are thread-safe
// for different files.
#ifndef HEAPTAP_USERSPACE_HISTORY_SCHEMA_H_
#define HEAPTAP_USERSPACE_HISTORY_SCHEMA_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/history/database.h"

namespace heaptap::history {

inline constexpr uint64_t kDefaultBytes = uint64_t{500} << 20;
// A smaller database has no room for the points of a few processes.
inline constexpr uint64_t kLeastBytes = uint64_t{1} << 20;

// The share of `most_bytes` for the log of changes (FILE-wal), which other readers of the file can keep from being
// emptied; the rest is for the database.
uint64_t MostLogBytes(uint64_t most_bytes);
uint64_t MostPages(uint64_t most_bytes);
uint64_t LogBytes(const std::string& path);
// Whether the file system has no room for a transaction.
bool IsDiskFull(const std::string& path);
// From now on the database does not grow beyond its share, or beyond its present size if that is more.
absl::Status LimitPages(Database& database, uint64_t most_pages);

// Opens the database for the writer of points, and creates it if there is none. A file that is not a sound database
// becomes FILE.corrupt, which replaces an earlier one, and a message says so. FailedPrecondition: another version of
// heaptap has written it.
absl::StatusOr<std::unique_ptr<Database>> OpenForWriting(const std::string& path, uint64_t most_bytes);

// DataLoss: the database is not sound. Reads the whole file through a connection of its own: an older connection would
// not read again the pages that it has cached.
absl::Status Check(const std::string& path);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_SCHEMA_H_
