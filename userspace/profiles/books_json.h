// SPDX-License-Identifier: Apache-2.0
//
// The totals of one process's books, as the line of JSON that --books prints. Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_PROFILES_BOOKS_JSON_H_
#define HEAPTAP_USERSPACE_PROFILES_BOOKS_JSON_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/bpf/entries.h"

namespace heaptap::recording {

struct BooksLine {
  std::string text;       // {"books": {"pid": ..., "balanced": ..., "losses": {...}, ...}}
  bool balanced = false;  // tallies and `live` agree on the number, bytes and weight of live samples
};

// `name`: printable.
BooksLine BooksJson(pid_t pid, absl::string_view name, const std::vector<bpf::TallyEntry>& tallies,
                    const bpf::LiveTotals& live, const bpf::Losses& lost);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_PROFILES_BOOKS_JSON_H_
