// SPDX-License-Identifier: Apache-2.0
//
// The columns of a call frame table that matter for return addresses, and the rule that they make.
//
// Source: DWARF 5 section 6.4.1 (register rules), section 7.7.1 (expressions).
#ifndef HEAPTAP_USERSPACE_UNWIND_COLUMNS_H_
#define HEAPTAP_USERSPACE_UNWIND_COLUMNS_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace heaptap::unwind {

// System V ABI for x86-64, figure 3.36.
inline constexpr uint64_t kRbx = 3;
inline constexpr uint64_t kRbp = 6;
inline constexpr uint64_t kRsp = 7;
inline constexpr uint64_t kReturnAddress = 16;

// Where the caller's value of a register is.
struct Place {
  enum Kind : uint8_t {
    kUnset,       // no instruction set it
    kSame,        // in the register itself
    kUndefined,   // lost
    kAtCfa,       // in memory, at CFA + value
    kIsCfa,       // it is the number CFA + value
    kInRegister,  // in register number `value`
    kAtRbp,       // in memory, at RBP + value
    kOther,       // a place that no rule can name
  };
  Kind kind = kUnset;
  int64_t value = 0;
};

// How to compute the CFA.
struct Cfa {
  enum Kind : uint8_t { kUnset, kRegister, kExpression };
  Kind kind = kUnset;
  // kRegister: register number `number` + offset.
  uint64_t number = 0;
  int64_t offset = 0;
  uint32_t expression = 0;  // kExpression: the result of CfaOfExpression
};

// One row of the table.
struct Columns {
  Cfa cfa;
  Place rsp;
  Place rbp;
  Place rbx;
  Place return_address;

  // The column of a register; null for other registers.
  Place* Find(uint64_t number) {
    if (number == kRbp) return &rbp;
    if (number == kRsp) return &rsp;
    if (number == kRbx) return &rbx;
    if (number == kReturnAddress) return &return_address;
    return nullptr;
  }
};

// The CFA that this expression defines, as the bits of a rule's CFA kind and parameter; 0 if no rule can name it. The
// known expressions are those of the linkers' lazy PLT entries, and a word on the stack: `breg(RSP or RBP) a; deref`,
// with or without `plus_uconst b`.
uint32_t CfaOfExpression(absl::string_view expression);

// The place whose address is the value of this expression. The only known expression is `breg RBP a`.
Place PlaceOfExpression(absl::string_view expression);

// The rule of a row, in the encoding of bpf/unwind.h. Its CFA kind is HEAPTAP_CFA_UNKNOWN if it cannot be encoded.
uint32_t RuleOf(const Columns& columns);

}  // namespace heaptap::unwind

#endif  // HEAPTAP_USERSPACE_UNWIND_COLUMNS_H_
