// SPDX-License-Identifier: Apache-2.0
//
// Keeps the history within its ages (levels.h) and its size. Not thread-safe. Errors: see database.h.
//
// When the database is full, the user with the most bytes gives up points: those of the finest level first, the oldest
// first, and at last the points of ended processes. So no user can push out the history of another one.
#ifndef HEAPTAP_USERSPACE_HISTORY_RETENTION_H_
#define HEAPTAP_USERSPACE_HISTORY_RETENTION_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/base/clock.h"
#include "userspace/history/database.h"
#include "userspace/history/schema.h"

namespace heaptap::history {

// Removes points that are too old, points of the largest user if more than nine tenths of the pages are in use, and
// whatever no point needs any more. Returns the number of pages that are still in use. Must be called outside a
// transaction.
absl::StatusOr<uint64_t> Prune(Database& database, uint64_t most_pages, absl::Time now);

// Decides when a database is pruned. The database may be opened anew meanwhile.
class Pruner {
 public:
  // Points become too old, so the database is pruned at least this often.
  static constexpr absl::Duration kInterval = absl::Minutes(1);

  explicit Pruner(uint64_t most_bytes) : most_pages_(MostPages(most_bytes)) {}

  // Prunes after each kInterval, and sooner if the database fills. To be called after each transaction.
  absl::Status PruneIfDue(Database& database, absl::Time now);

  // For a transaction that found no room: prunes at once, until a tenth more of the pages is free. Returns whether any
  // page has become free. After a call that has removed nothing, the next one within kInterval does nothing.
  bool MakeRoom(Database& database, absl::Time now);

 private:
  const uint64_t most_pages_;
  base::Instant pruned_ = base::Instant::InfinitePast();
  uint64_t pages_ = 0;  // in use after the last pruning
  base::Instant no_room_until_ = base::Instant::InfinitePast();
};

}  // namespace heaptap::history

#endif  // HEAPTAP_USERSPACE_HISTORY_RETENTION_H_
