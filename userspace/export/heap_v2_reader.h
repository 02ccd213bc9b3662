// SPDX-License-Identifier: Apache-2.0
//
// Reader of the textual heap profiles: jemalloc's threaded heap_v2 (heap_v2.h) and gperftools' (gperftools_heap.h),
// with or without mapped libraries, whoever wrote them.
//
// Counts are corrected for sampling as jeprof and pprof do it (userspace/profile/unbias.h). Of heap_v2 the lines of all
// threads count ("t*"), as for jeprof: each line is corrected on its own, so those of single threads do not add up to
// them; they are checked and left out. Addresses become return addresses again: writers put the first one of each stack
// within its call (text_profile.h).
#ifndef HEAPTAP_USERSPACE_EXPORT_HEAP_V2_READER_H_
#define HEAPTAP_USERSPACE_EXPORT_HEAP_V2_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/profile/profile.h"

namespace heaptap::exporter {

// Of one stack. Allocators' own bounds are below (jemalloc: 128, gperftools: 254).
inline constexpr size_t kMaxReadFrames = 1024;
// Of one profile; 1 GiB of the shortest stacks would be ten times as many.
inline constexpr size_t kMaxReadContexts = 1 << 22;

// The profile in `text`; `name` is the file's, for messages. Each context has one share, of thread 0. InvalidArgument
// names the line and what is wrong with it. Takes linear time. Thread-safe.
absl::StatusOr<profile::Profile> ReadHeapProfile(absl::string_view text, absl::string_view name);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_HEAP_V2_READER_H_
