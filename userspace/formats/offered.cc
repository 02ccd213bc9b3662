// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/offered.h"

#include <algorithm>
#include <iterator>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/formats/collapsed.h"
#include "userspace/formats/gperftools_heap.h"
#include "userspace/formats/heap_v2.h"
#include "userspace/formats/jeprof_symbolized.h"
#include "userspace/formats/pprof.h"

namespace heaptap::formats {
namespace {

using profile::FindSourceFrames;
using profile::Snapshot;

// No character set is given, because names of mapped files may have any bytes.
constexpr char kPlainText[] = "text/plain";
constexpr char kUtf8Text[] = "text/plain; charset=utf-8";
constexpr char kBytes[] = "application/octet-stream";

absl::StatusOr<std::string> WriteHeapV2(const Snapshot& snapshot, const FindSourceFrames&) {
  return HeapV2(snapshot.profile);
}

absl::StatusOr<std::string> WriteGperftools(const Snapshot& snapshot, const FindSourceFrames&) {
  return GperftoolsHeap(snapshot.profile);
}

absl::StatusOr<std::string> WritePprof(const Snapshot& snapshot, const FindSourceFrames& find) {
  return Pprof(snapshot.profile, {.time = snapshot.time,
                                  .program = snapshot.executable,
                                  .find_source_frames = find,
                                  .blocks = snapshot.profile.HasBlocks()});
}

absl::StatusOr<std::string> WriteCollapsed(const Snapshot& snapshot, const FindSourceFrames& find) {
  return CollapsedWithin(kMaxCollapsedBytes, snapshot.profile, CollapsedValue::kLiveBytes, find);
}

absl::StatusOr<std::string> WriteJeprof(const Snapshot& snapshot, const FindSourceFrames& find) {
  return JeprofSymbolized(snapshot.profile, snapshot.executable, find);
}

constexpr OfferedFormat kOffered[] = {
    {.name = "heap_v2", .use = "jemalloc's, for jeprof", .content_type = kPlainText, .write = WriteHeapV2},
    {.name = "gperftools", .use = "for google-pprof", .content_type = kUtf8Text, .write = WriteGperftools},
    {.name = "pprof", .use = "for go tool pprof", .content_type = kBytes, .has_names = true, .write = WritePprof},
    {.name = "blocks",
     .use = "pprof with the sizes and ages of what is live",
     .content_type = kBytes,
     .has_names = true,
     .has_blocks = true,
     .write = WritePprof},
    {.name = "collapsed",
     .use = "for flame graphs",
     .content_type = kUtf8Text,
     .has_names = true,
     .repeats_names = true,
     .write = WriteCollapsed},
    {.name = "jeprof",
     .use = "with symbols, for jeprof on any machine",
     .content_type = kUtf8Text,
     .has_names = true,
     .write = WriteJeprof},
};

}  // namespace

absl::Span<const OfferedFormat> OfferedFormats() { return kOffered; }

const OfferedFormat* FindOffered(absl::string_view name) {
  const auto* const found = std::ranges::find(kOffered, name, &OfferedFormat::name);
  return found == std::end(kOffered) ? nullptr : found;
}

std::string OfferedNames() {
  std::string names;
  for (const OfferedFormat& format : kOffered) {
    const bool is_last = &format == std::end(kOffered) - 1;
    absl::StrAppend(&names, names.empty() ? "" : is_last ? " or " : ", ", format.name);
  }
  return names;
}

}  // namespace heaptap::formats
