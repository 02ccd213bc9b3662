// SPDX-License-Identifier: Apache-2.0
//
// Compression in the format of gzip(1) (RFC 1952).
#ifndef HEAPTAP_USERSPACE_EXPORT_GZIP_H_
#define HEAPTAP_USERSPACE_EXPORT_GZIP_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::exporter {

// Compresses `data`, fast rather than small. Equal data gives equal bytes, because no time and no name is stored.
// Thread-safe.
std::string Gzip(absl::string_view data);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_GZIP_H_
