// SPDX-License-Identifier: Apache-2.0
//
// The contents of a section with SHF_COMPRESSED (System V gABI, chapter 4, "Section Compression").
#ifndef HEAPTAP_USERSPACE_ELF_COMPRESSED_SECTION_H_
#define HEAPTAP_USERSPACE_ELF_COMPRESSED_SECTION_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace heaptap::elf {

// `section`: its bytes in the file, which may be hostile: a forged size costs no memory. Unimplemented: it is not
// compressed by zlib. InvalidArgument: it is broken, or has more than `limit` bytes. Thread-safe.
absl::StatusOr<std::string> Uncompressed(absl::string_view section, uint64_t limit);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_COMPRESSED_SECTION_H_
