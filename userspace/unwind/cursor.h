// SPDX-License-Identifier: Apache-2.0
//
// Takes numbers off the front of hostile bytes.
//
// Formats: DWARF 5 section 7.6 (LEB128), LSB Core 5.0 section 10.5.1 (DW_EH_PE_*, pointer encodings of .eh_frame).
#ifndef HEAPTAP_USERSPACE_UNWIND_CURSOR_H_
#define HEAPTAP_USERSPACE_UNWIND_CURSOR_H_

#include <cstdint>
#include <cstring>
#include <optional>

#include "absl/strings/string_view.h"

namespace heaptap::unwind {

// How a pointer is written: its format in the low four bits, its base in the next three.
enum PointerEncoding : uint8_t {
  kPointerAbsolute = 0x00,  // also a format: 8 bytes
  kPointerUleb128 = 0x01,
  kPointerUdata2 = 0x02,
  kPointerUdata4 = 0x03,
  kPointerUdata8 = 0x04,
  kPointerSleb128 = 0x09,
  kPointerSdata2 = 0x0a,
  kPointerSdata4 = 0x0b,
  kPointerSdata8 = 0x0c,
  kPointerFormat = 0x0f,  // the mask of the format
  kPointerToPc = 0x10,    // relative to its own address
  kPointerToData = 0x30,  // relative to an address that depends on the section
  kPointerBase = 0x70,    // the mask of the base
  kPointerIndirect = 0x80,
  kPointerOmitted = 0xff,
};

// After a Take that fails, every later Take returns 0 and ok() stays false. So a caller takes several numbers and
// checks ok() once. Copyable; the bytes must outlive it.
class Cursor {
 public:
  // `address` is the link-time address of the first byte.
  explicit Cursor(absl::string_view bytes, uint64_t address = 0) : rest_(bytes), address_(address) {}

  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  absl::string_view rest() const { return rest_; }
  uint64_t address() const { return address_; }

  // Marks the cursor as failed. Returns 0.
  uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }

  absl::string_view TakeBytes(uint64_t size) {
    if (size > rest_.size()) {
      Fail();
      return {};
    }
    absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    address_ += size;
    return taken;
  }

  // A little-endian number.
  template <typename Number>
  Number Take() {
    Number number = 0;
    absl::string_view bytes = TakeBytes(sizeof(number));
    if (!bytes.empty()) memcpy(&number, bytes.data(), sizeof(number));
    return number;
  }

  // Fails if the number has more than 64 bits.
  uint64_t TakeUleb128() {
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
      uint8_t byte = Take<uint8_t>();
      uint64_t bits = byte & 0x7f;
      if (!ok_ || shift > 63 || (shift == 63 && bits > 1)) return Fail();
      number |= bits << shift;
      if (byte < 0x80) return number;
    }
  }

  int64_t TakeSleb128() {
    uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
      uint8_t byte = Take<uint8_t>();
      uint64_t bits = byte & 0x7f;
      if (!ok_ || shift > 63 || (shift == 63 && bits != 0 && bits != 0x7f)) return static_cast<int64_t>(Fail());
      number |= bits << shift;
      if (byte >= 0x80) continue;
      if (shift + 7 < 64 && (byte & 0x40)) number |= ~uint64_t{0} << (shift + 7);
      return static_cast<int64_t>(number);
    }
  }

  // Takes the text up to a NUL, and the NUL.
  absl::string_view TakeString() {
    size_t end = rest_.find('\0');
    if (end == absl::string_view::npos) {
      Fail();
      return {};
    }
    return TakeBytes(end + 1).substr(0, end);
  }

  // Fails on an encoding that x86-64 ELF files do not use: relative to text or function, aligned, or relative to data
  // without `data`. For an indirect pointer it returns the address of the pointer.
  uint64_t TakePointer(uint8_t encoding, std::optional<uint64_t> data = std::nullopt) {
    uint64_t base = 0;
    switch (encoding & kPointerBase) {
      case 0:
        break;
      case kPointerToPc:
        base = address_;
        break;
      case kPointerToData:
        if (!data) return Fail();
        base = *data;
        break;
      default:
        return Fail();
    }
    switch (encoding & kPointerFormat) {
      case kPointerAbsolute:
      case kPointerUdata8:
      case kPointerSdata8:
        return base + Take<uint64_t>();
      case kPointerUleb128:
        return base + TakeUleb128();
      case kPointerUdata2:
        return base + Take<uint16_t>();
      case kPointerUdata4:
        return base + Take<uint32_t>();
      case kPointerSleb128:
        return base + static_cast<uint64_t>(TakeSleb128());
      case kPointerSdata2:
        return base + static_cast<uint64_t>(int64_t{Take<int16_t>()});
      case kPointerSdata4:
        return base + static_cast<uint64_t>(int64_t{Take<int32_t>()});
      default:
        return Fail();
    }
  }

 private:
  absl::string_view rest_;
  uint64_t address_;
  bool ok_ = true;
};

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_CURSOR_H_
