// SPDX-License-Identifier: Apache-2.0
#ifndef HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_
#define HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_

#include <atomic>
#include <string>

namespace heaptap::api {

// Where the history is, for those who read it. Thread-safe.
struct HistoryPlace {
  const std::string path;
  // Set by a reader to whom the database is not sound. The writer looks at it, and sets it aside.
  std::atomic<bool> is_suspect = false;
};

}  // namespace heaptap::api

#endif  // HEAPTAP_USERSPACE_API_HISTORY_PLACE_H_
