// SPDX-License-Identifier: Apache-2.0
//
// Makes text that a process chose (names of threads, functions, files) safe for every reader.
#ifndef HEAPTAP_USERSPACE_BASE_PRINTABLE_TEXT_H_
#define HEAPTAP_USERSPACE_BASE_PRINTABLE_TEXT_H_

#include <cstddef>
#include <set>
#include <string>

#include "absl/strings/string_view.h"

namespace heaptap::base {

// Appends `text` as UTF-8 without control characters. Control characters, and bytes that are not UTF-8, become \ooo as
// in /proc/PID/maps. Protocol buffers and Prometheus need UTF-8; terminals obey control characters. Thread-safe.
void AppendPrintable(absl::string_view text, std::string& out);

// Returns the printable text as a new string.
std::string Printable(absl::string_view text);

// The number of characters of text in UTF-8, and the first or last characters of the text: at most so many, none of
// them cut. Thread-safe.
size_t CountCharacters(absl::string_view text);
absl::string_view FirstCharacters(absl::string_view text, size_t most);
absl::string_view LastCharacters(absl::string_view text, size_t most);

// The first three of `texts`, printable, and how many more there are: "a, b, c and 5 more". Thread-safe.
std::string SomeOf(const std::set<std::string>& texts);

}  // namespace heaptap::base

#endif  // HEAPTAP_USERSPACE_BASE_PRINTABLE_TEXT_H_
