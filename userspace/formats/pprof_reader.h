// SPDX-License-Identifier: Apache-2.0
//
// Reads heap profiles in the format of pprof (pprof.h): those of heaptap, of Go, and of other programs that write the
// sample types inuse_space, inuse_objects, alloc_space or alloc_objects. gperftools' "space" and "objects" count as
// live.
//
// The values of such a profile are estimates for the whole program. The number of samples behind them follows from the
// mean size and the period: an object of s bytes is a sample with probability 1 - exp(-s/R).
//
// Names inside the profile are kept as they are, because a hostile name can cost any amount of time to demangle. Some
// writers give no addresses, or one address to several functions. Such places get addresses of their own, in a part of
// the address space that no process has; equal names get equal addresses in all profiles that this process reads, so
// that profiles can be compared. `drop_frames` and `keep_frames` are not applied.
#ifndef HEAPTAP_USERSPACE_FORMATS_PPROF_READER_H_
#define HEAPTAP_USERSPACE_FORMATS_PPROF_READER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/profile/profile.h"

namespace heaptap::formats {

struct PprofContent {
  profile::Profile profile;
  Symbols symbols = {};  // names inside the profile
};

// Whether the bytes, unpacked (gzip.h), begin like such a profile, and not like a textual dump.
bool IsPprof(absl::string_view bytes);

// The heap profile in `bytes`, unpacked. `name`: the name of the file, for messages. Live values may be negative, as in
// a difference. Threads come from the labels thread_id and thread, blocks from the labels bytes and age (pprof.h).
// InvalidArgument: damaged, or not a heap profile. Takes linear time. Thread-safe.
absl::StatusOr<PprofContent> ReadPprof(absl::string_view bytes, absl::string_view name);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_PPROF_READER_H_
