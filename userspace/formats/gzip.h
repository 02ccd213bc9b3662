// SPDX-License-Identifier: Apache-2.0
//
// Compression in the format of gzip(1) (RFC 1952).
#ifndef HEAPTAP_USERSPACE_FORMATS_GZIP_H_
#define HEAPTAP_USERSPACE_FORMATS_GZIP_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::formats {

// Compresses `data`, fast rather than small. Equal data gives equal bytes, because no time and no name is stored.
// Thread-safe.
std::string Gzip(absl::string_view data);

// Whether the data begins like a compressed file.
bool IsGzip(absl::string_view data);
// The content of a compressed file, which may be hostile. InvalidArgument: damaged, cut off, or more than `most` bytes.
// Thread-safe.
absl::StatusOr<std::string> Gunzip(absl::string_view data, size_t most);

}  // namespace heaptap::formats

#endif  // HEAPTAP_USERSPACE_FORMATS_GZIP_H_
