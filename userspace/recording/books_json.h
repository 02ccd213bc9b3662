// SPDX-License-Identifier: Apache-2.0
//
// The totals of one target's books, as the line of JSON that --books prints. Functions here are thread safe.
#ifndef HEAPTAP_USERSPACE_RECORDING_BOOKS_JSON_H_
#define HEAPTAP_USERSPACE_RECORDING_BOOKS_JSON_H_

#include <string>
#include <vector>

#include "userspace/bpf/entries.h"
#include "userspace/recording/target.h"

namespace heaptap::recording {

struct BooksLine {
  std::string text;       // {"books": {"pid": ..., "balanced": ..., "losses": {...}, ...}}
  bool balanced = false;  // tallies and `live` agree on the number, bytes and weight of live samples
};

BooksLine BooksJson(const Target& target, const std::vector<bpf::TallyEntry>& tallies, const bpf::LiveTotals& live,
                    const bpf::Losses& lost);

}  // namespace heaptap::recording

#endif  // HEAPTAP_USERSPACE_RECORDING_BOOKS_JSON_H_
