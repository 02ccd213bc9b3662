// SPDX-License-Identifier: Apache-2.0
//
// Makes valid ELF files with call frame information for tests, which may then corrupt them.
#ifndef HEAPTAP_TESTS_UNIT_UNWIND_IMAGE_H_
#define HEAPTAP_TESTS_UNIT_UNWIND_IMAGE_H_

#include <elf.h>

#include <cstdint>
#include <string>

#include "tests/unit/elf_image.h"

namespace heaptap::unwind {

using elf::BytesOf;

inline constexpr uint64_t kCode = 0x401000;  // link-time address of the code
inline constexpr uint64_t kCodeSize = 0x1000;
inline constexpr uint64_t kFrames = 0x402000;  // and of .eh_frame

inline std::string Uleb(uint64_t number) {
  std::string bytes;
  do {
    bytes += static_cast<char>((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
  } while (number >>= 7);
  return bytes;
}

inline std::string Sleb(int64_t number) {
  std::string bytes;
  while (number < -64 || number > 63) {
    bytes += static_cast<char>(number | 0x80);
    number >>= 7;
  }
  return bytes + static_cast<char>(number & 0x7f);
}

// Instructions and operations that tests use.
inline std::string Byte(uint64_t byte) { return std::string(1, static_cast<char>(byte)); }
inline std::string Counted(const std::string& bytes) { return Uleb(bytes.size()) + bytes; }
inline std::string Advance(uint64_t delta) { return Byte(0x40 | delta); }
inline std::string Offset(uint64_t number, uint64_t factor) { return Byte(0x80 | number) + Uleb(factor); }
inline std::string Restore(uint64_t number) { return Byte(0xc0 | number); }
inline std::string DefCfa(uint64_t number, uint64_t offset) { return "\x0c" + Uleb(number) + Uleb(offset); }
inline std::string DefCfaRegister(uint64_t number) { return "\x0d" + Uleb(number); }
inline std::string DefCfaOffset(uint64_t offset) { return "\x0e" + Uleb(offset); }
inline std::string DefCfaExpression(const std::string& expression) { return "\x0f" + Counted(expression); }
inline std::string Expression(uint64_t number, const std::string& expression) {
  return "\x10" + Uleb(number) + Counted(expression);
}
inline std::string Undefined(uint64_t number) { return "\x07" + Uleb(number); }
inline const std::string kRememberState = "\x0a";
inline const std::string kRestoreState = "\x0b";

struct CieFields {
  uint8_t version = 1;
  std::string augmentation = "zR";
  std::string augmentation_data = "\x1b";  // pcrel sdata4
  uint64_t code_alignment = 1;
  int64_t data_alignment = -8;
  uint64_t return_address = 16;
  std::string instructions = DefCfa(7, 8) + Offset(16, 1);

  std::string Body() const {
    std::string sizes = version == 4 ? std::string("\x08\0", 2) : "";
    return Byte(version) + augmentation + '\0' + sizes + Uleb(code_alignment) + Sleb(data_alignment) +
           Uleb(return_address) + (augmentation.empty() ? "" : Counted(augmentation_data)) + instructions;
  }
};

// Bytes of .eh_frame at kFrames.
class EhFrame {
 public:
  std::string bytes;

  // All return the offset of the entry.
  uint64_t AddEntry(const std::string& body, uint32_t length_is_more_by = 0) {
    uint64_t offset = bytes.size();
    bytes += BytesOf(static_cast<uint32_t>(body.size() + length_is_more_by)) + body;
    return offset;
  }
  uint64_t AddCie(const CieFields& cie = {}) { return AddEntry(BytesOf(uint32_t{0}) + cie.Body()); }
  // With the pointers as pcrel sdata4.
  uint64_t AddFde(uint64_t cie, uint64_t start, uint64_t size, const std::string& instructions) {
    auto distance = static_cast<uint32_t>(start - (kFrames + bytes.size() + 8));
    return AddFdeWith(cie, BytesOf(distance) + BytesOf(static_cast<uint32_t>(size)) + Byte(0) + instructions);
  }
  // With any pointers and augmentation data.
  uint64_t AddFdeWith(uint64_t cie, const std::string& content) {
    return AddEntry(BytesOf(static_cast<uint32_t>(bytes.size() + 4 - cie)) + content);
  }
  void Terminate() { bytes += BytesOf(uint32_t{0}); }
};

inline elf::ElfImage ImageWithCode() {
  elf::ElfImage image;
  image.AddSegment(PT_LOAD, PF_R | PF_X, 0x1000, kCodeSize, kCode);
  return image;
}

inline elf::ElfImage ImageWith(const EhFrame& frames) {
  elf::ElfImage image = ImageWithCode();
  image.AddSection(".eh_frame", SHT_PROGBITS, frames.bytes, kFrames);
  return image;
}

// Found by PT_GNU_EH_FRAME only; `functions` is the count in its header.
inline elf::ElfImage ImageWithHeader(const EhFrame& frames, uint32_t functions) {
  elf::ElfImage image = ImageWithCode();
  // version 1; pcrel sdata4; udata4; no search table.
  std::string header = "\x01\x1b\x03\xff" + BytesOf(uint32_t{16 - 4}) + BytesOf(functions) + std::string(4, 0);
  uint64_t offset = image.AddBytes(header + frames.bytes + "what follows");
  image.AddSegment(PT_LOAD, PF_R, offset, header.size() + frames.bytes.size() + 12, kFrames - 16);
  image.AddSegment(PT_GNU_EH_FRAME, PF_R, offset, header.size(), kFrames - 16);
  return image;
}

}  // namespace heaptap::unwind

#endif  // HEAPTAP_TESTS_UNIT_UNWIND_IMAGE_H_
