// SPDX-License-Identifier: Apache-2.0
//
// Reads a heap profile in any format that heaptap knows, with symbols or without, compressed or not.
#ifndef HEAPTAP_USERSPACE_FORMATS_DUMP_READER_H_
#define HEAPTAP_USERSPACE_FORMATS_DUMP_READER_H_

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/formats/heap_v2_reader.h"
#include "userspace/formats/jeprof_symbols_reader.h"
#include "userspace/profile/profile.h"

namespace heaptap::formats {

// The largest file that is read, packed or unpacked. The largest known dumps have some MiB.
inline constexpr size_t kMaxDumpBytes = size_t{1} << 30;

struct Dump {
  profile::Profile profile;
  Symbols symbols = {};  // of a dump with symbols
};

// The profile in a file's bytes: heap_v2, gperftools' form, or pprof's. `name`: the name of the file, for messages.
// `threads`: for heap_v2; pprof's profiles always have their threads. InvalidArgument names the file, the place and the
// mistake. Thread-safe.
absl::StatusOr<Dump> ReadDump(absl::string_view bytes, absl::string_view name, ReadThreads threads);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_DUMP_READER_H_
