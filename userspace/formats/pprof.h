// SPDX-License-Identifier: Apache-2.0
//
// The profile in the format of pprof, profile.proto in gzip, for `go tool pprof`, Parca, Grafana Alloy and Pyroscope.
//
// Format: github.com/google/pprof, proto/profile.proto. Like Go's heap profiles, it has four values per sample:
//   alloc_objects/count, alloc_space/bytes, inuse_objects/count, inuse_space/bytes (the default)
// A profile without allocated values (Profile::has_allocated) has only the last two. All values are estimates for the
// whole program, because readers of this format do not correct for sampling.
//
// Locations are the addresses of calls (CallAddress) in the process's address space, numbered from 1. The first mapping
// is the program's. An unknown call path is one location without a mapping.
//
// Without PprofOptions.blocks, samples have no label "bytes" as in Go: a context may have blocks of many sizes, so the
// label would be a mean that changes, and readers that subtract one scrape from the next (Alloy) match samples by
// labels.
#ifndef HEAPTAP_USERSPACE_FORMATS_PPROF_H_
#define HEAPTAP_USERSPACE_FORMATS_PPROF_H_

#include <string>

#include "absl/time/time.h"
#include "userspace/profile/profile.h"
#include "userspace/profile/source_frames.h"

namespace heaptap::formats {

struct PprofOptions {
  absl::Time time = absl::UnixEpoch();  // of the profile; for a difference, the end of its window, as in Go
  absl::Duration duration = {};         // of the window of a difference; 0: the profile is not a difference
  std::string program = {};             // path of the program's file in the mappings; "": the first file there
  // Functions and lines. Without them, Parca and Google's pprof look them up by build-id or path, `go tool pprof` only
  // in Go programs, and speedscope shows nothing.
  profile::FindSourceFrames find_source_frames = {};
  // A sample for each thread of a context, with the labels thread_id and thread (its name), instead of one sample for
  // all. Not for readers that match samples by labels or keep a series for each, because threads can change their
  // names.
  bool threads = true;
  // Instead of one sample for a thread: one for its allocated values, and one for each of its BlockShares, with the
  // labels bytes (the size of each block) and age (seconds, profile/ages.h). REQUIRES: threads.
  bool blocks = false;
  // The value that readers show first.
  std::string default_sample_type = "inuse_space";
};

// The profile in that format. Differences (userspace/profile/difference.h) keep their signs. Samples whose values are
// all 0 are left out. All texts are printable UTF-8. Takes linear time. Thread-safe if find_source_frames is.
std::string Pprof(const profile::Profile& profile, const PprofOptions& options);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_PPROF_H_
