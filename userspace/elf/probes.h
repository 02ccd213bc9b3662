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

// Bytes of all notes of a file. QEMU, PostgreSQL and libpython have less than 1 MiB.
inline constexpr uint64_t kMaxNoteBytes = 16 << 20;
// Probe sites of the requested providers in one file. Each inlined copy of a call is a site.
inline constexpr uint64_t kMaxProbeSites = 4096;

struct ProbeSite {
  std::string provider = {};
  std::string name = {};
  uint64_t file_offset = 0;            // of the probe's instruction, for perf_event_open(2)
  uint64_t semaphore_file_offset = 0;  // 0: none
  uint64_t address = 0;                // link-time
  std::string arguments = {};          // as in the note: "8@%rdi -4@16(%rsp)"
};

// The sites of the given providers in the ELF file open at `fd`, from its note sections and note segments, each once,
// in the order of the file. Notes of code that the linker discarded, whose address is not in executable code, are left
// out. Empty: no such probe, or not an ELF executable or shared object for this machine. InvalidArgument: a broken ELF
// file, or a bound above is exceeded. Other codes: reading failed.
absl::StatusOr<std::vector<ProbeSite>> ReadProbes(int fd, absl::Span<const absl::string_view> providers);

// Whether the first `count` arguments are the argument registers of the SysV calling convention, in order, 8 bytes
// each, signed or not: "8@%rdi -8@%rsi". False if `count` is more than six.
bool ArgumentsInRegisters(absl::string_view arguments, int count);

}  // namespace heaptap::elf

#endif  // HEAPTAP_USERSPACE_ELF_PROBES_H_
