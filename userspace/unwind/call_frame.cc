// SPDX-License-Identifier: Apache-2.0
#include "userspace/unwind/call_frame.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "userspace/unwind/cursor.h"

namespace heaptap::unwind {
namespace {

enum Instruction : uint8_t {  // DW_CFA_*
  kNop = 0x00,
  kSetLoc = 0x01,
  kAdvanceLoc1 = 0x02,
  kAdvanceLoc2 = 0x03,
  kAdvanceLoc4 = 0x04,
  kOffsetExtended = 0x05,
  kRestoreExtended = 0x06,
  kUndefined = 0x07,
  kSameValue = 0x08,
  kRegister = 0x09,
  kRememberState = 0x0a,
  kRestoreState = 0x0b,
  kDefCfa = 0x0c,
  kDefCfaRegister = 0x0d,
  kDefCfaOffset = 0x0e,
  kDefCfaExpression = 0x0f,
  kExpression = 0x10,
  kOffsetExtendedSf = 0x11,
  kDefCfaSf = 0x12,
  kDefCfaOffsetSf = 0x13,
  kValOffset = 0x14,
  kValOffsetSf = 0x15,
  kValExpression = 0x16,
  kGnuArgsSize = 0x2e,
  kGnuNegativeOffsetExtended = 0x2f,
  // Instructions with an operand in the low six bits.
  kAdvanceLoc = 0x40,
  kOffset = 0x80,
  kRestore = 0xc0,
};

}  // namespace

// One CIE or FDE.
struct CallFrames::Entry {
  uint64_t offset = 0;  // in the section
  bool is_cie = false;
  uint64_t cie_offset = 0;  // of an FDE: the offset of its CIE, as the FDE states it
  Cursor body{{}};          // the rest of the entry
};

// Runs the instructions of a CIE, or of an FDE after those of its CIE.
class CallFrames::Interpreter {
 public:
  // `row` is null for a CIE, which has no location: an instruction that advances it is an error.
  Interpreter(const Cie& cie, const Function& function,
              const absl::FunctionRef<void(uint64_t address, const Columns& columns)>* row)
      : cie_(cie), row_(row), columns_(cie.initial), location_(function.start), end_(function.end) {}

  const Columns& columns() const { return columns_; }

  bool Run(Cursor cursor) {
    while (!cursor.empty() && location_ < end_) {
      if (!Execute(cursor) || !cursor.ok()) return false;
    }
    if (row_ && location_ < end_) (*row_)(location_, columns_);
    return true;
  }

 private:
  bool Execute(Cursor& cursor) {
    uint8_t instruction = cursor.Take<uint8_t>();
    uint8_t operand = instruction & 0x3f;
    switch (instruction & 0xc0) {
      case kAdvanceLoc:
        return Advance(operand);
      case kOffset:
        return SetScaled(operand, Place::kAtCfa, Unsigned(cursor));
      case kRestore:
        return Restore(operand);
    }
    switch (instruction) {
      case kNop:
        return true;
      case kSetLoc:
        return MoveTo(cursor.TakePointer(cie_.pointer_encoding));
      case kAdvanceLoc1:
        return Advance(cursor.Take<uint8_t>());
      case kAdvanceLoc2:
        return Advance(cursor.Take<uint16_t>());
      case kAdvanceLoc4:
        return Advance(cursor.Take<uint32_t>());
      case kRememberState:
        if (states_.size() == kMaxRememberedStates) return false;
        states_.push_back(columns_);
        return true;
      case kRestoreState:
        if (states_.empty()) return false;
        columns_ = states_.back();
        states_.pop_back();
        return true;
      case kDefCfa:
        DefineCfa(cursor.TakeUleb128());
        columns_.cfa.offset = Unsigned(cursor);
        return true;
      case kDefCfaSf:
        DefineCfa(cursor.TakeUleb128());
        return !__builtin_mul_overflow(cursor.TakeSleb128(), cie_.data_alignment, &columns_.cfa.offset);
      case kDefCfaRegister:
        DefineCfa(cursor.TakeUleb128());
        return true;
      case kDefCfaOffset:
        columns_.cfa.offset = Unsigned(cursor);
        return true;
      case kDefCfaOffsetSf:
        return !__builtin_mul_overflow(cursor.TakeSleb128(), cie_.data_alignment, &columns_.cfa.offset);
      case kDefCfaExpression:
        columns_.cfa.kind = Cfa::kExpression;
        columns_.cfa.expression = CfaOfExpression(cursor.TakeBytes(cursor.TakeUleb128()));
        return true;
      case kGnuArgsSize:  // matters to landing pads only
        cursor.TakeUleb128();
        return true;
      default:
        return SetRegister(instruction, cursor.TakeUleb128(), cursor);
    }
  }

  // Instructions whose first operand is a register.
  bool SetRegister(uint8_t instruction, uint64_t number, Cursor& cursor) {
    switch (instruction) {
      case kOffsetExtended:
        return SetScaled(number, Place::kAtCfa, Unsigned(cursor));
      case kOffsetExtendedSf:
        return SetScaled(number, Place::kAtCfa, cursor.TakeSleb128());
      case kGnuNegativeOffsetExtended:
        return SetScaled(number, Place::kAtCfa, static_cast<int64_t>(-cursor.TakeUleb128()));
      case kValOffset:
        return SetScaled(number, Place::kIsCfa, Unsigned(cursor));
      case kValOffsetSf:
        return SetScaled(number, Place::kIsCfa, cursor.TakeSleb128());
      case kRestoreExtended:
        return Restore(number);
      case kUndefined:
        return Set(number, {.kind = Place::kUndefined});
      case kSameValue:
        return Set(number, {.kind = Place::kSame});
      case kRegister:
        return Set(number, {.kind = Place::kInRegister, .value = Unsigned(cursor)});
      case kExpression:
        return Set(number, PlaceOfExpression(cursor.TakeBytes(cursor.TakeUleb128())));
      case kValExpression:
        cursor.TakeBytes(cursor.TakeUleb128());
        return Set(number, {.kind = Place::kOther});
      default:
        return false;
    }
  }

  // Offsets wrap around like addresses.
  static int64_t Unsigned(Cursor& cursor) { return static_cast<int64_t>(cursor.TakeUleb128()); }

  bool Set(uint64_t number, Place place) {
    if (Place* column = columns_.Find(number)) *column = place;
    return true;
  }

  bool SetScaled(uint64_t number, Place::Kind kind, int64_t factor) {
    int64_t offset;
    if (__builtin_mul_overflow(factor, cie_.data_alignment, &offset)) return false;
    return Set(number, {.kind = kind, .value = offset});
  }

  bool Restore(uint64_t number) {
    Columns initial = cie_.initial;
    if (const Place* place = initial.Find(number)) return Set(number, *place);
    return true;
  }

  void DefineCfa(uint64_t number) {
    columns_.cfa.kind = Cfa::kRegister;
    columns_.cfa.number = number;
  }

  bool Advance(uint64_t delta) {
    uint64_t bytes;
    if (__builtin_mul_overflow(delta, cie_.code_alignment, &bytes)) return false;
    uint64_t location;
    // An address beyond the end of the address space is beyond the function.
    if (__builtin_add_overflow(location_, bytes, &location)) location = end_;
    return MoveTo(location);
  }

  bool MoveTo(uint64_t location) {
    if (!row_ || location < location_) return false;
    if (location > location_) (*row_)(location_, columns_);
    location_ = location;
    return true;
  }

  const Cie& cie_;
  const absl::FunctionRef<void(uint64_t address, const Columns& columns)>* row_;
  Columns columns_;
  std::vector<Columns> states_;
  uint64_t location_;
  uint64_t end_;
};

absl::StatusOr<CallFrames> CallFrames::Parse(const FrameSection& section) {
  CallFrames frames;
  // In .debug_frame a CIE may follow its FDEs.
  absl::Status status = ForEachEntry(section, [&frames](Entry entry) -> absl::Status {
    Cie cie;
    if (!entry.is_cie || !ParseCie(entry, cie)) return absl::OkStatus();
    if (frames.cies_.size() == kMaxCies)
      return absl::InvalidArgumentError(absl::StrCat("call frames: more than ", kMaxCies, " CIEs"));
    frames.cie_by_offset_.emplace(entry.offset, static_cast<uint32_t>(frames.cies_.size()));
    frames.cies_.push_back(cie);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  status = ForEachEntry(section, [&frames](Entry entry) -> absl::Status {
    if (entry.is_cie) return absl::OkStatus();
    Function function;
    if (!frames.ParseFde(entry, function)) {
      ++frames.broken_;
    } else if (frames.functions_.size() == kMaxFunctions) {
      return absl::InvalidArgumentError(absl::StrCat("call frames: more than ", kMaxFunctions, " functions"));
    } else if (function.start < function.end) {
      frames.functions_.push_back(function);
    }
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return frames;
}

absl::Status CallFrames::ForEachEntry(const FrameSection& section, absl::FunctionRef<absl::Status(Entry)> visit) {
  bool bounded = section.functions != ~uint64_t{0};
  uint64_t functions = 0;
  Cursor cursor(section.bytes, section.address);
  // A rest that is shorter than a length field is padding.
  while (cursor.rest().size() >= sizeof(uint32_t) && functions < section.functions) {
    Entry entry = {.offset = section.bytes.size() - cursor.rest().size()};
    uint64_t length = cursor.Take<uint32_t>();
    bool wide = length == 0xffffffff;
    if (wide) length = cursor.Take<uint64_t>();
    if (length == 0) {
      if (bounded) break;
      continue;
    }
    uint64_t address = cursor.address();
    uint64_t id_offset = section.bytes.size() - cursor.rest().size();
    entry.body = Cursor(cursor.TakeBytes(length), address);
    if (section.format == FrameSection::kEhFrame) {
      uint32_t id = entry.body.Take<uint32_t>();
      entry.is_cie = id == 0;
      entry.cie_offset = id_offset - id;
    } else {
      uint64_t id = wide ? entry.body.Take<uint64_t>() : entry.body.Take<uint32_t>();
      entry.is_cie = id == (wide ? ~uint64_t{0} : 0xffffffff);
      entry.cie_offset = id;
    }
    if (!cursor.ok() || !entry.body.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("call frames: the entry at offset ", entry.offset, " is cut short"));
    }
    if (!entry.is_cie) ++functions;
    if (absl::Status status = visit(entry); !status.ok()) return status;
  }
  return absl::OkStatus();
}

bool CallFrames::ParseCie(Entry entry, Cie& cie) {
  Cursor& body = entry.body;
  uint8_t version = body.Take<uint8_t>();
  absl::string_view augmentation = body.TakeString();
  if (version != 1 && version != 3 && version != 4) return false;
  if (version == 4) {
    uint8_t address_size = body.Take<uint8_t>();
    uint8_t segment_selector_size = body.Take<uint8_t>();
    if (address_size != 8 || segment_selector_size != 0) return false;
  }
  cie.code_alignment = body.TakeUleb128();
  cie.data_alignment = body.TakeSleb128();
  uint64_t return_address = version == 1 ? body.Take<uint8_t>() : body.TakeUleb128();
  if (return_address != kReturnAddress) return false;

  if (!augmentation.empty()) {
    if (augmentation[0] != 'z') return false;
    cie.augmented = true;
    uint64_t size = body.TakeUleb128();
    uint64_t address = body.address();
    Cursor data(body.TakeBytes(size), address);
    for (char letter : augmentation.substr(1)) {
      if (letter == 'R') {
        cie.pointer_encoding = data.Take<uint8_t>();
      } else if (letter == 'L') {
        data.Take<uint8_t>();
      } else if (letter == 'P') {
        data.TakePointer(data.Take<uint8_t>());
      } else if (letter == 'S') {
        cie.signal = true;
      } else if (letter != 'B') {
        break;  // 'z' gives the length, so that unknown data can be skipped
      }
    }
    if (!data.ok()) return false;
  }
  if (!body.ok() || (cie.pointer_encoding & kPointerIndirect)) return false;
  Interpreter interpreter(cie, {.start = 0, .end = 1}, nullptr);
  if (!interpreter.Run(body)) return false;
  cie.initial = interpreter.columns();
  return true;
}

bool CallFrames::ParseFde(Entry entry, Function& function) const {
  auto found = cie_by_offset_.find(entry.cie_offset);
  if (found == cie_by_offset_.end()) return false;
  function.cie = found->second;
  const Cie& cie = cies_[function.cie];
  Cursor& body = entry.body;
  function.start = body.TakePointer(cie.pointer_encoding);
  uint64_t size = body.TakePointer(cie.pointer_encoding & kPointerFormat);
  if (__builtin_add_overflow(function.start, size, &function.end)) return false;
  if (cie.augmented) body.TakeBytes(body.TakeUleb128());
  function.instructions = body.rest();
  function.instructions_address = body.address();
  return body.ok();
}

bool CallFrames::ForEachRow(const Function& function,
                            absl::FunctionRef<void(uint64_t address, const Columns& columns)> row) const {
  Interpreter interpreter(cies_[function.cie], function, &row);
  return interpreter.Run(Cursor(function.instructions, function.instructions_address));
}

}  // namespace heaptap::unwind
