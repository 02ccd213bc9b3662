// SPDX-License-Identifier: Apache-2.0
//
// ReadProbes on hostile files. An input that begins with the ELF magic is the file itself; any other is a list of
// patches, three bytes each (offset, offset, value), to a valid file, which gets deep from the first run on.
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "tests/fuzz/check.h"
#include "tests/fuzz/fuzzed_elf.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/file.h"
#include "userspace/elf/probes.h"

namespace {

using heaptap::elf::ElfImage;
using heaptap::elf::ProbeNote;

std::string ValidFile() {
  ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x800, 0x401000);
  image.AddSegment(PT_LOAD, PF_R | PF_W, 0x2000, 0x100, 0x502000);
  std::string notes = ProbeNote("otel_memory", "alloc", "8@%rdi 8@%rsi 8@%rdx", 0x401010, 0x502000, 0x3ff000) +
                      ProbeNote("libc", "setjmp", "8@%rdi", 0x401020) +
                      ProbeNote("heaptap", "start", "8@%rdi", 0x401030, 0, 0x3ff000);
  image.AddSection(".note.stapsdt", SHT_NOTE, notes);
  image.AddSection(".stapsdt.base", SHT_PROGBITS, "b", 0x3ff000);
  image.AddSegment(PT_NOTE, PF_R, image.AddBytes(notes), notes.size(), 0x400000);
  return image.Bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  std::string file = FuzzedElf(ValidFile, data, size);
  Check(ftruncate(fd, 0) == 0);
  Check(pwrite(fd, file.data(), file.size(), 0) == static_cast<ssize_t>(file.size()));

  auto sites = heaptap::elf::ReadProbes(fd, {"otel_memory", "heaptap"});
  if (!sites.ok()) {
    Check(absl::IsInvalidArgument(sites.status()));
    return 0;
  }
  Check(sites->size() <= heaptap::elf::kMaxProbeSites);
  for (const heaptap::elf::ProbeSite& site : *sites) {
    Check(site.provider == "otel_memory" || site.provider == "heaptap");
    heaptap::elf::ArgumentsInRegisters(site.arguments, 3);
  }
  return 0;
}
