// SPDX-License-Identifier: Apache-2.0
//
// Keeps the history within its ages (levels.h) and its size. Not thread-safe. Errors: as database.h.
//
// When the database is full, the user with the most bytes gives up points: of the finest level first, the oldest
// first. So no user can push out the history of another one.
#ifndef HEAPTAP_USERSPACE_HISTORY_RETENTION_H_
#define HEAPTAP_USERSPACE_HISTORY_RETENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/history/database.h"

namespace heaptap::history {

// Removes points that are too old, points of the largest user if more than nine tenths of the pages are in use, and
// whatever no point needs any more. Outside a transaction.
absl::Status Prune(Database& database, uint64_t most_pages, absl::Time now);

// Pages in use.
absl::StatusOr<uint64_t> UsedPages(Database& database);

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_RETENTION_H_
