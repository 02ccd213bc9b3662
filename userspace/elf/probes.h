// SPDX-License-Identifier: Apache-2.0
//
// USDT probes of an ELF file.
//
// Format: the notes of owner "stapsdt", type 3, that <sys/sdt.h> writes: link-time addresses of the probe, of the
// section .stapsdt.base and of the semaphore, then provider, name and arguments as NUL-terminated strings
// (https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation).
//
// Functions here are thread-safe.
#ifndef HEAPTAP_USERSPACE_ELF_PROBES_H_
#define HEAPTAP_USERSPACE_ELF_PROBES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace heaptap::elf {

// All the notes of one file, in bytes. The richest programs known (QEMU, PostgreSQL, libpython) have less than 1 MiB.
inline constexpr uint64_t kMaxNoteBytes = 16 << 20;
// Probe sites of the providers asked for, in one file. One call that the compiler inlined is one site.
inline constexpr uint64_t kMaxProbeSites = 4096;

struct ProbeSite {
  std::string provider = {};
  std::string name = {};
  uint64_t file_offset = 0;            // of the probe's instruction: what perf_event_open(2) wants
  uint64_t semaphore_file_offset = 0;  // 0: none
  uint64_t address = 0;                // link-time
  std::string arguments = {};          // as the note has them: "8@%rdi -4@16(%rsp)"
};

// The sites of the given providers in the ELF file open at `fd`, from its note sections and its note segments, each
// once, in the file's order. Notes of code that the linker threw away (no address in executable code) are left out.
// Empty: no such probe, or not an ELF executable or shared object for this machine.
// InvalidArgument: a broken ELF file, or one that exceeds a bound above. Other codes: reading failed.
absl::StatusOr<std::vector<ProbeSite>> ReadProbes(int fd, absl::Span<const absl::string_view> providers);

// Whether the first `count` arguments are whole registers in the order of the SysV calling convention, 8 bytes each,
// signed or not: "8@%rdi -8@%rsi". False for more than six.
bool ArgumentsInRegisters(absl::string_view arguments, int count);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_PROBES_H_
