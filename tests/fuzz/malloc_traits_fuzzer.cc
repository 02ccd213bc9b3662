// SPDX-License-Identifier: Apache-2.0
//
// ReadMallocTraits on hostile files. An input that begins with the ELF magic is the file itself; any other is a list of
// patches, three bytes each (offset, offset, value), to a valid file, which gets deep from the first run on.
#include <elf.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "tests/fuzz/check.h"
#include "tests/fuzz/fuzzed_elf.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/file.h"
#include "userspace/elf/functions.h"
#include "userspace/process/malloc_traits.h"

namespace {

using heaptap::elf::ElfImage;

std::string Symbol(uint32_t name, unsigned char info, uint16_t section) {
  const Elf64_Sym symbol = {
      .st_name = name, .st_info = info, .st_other = 0, .st_shndx = section, .st_value = 0x401000, .st_size = 16};
  return std::string(reinterpret_cast<const char*>(&symbol), sizeof(symbol));
}

std::string ValidFile() {
  constexpr unsigned char kFunction = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC);
  const std::string names("\0malloc\0free\0mallctl\0", 21);
  const std::string symbols =
      Symbol(0, 0, 0) + Symbol(1, kFunction, 1) + Symbol(8, kFunction, 1) + Symbol(13, kFunction, SHN_UNDEF);
  ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x800, 0x401000);
  image.AddSection(".dynsym", SHT_DYNSYM, symbols);
  image.AddSection(".dynstr", SHT_STRTAB, names);
  image.AddSection(".symtab", SHT_SYMTAB, symbols);
  image.AddSection(".strtab", SHT_STRTAB, names);
  return image.Bytes();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes = FuzzedElf(ValidFile, data, size);
  const absl::StatusOr<heaptap::elf::File> file = heaptap::elf::File::OpenBytes(bytes);
  if (!file.ok()) return 0;
  const heaptap::elf::DefinedFunctions functions = heaptap::elf::FindFunctions(*file, {"malloc", "free"});
  Check(functions.exported.size() + functions.internal.size() <= 2);
  const heaptap::process::MallocTraits traits = heaptap::process::ReadMallocTraits(*file);
  Check(traits.exports_malloc <= 1 && traits.has_own_malloc <= 1);
  return 0;
}
