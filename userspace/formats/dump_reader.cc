// SPDX-License-Identifier: Apache-2.0
#include "userspace/formats/dump_reader.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "userspace/base/printable_text.h"
#include "userspace/formats/gzip.h"
#include "userspace/formats/pprof_reader.h"

namespace heaptap::formats {

absl::StatusOr<Dump> ReadDump(absl::string_view bytes, absl::string_view name, ReadThreads threads) {
  std::string unpacked;
  if (IsGzip(bytes)) {
    absl::StatusOr<std::string> text = Gunzip(bytes, kMaxDumpBytes);
    if (!text.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot read ", base::Printable(name), ": ", text.status().message()));
    }
    unpacked = *std::move(text);
    bytes = unpacked;
  }
  if (IsPprof(bytes)) {
    absl::StatusOr<PprofContent> content = ReadPprof(bytes, name);
    if (!content.ok()) return content.status();
    return Dump{.profile = std::move(content->profile), .symbols = std::move(content->symbols)};
  }
  absl::StatusOr<SymbolizedText> parts = SplitSymbolized(bytes, name);
  if (!parts.ok()) return parts.status();
  absl::StatusOr<profile::Profile> profile = ReadHeapProfile(parts->dump, name, threads);
  if (!profile.ok()) return profile.status();
  return Dump{.profile = *std::move(profile), .symbols = std::move(parts->symbols)};
}

}  // namespace heaptap::formats
