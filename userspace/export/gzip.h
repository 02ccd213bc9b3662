// SPDX-License-Identifier: Apache-2.0
//
// Compression as gzip(1) does it (RFC 1952).
#ifndef HEAPTAP_USERSPACE_EXPORT_GZIP_H_
#define HEAPTAP_USERSPACE_EXPORT_GZIP_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::exporter {

// `data` compressed, fast rather than small; of equal data, equal bytes: no time and no name is in it. Thread-safe.
std::string Gzip(absl::string_view data);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_GZIP_H_
