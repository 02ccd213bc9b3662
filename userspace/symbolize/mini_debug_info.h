// SPDX-License-Identifier: Apache-2.0
//
// Mini debug information: the function symbols of a stripped file, as Fedora and RHEL ship them in each program.
//
// Format: the section .gnu_debugdata is an ELF file, compressed by xz(1), with a .symtab of the functions that are not
// in .dynsym; its other sections have no bytes (GDB's manual, "MiniDebugInfo").
#ifndef HEAPTAP_USERSPACE_SYMBOLIZE_MINI_DEBUG_INFO_H_
#define HEAPTAP_USERSPACE_SYMBOLIZE_MINI_DEBUG_INFO_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "userspace/elf/file.h"

namespace heaptap::symbolize {

// The largest compressed section. The largest programs of Fedora have one of a few megabytes.
inline constexpr uint64_t kMaxPackedBytes = 16 << 20;
// The largest ELF file in it: a million symbols.
inline constexpr uint64_t kMaxUnpackedBytes = 64 << 20;

// The ELF file in the section .gnu_debugdata of a hostile file. NotFound: there is no such section. InvalidArgument: it
// is damaged or cut off, or exceeds a bound above. ResourceExhausted: unpacking takes too much memory. To be called by
// a reader without rights, because liblzma parses hostile bytes. Thread-safe.
absl::StatusOr<std::string> ReadMiniDebugInfo(const elf::File& file);

}  // namespace heaptap::symbolize

#endif  // HEAPTAP_USERSPACE_SYMBOLIZE_MINI_DEBUG_INFO_H_
