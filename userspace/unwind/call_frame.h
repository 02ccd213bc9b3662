// SPDX-License-Identifier: Apache-2.0
//
// The call frame information of one section, .eh_frame or .debug_frame: functions, their addresses, and their rows.
//
// Formats: DWARF 5 section 6.4 (.debug_frame, the instructions); LSB Core 5.0 sections 10.5 and 10.6 (.eh_frame), with
// the augmentations "S" (signal frame) and "B" as GCC and LLVM write them. x86-64 only: addresses of 8 bytes.
//
// The bytes may be hostile. The time is linear in their number: each CIE and each FDE is interpreted once, and an FDE's
// pointer to its CIE must lead to the beginning of a CIE.
#ifndef HEAPTAP_USERSPACE_UNWIND_CALL_FRAME_H_
#define HEAPTAP_USERSPACE_UNWIND_CALL_FRAME_H_

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/unwind/columns.h"

namespace heaptap::unwind {

// Functions (FDEs) in one section. clang has 100,000.
inline constexpr uint64_t kMaxFunctions = 4 << 20;
// CIEs in one section. Linkers merge equal CIEs, so a dozen is usual.
inline constexpr uint64_t kMaxCies = 1 << 16;
// Nested DW_CFA_remember_state. Compilers nest two deep.
inline constexpr uint64_t kMaxRememberedStates = 64;

struct FrameSection {
  enum Format { kEhFrame, kDebugFrame };
  Format format = kEhFrame;
  absl::string_view bytes = {};
  uint64_t address = 0;  // link-time, of the first byte
  // If `bytes` may extend beyond the section: its number of functions. The section ends after them, or at a terminator
  // (an entry of length 0). ~0: `bytes` is the section.
  uint64_t functions = ~uint64_t{0};
};

// One FDE. Its range of addresses is not empty.
struct Function {
  uint64_t start = 0;  // link-time addresses
  uint64_t end = 0;
  uint32_t cie = 0;
  absl::string_view instructions = {};
  uint64_t instructions_address = 0;
};

// Immutable after Parse. Thread-compatible. The bytes must outlive it.
class CallFrames {
 public:
  CallFrames() = default;

  // InvalidArgument: the last entry does not end with the section, or a bound above is exceeded.
  static absl::StatusOr<CallFrames> Parse(const FrameSection& section);

  // In the order of the section. Functions may overlap, and their addresses may be any.
  const std::vector<Function>& functions() const { return functions_; }
  // Number of FDEs left out, because they or their CIE are unreadable.
  uint64_t broken() const { return broken_; }

  // Calls `row` with each row and the address where it begins: ascending, inside the function, the first at its start.
  // Neighbouring rows may be equal. False: the instructions are broken; the rows before the error have been passed to
  // `row`.
  bool ForEachRow(const Function& function,
                  absl::FunctionRef<void(uint64_t address, const Columns& columns)> row) const;

  // Whether this is a signal frame: the kernel makes it, and a signal handler returns to it. Its columns are not used.
  bool IsSignalFrame(const Function& function) const { return cies_[function.cie].signal; }

 private:
  struct Cie {
    uint64_t code_alignment = 0;
    int64_t data_alignment = 0;
    uint8_t pointer_encoding = 0;
    bool augmented = false;  // FDEs have augmentation data
    bool signal = false;
    Columns initial;
  };
  struct Entry;
  class Interpreter;

  static absl::Status ForEachEntry(const FrameSection& section, absl::FunctionRef<absl::Status(Entry)> visit);
  static bool ParseCie(Entry entry, Cie& cie);
  bool ParseFde(Entry entry, Function& function) const;

  std::vector<Cie> cies_;
  absl::flat_hash_map<uint64_t, uint32_t> cie_by_offset_;
  std::vector<Function> functions_;
  uint64_t broken_ = 0;
};

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_CALL_FRAME_H_
