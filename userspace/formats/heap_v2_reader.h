// SPDX-License-Identifier: Apache-2.0
//
// Reads textual heap profiles of any writer: jemalloc's threaded heap_v2 (heap_v2.h) and gperftools' form
// (gperftools_heap.h), with or without mapped libraries.
//
// Counts are corrected for sampling as in jeprof and pprof (userspace/profile/unbias.h). In heap_v2 the lines of all
// threads ("t*") count, as for jeprof. Lines of single threads are checked and left out by default: corrected
// separately, they do not add up. Addresses become return addresses again: writers put the first address of each stack
// inside its call (text_profile.h).
#ifndef HEAPTAP_USERSPACE_FORMATS_HEAP_V2_READER_H_
#define HEAPTAP_USERSPACE_FORMATS_HEAP_V2_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/profile.h"

namespace heaptap::formats {

// Frames of one stack. Allocators have lower bounds (jemalloc: 128, gperftools: 254).
inline constexpr size_t kMaxReadFrames = 1024;
// Contexts of one profile. 1 GiB of the shortest stacks would be ten times as many.
inline constexpr size_t kMaxReadContexts = 1 << 22;

// Threads whose names are kept. The kernel allows 4 million processes and threads in all.
inline constexpr size_t kMaxReadThreads = 1 << 20;

enum class ReadThreads {
  kSum,       // each context has one share, of thread 0
  kSeparate,  // each context has the shares of its threads, scaled so that they add up; `thread_names` has an entry for
              // each thread of the dump, and none if the dump does not tell threads apart
};

// The profile in `text`. `name`: the name of the file, for messages. InvalidArgument names the line and the mistake.
// Takes linear time, except for sorting threads. Thread-safe.
absl::StatusOr<profile::Profile> ReadHeapProfile(absl::string_view text, absl::string_view name,
                                                 ReadThreads threads = ReadThreads::kSum);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_HEAP_V2_READER_H_
