// SPDX-License-Identifier: Apache-2.0
//
// BuildTable on hostile files. An input that begins with the ELF magic is the file itself; any other is a choice of
// one of two valid files and a list of patches to it, three bytes each (offset, offset, value).
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "tests/fuzz/check.h"
#include "tests/unit/unwind_image.h"
#include "userspace/elf/file.h"
#include "userspace/unwind/table.h"

namespace {

using namespace heaptap::unwind;

// With at least one of each kind of instruction, encoding and augmentation.
EhFrame ValidFrames() {
  EhFrame frames;
  uint64_t plain = frames.AddCie();
  frames.AddFde(plain, kCode, 0x20,
                Advance(1) + DefCfaOffset(16) + Offset(6, 2) + Advance(3) + DefCfaRegister(6) + kRememberState +
                    Advance(9) + Restore(6) + DefCfa(7, 8) + kRestoreState);
  frames.AddFde(plain, kCode + 0x20, 0x10,
                DefCfaExpression(std::string("\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", 11)));
  frames.AddFde(plain, kCode + 0x40, 0x80,
                "\x02\x10" + DefCfaExpression("\x76" + Sleb(-8) + "\x06\x23\x08") + "\x03" + BytesOf(uint16_t{0x10}) +
                    Expression(6, std::string("\x76\0", 2)) + "\x04" + BytesOf(uint32_t{0x10}) + DefCfa(10, 16) +
                    "\x2e\x10" + "\x12\x06\x7d");
  frames.AddFde(plain, kCode + 0x100, 0x10, Undefined(16));
  frames.AddFde(plain, kCode + 0x110, 0x10, "\x09\x10\x05\x08\x06\x05\x06\x02\x11\x06\x7d\x14\x06\x02\x16\x06\x01\x30");
  CieFields fields;
  fields.augmentation = "zPLRS";
  fields.augmentation_data = "\x9b" + BytesOf(0) + "\x1b\x1b";
  frames.AddFde(frames.AddCie(fields), kCode + 0x200, 0x10, "");
  fields = CieFields();
  fields.augmentation_data = Byte(0x1c);
  frames.AddFdeWith(frames.AddCie(fields), BytesOf(uint64_t{kCode - kFrames}) + BytesOf(uint64_t{0x10}) + Byte(0));
  return frames;
}

std::string FileOf(const uint8_t* data, size_t size) {
  if (size >= SELFMAG && memcmp(data, ELFMAG, SELFMAG) == 0) return std::string(data, data + size);
  static const std::string by_section = ImageWith(ValidFrames()).Bytes();
  static const std::string by_header = ImageWithHeader(ValidFrames(), 7).Bytes();
  std::string file = size > 0 && data[0] % 2 ? by_header : by_section;
  for (size_t i = 1; i + 3 <= size; i += 3) {
    file[(data[i] | data[i + 1] << 8) % file.size()] = static_cast<char>(data[i + 2]);
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("fuzz", MFD_CLOEXEC);
  std::string bytes = FileOf(data, size);
  Check(ftruncate(fd, 0) == 0);
  Check(pwrite(fd, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));

  auto file = heaptap::elf::File::Open(fd);
  if (!file.ok()) return 0;
  auto table = BuildTable(*file);
  if (!table.ok()) {
    Check(absl::IsInvalidArgument(table.status()));
    Check(table.status().message().find('\n') == std::string::npos);
    return 0;
  }
  Check(table->rows.size() <= kMaxRows);
  for (size_t i = 0; i < table->rows.size(); ++i) {
    const Row& row = table->rows[i];
    Check(row.rule != HEAPTAP_RULE_START);  // only a walk makes it
    Check(heaptap_unwind_ra_kind(row.rule) <= HEAPTAP_RA_REGISTER);
    Check(Find(table->rows, row.pc) == &row);
    if (i == 0) continue;
    Check(table->rows[i - 1].pc < row.pc && table->rows[i - 1].rule != row.rule);
  }
  if (!table->rows.empty()) Check(table->rows.back().rule == 0);
  return 0;
}
