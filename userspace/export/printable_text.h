// SPDX-License-Identifier: Apache-2.0
//
// Text that a process chose (names of threads, functions, files), made fit for any reader.
#ifndef HEAPTAP_USERSPACE_EXPORT_PRINTABLE_TEXT_H_
#define HEAPTAP_USERSPACE_EXPORT_PRINTABLE_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::exporter {

// Appends `text` as UTF-8 without control characters: those, and bytes that are no UTF-8, as \ooo, the kernel's way in
// /proc/PID/maps. Protocol buffers and Prometheus want UTF-8; terminals obey control characters. Thread-safe.
void AppendPrintable(absl::string_view text, std::string& out);

// The same as a string of its own.
std::string Printable(absl::string_view text);

}  // namespace heaptap::exporter

#endif  // HEAPTAP_USERSPACE_EXPORT_PRINTABLE_TEXT_H_
