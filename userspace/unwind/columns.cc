// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/columns.h"

#include <optional>

#include "bpf/unwind.h"
#include "userspace/unwind/cursor.h"

namespace heaptap::unwind {
namespace {

// DW_OP_*
constexpr uint8_t kDeref = 0x06;
constexpr uint8_t kPlusUconst = 0x23;
constexpr uint8_t kBreg0 = 0x70;

// breg RSP 8; breg RIP 0; lit15; and; lit11; ge; lit3; shl; plus. GNU ld and gold write this for entries of 16 bytes
// whose push ends at byte 11; lld writes nothing. The other expression has lit10, for entries with an endbr64.
constexpr absl::string_view kPlt("\x77\x08\x80\x00\x3f\x1a\x3b\x2a\x33\x24\x22", 11);
constexpr absl::string_view kPlt2("\x77\x08\x80\x00\x3f\x1a\x3a\x2a\x33\x24\x22", 11);

// Bits of a rule's parameters, and of each half of the CFA parameter.
constexpr int kCfaBits = 16;
constexpr int kHalfBits = 8;
constexpr int kRbpBits = 6;

// The offset in words; nothing if it is not a whole number of words, or does not fit into `bits`.
std::optional<int32_t> Words(int64_t offset, int bits) {
  const int64_t words = offset / 8;
  const int64_t limit = int64_t{1} << (bits - 1);
  if (offset % 8 != 0 || words < -limit || words >= limit) return std::nullopt;
  return static_cast<int32_t>(words);
}

uint32_t CfaRule(uint32_t kind, int32_t parameter) {
  return heaptap_unwind_rule(kind, parameter, HEAPTAP_RBP_SAME, 0, HEAPTAP_RA_AT_CFA);
}

// The CFA of a function with a frame of 256 KiB or more.
uint32_t RuleOfFarCfa(int64_t offset) {
  constexpr int64_t kKinds = HEAPTAP_CFA_LAST_FAR - HEAPTAP_CFA_FAR + 1;
  const int64_t words = offset / 8 - HEAPTAP_FAR_WORDS;
  if (offset % 8 != 0 || words < 0 || words >= kKinds * HEAPTAP_FAR_WORDS_PER_KIND) return 0;
  return CfaRule(HEAPTAP_CFA_FAR + static_cast<uint32_t>(words / HEAPTAP_FAR_WORDS_PER_KIND),
                 static_cast<int32_t>(words % HEAPTAP_FAR_WORDS_PER_KIND));
}

// 0 if it cannot be encoded.
uint32_t RuleOfCfa(const Cfa& cfa) {
  if (cfa.kind == Cfa::kExpression) return cfa.expression;
  if (cfa.kind != Cfa::kRegister) return 0;
  if (cfa.number == kRsp || cfa.number == kRbp) {
    auto words = Words(cfa.offset, kCfaBits);
    if (words) return CfaRule(cfa.number == kRsp ? HEAPTAP_CFA_RSP : HEAPTAP_CFA_RBP, *words);
    return cfa.number == kRsp ? RuleOfFarCfa(cfa.offset) : 0;
  }
  auto words = Words(cfa.offset, kHalfBits);
  if (!words || cfa.number >= kReturnAddress) return 0;
  return CfaRule(HEAPTAP_CFA_REGISTER, heaptap_unwind_pair(static_cast<int32_t>(cfa.number), *words));
}

uint32_t RbpRule(uint32_t kind, std::optional<int32_t> parameter) {
  if (!parameter) return heaptap_unwind_rule(0, 0, HEAPTAP_RBP_LOST, 0, 0);
  return heaptap_unwind_rule(0, 0, kind, *parameter, 0);
}

uint32_t RuleOfRbp(const Place& rbp) {
  switch (rbp.kind) {
    case Place::kUnset:
    case Place::kSame:
      return RbpRule(HEAPTAP_RBP_SAME, 0);
    case Place::kAtCfa:
      return RbpRule(HEAPTAP_RBP_AT_CFA, Words(rbp.value, kRbpBits));
    case Place::kAtRbp:
      return RbpRule(HEAPTAP_RBP_AT_RBP, Words(rbp.value, kRbpBits));
    default:
      return RbpRule(HEAPTAP_RBP_LOST, 0);
  }
}

uint32_t RuleOfRbx(const Place& rbx) {
  if (rbx.kind == Place::kUnset || rbx.kind == Place::kSame) return heaptap_unwind_rbx(HEAPTAP_RBX_SAME);
  const int64_t kind = -rbx.value / 8 - 1;
  const bool is_usual =
      rbx.kind == Place::kAtCfa && rbx.value % 8 == 0 && kind > HEAPTAP_RBX_SAME && kind < HEAPTAP_RBX_LOST;
  return heaptap_unwind_rbx(is_usual ? static_cast<uint32_t>(kind) : uint32_t{HEAPTAP_RBX_LOST});
}

}  // namespace

uint32_t CfaOfExpression(absl::string_view expression) {
  if (expression == kPlt) return CfaRule(HEAPTAP_CFA_PLT, 0);
  if (expression == kPlt2) return CfaRule(HEAPTAP_CFA_PLT2, 0);

  Cursor cursor(expression);
  uint64_t number = uint64_t{cursor.Take<uint8_t>()} - kBreg0;
  auto a = Words(cursor.TakeSleb128(), kHalfBits);
  bool known = cursor.Take<uint8_t>() == kDeref;
  std::optional<int32_t> b = 0;
  if (!cursor.empty()) {
    known = known && cursor.Take<uint8_t>() == kPlusUconst;
    b = Words(static_cast<int64_t>(cursor.TakeUleb128()), kHalfBits);
  }
  if (!known || !cursor.ok() || !cursor.empty() || !a || !b) return 0;
  if (number == kRsp) return CfaRule(HEAPTAP_CFA_DEREF_RSP, heaptap_unwind_pair(*a, *b));
  if (number == kRbp) return CfaRule(HEAPTAP_CFA_DEREF_RBP, heaptap_unwind_pair(*a, *b));
  return 0;
}

Place PlaceOfExpression(absl::string_view expression) {
  Cursor cursor(expression);
  bool rbp = cursor.Take<uint8_t>() == kBreg0 + kRbp;
  int64_t offset = cursor.TakeSleb128();
  if (!cursor.ok() || !cursor.empty() || !rbp) return {.kind = Place::kOther};
  return {.kind = Place::kAtRbp, .value = offset};
}

uint32_t RuleOf(const Columns& columns) {
  const uint32_t unknown = CfaRule(HEAPTAP_CFA_UNKNOWN, 0);
  const Place& return_address = columns.return_address;
  if (return_address.kind == Place::kUndefined) return CfaRule(HEAPTAP_CFA_END, 0);
  // In a rule, RSP of the caller is always the CFA.
  bool restores_rsp =
      columns.rsp.kind == Place::kUnset || (columns.rsp.kind == Place::kIsCfa && columns.rsp.value == 0);
  uint32_t cfa = RuleOfCfa(columns.cfa);
  if (cfa == 0 || !restores_rsp) return unknown;
  cfa |= RuleOfRbx(columns.rbx);

  if (return_address.kind == Place::kAtCfa && return_address.value == -8) return cfa | RuleOfRbp(columns.rbp);
  if (return_address.kind == Place::kInRegister && static_cast<uint64_t>(return_address.value) < kReturnAddress) {
    bool same = columns.rbp.kind == Place::kUnset || columns.rbp.kind == Place::kSame;
    return cfa | heaptap_unwind_rule(0, 0, same ? HEAPTAP_RBP_SAME : HEAPTAP_RBP_LOST,
                                     static_cast<int32_t>(return_address.value), HEAPTAP_RA_REGISTER);
  }
  return unknown;
}

}  // namespace heaptap::unwind
