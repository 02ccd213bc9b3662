// SPDX-License-Identifier: Apache-2.0
//
// What the collector itself reads of hostile files to name functions: symbol tables, build-ids, links to debug files;
// and the answer of a confined process that may have been taken over. An input that begins with the ELF magic is the
// file itself; any other is a list of patches, three bytes each (offset, offset, value), to a valid file, and the same
// input is an answer, too.
#include <elf.h>
#include <lzma.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "tests/fuzz/check.h"
#include "tests/fuzz/fuzzed_elf.h"
#include "tests/unit/elf_image.h"
#include "userspace/elf/file.h"
#include "userspace/symbolize/answer.h"
#include "userspace/symbolize/debug_files.h"
#include "userspace/symbolize/function_names.h"
#include "userspace/symbolize/mini_debug_info.h"
#include "userspace/worker/reader_jobs.h"
#include "userspace/worker/request.h"

namespace {

using heaptap::elf::BytesOf;
using heaptap::elf::ElfImage;
using heaptap::symbolize::SymbolTable;

std::string Symbol(uint32_t name, unsigned binding, unsigned type, uint64_t start, uint64_t size) {
  return BytesOf(Elf64_Sym{.st_name = name,
                           .st_info = static_cast<unsigned char>(ELF64_ST_INFO(binding, type)),
                           .st_other = 0,
                           .st_shndx = 1,
                           .st_value = start,
                           .st_size = size});
}

// Without a checksum, so that patches reach the decoder.
std::string Xz(const std::string& bytes) {
  std::string packed(lzma_stream_buffer_bound(bytes.size()), '\0');
  size_t size = 0;
  Check(lzma_easy_buffer_encode(0, LZMA_CHECK_NONE, nullptr, reinterpret_cast<const uint8_t*>(bytes.data()),
                                bytes.size(), reinterpret_cast<uint8_t*>(packed.data()), &size,
                                packed.size()) == LZMA_OK);
  packed.resize(size);
  return packed;
}

std::string ValidFile() {
  ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, 0x800, 0x1000);
  image.AddSection(".text", SHT_PROGBITS, std::string(0x400, '\x90'), 0x1000).sh_flags = SHF_ALLOC | SHF_EXECINSTR;
  const std::string symbols = Symbol(1, STB_GLOBAL, STT_FUNC, 0x1000, 0x40) +
                              Symbol(5, STB_LOCAL, STT_FUNC, 0x1010, 0x10) +
                              Symbol(5, STB_WEAK, STT_NOTYPE, 0x1100, 0) + Symbol(1, STB_WEAK, STT_FUNC, 0x1000, 0x40);
  const std::string names("\0one\0two\0", 9);
  image.AddSection(".symtab", SHT_SYMTAB, symbols);
  image.AddSection(".strtab", SHT_STRTAB, names);
  image.AddSection(".dynsym", SHT_DYNSYM, symbols);
  image.AddSection(".dynstr", SHT_STRTAB, names);
  image.AddSection(".note.gnu.build-id", SHT_NOTE,
                   heaptap::elf::Note(std::string("GNU\0", 4), NT_GNU_BUILD_ID, "0123456789"));
  image.AddSection(".gnu_debuglink", SHT_PROGBITS, std::string("x.debug\0sum4", 12));
  image.AddSection(".gnu_debugaltlink", SHT_PROGBITS, std::string("/nowhere/y\0build-id", 19));
  image.AddSection(".gnu_debugdata", SHT_PROGBITS, Xz(image.Bytes()));
  return image.Bytes();
}

void ReadFile(const std::string& bytes) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  Check(ftruncate(fd, 0) == 0);
  Check(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  auto file = heaptap::elf::File::Open(fd);
  if (!file.ok()) return;

  const std::vector<uint64_t> addresses = {0, 0x1000, 0x100f, 0x1010, 0x1020, 0x1100, 0x1200, ~uint64_t{0}};
  std::vector<std::string> names(addresses.size());
  FindFunctionNames(*file, SymbolTable::kStatic, addresses, names).IgnoreError();
  const std::vector<std::string> before = names;
  FindFunctionNames(*file, SymbolTable::kDynamic, addresses, names).IgnoreError();
  for (size_t index = 0; index < names.size(); index++) {
    Check(names[index].size() <= heaptap::symbolize::kMaxNameBytes);
    Check(before[index].empty() || names[index] == before[index]);
  }
  Check(heaptap::symbolize::ReadBuildId(*file).size() <= heaptap::elf::kMaxBuildIdBytes);
  const heaptap::symbolize::DebugLinks links = heaptap::symbolize::ReadDebugLinks(*file);
  const auto decoded = heaptap::symbolize::DecodeDebugLinks(heaptap::symbolize::Encode(links));
  Check(decoded.ok() && *decoded == links);
  Check(heaptap::symbolize::DebugPaths(links, "/usr/bin/program").size() <= 2);
  Check(heaptap::symbolize::SharedPaths(links, "/usr/lib/debug").size() <= 2);
  heaptap::symbolize::IsDebugFile(links, fd);

  // The same bytes in memory, as those of mini debug information are.
  const auto in_memory = heaptap::elf::File::OpenBytes(bytes);
  Check(in_memory.ok());
  std::vector<std::string> same(addresses.size());
  FindFunctionNames(*in_memory, SymbolTable::kStatic, addresses, same).IgnoreError();
  Check(same == before);
  const auto mini = heaptap::symbolize::ReadMiniDebugInfo(*file);
  if (!mini.ok()) return;
  Check(mini->size() <= heaptap::symbolize::kMaxUnpackedBytes);
  const auto inner = heaptap::elf::File::OpenBytes(*mini);
  if (inner.ok()) FindFunctionNames(*inner, SymbolTable::kStatic, addresses, same).IgnoreError();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ReadFile(FuzzedElf(ValidFile, data, size));
  heaptap::symbolize::Names names;
  std::vector<heaptap::symbolize::Frames> frames(4);
  heaptap::symbolize::DecodeDebugLinks({reinterpret_cast<const char*>(data), size}).status().IgnoreError();
  heaptap::worker::DecodeAnswer({reinterpret_cast<const char*>(data), size}).status().IgnoreError();
  heaptap::worker::DecodeFacts({reinterpret_cast<const char*>(data), size}).status().IgnoreError();
  heaptap::symbolize::ReadAnswer({reinterpret_cast<const char*>(data), size}, names, frames);
  for (const heaptap::symbolize::Frames& some : frames) {
    for (const heaptap::symbolize::Frame& frame : some) {
      Check(frame.function.view().size() + frame.file.view().size() <= 2 * size);
    }
  }
  return 0;
}
