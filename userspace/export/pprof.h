// SPDX-License-Identifier: Apache-2.0
//
// The profile in pprof's own format, profile.proto in gzip, for `go tool pprof`, Parca, Grafana Alloy and Pyroscope.
//
// Format: github.com/google/pprof, proto/profile.proto. As Go's own heap profiles, it has four values per sample:
//   alloc_objects/count, alloc_space/bytes, inuse_objects/count, inuse_space/bytes (the default)
// They are estimates of what the program did, since readers of this format do not correct for sampling.
//
// Locations are the addresses of calls (CallAddress) in the process's address space, with numbers from 1. The first
// mapping is the program's. A call path that is not known is one location without a mapping.
//
// There is no label for sizes, though Go has one, "bytes": a context here may hold blocks of many sizes, so it would be
// a mean that changes, and readers that subtract one scrape from the next (Alloy) match samples by labels.
#ifndef HEAPTAP_USERSPACE_EXPORT_PPROF_H_
#define HEAPTAP_USERSPACE_EXPORT_PPROF_H_

#include <string>

#include "absl/time/time.h"
#include "userspace/export/source_frames.h"
#include "userspace/profile/profile.h"

namespace heaptap::exporter {

struct PprofOptions {
  absl::Time time = absl::UnixEpoch();  // of the profile; of a difference, when its window ended, as Go has it
  absl::Duration duration = {};         // of a difference's window; 0: the profile is of all that was recorded
  std::string program = {};             // path of the program's file in the mappings; "": the first file there
  // Functions and lines. Without them Parca and Google's pprof find their own by build-id or path; `go tool pprof`
  // looks into programs that Go made only, and speedscope shows nothing.
  FindSourceFrames find_source_frames = {};
  // A sample for each thread of a context, with the labels thread_id and thread (its name), and not one sample for all.
  // Threads can change their names: not for readers that match samples by labels or keep a series for each.
  bool threads = true;
  // Which of the four values readers show first.
  std::string default_sample_type = "inuse_space";
};

// The profile in that format. Differences (userspace/profile/difference.h) keep their signs. Samples whose values are
// all 0 are left out. All text in it is printable UTF-8. Takes linear time. Thread-safe if find_source_frames is.
std::string Pprof(const profile::Profile& profile, const PprofOptions& options);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_PPROF_H_
