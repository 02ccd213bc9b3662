// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/stats/emitter.h"

#include <stdint.h>
#include <string.h>

#include "allocator/platform/assert.h"
#include "allocator/platform/system.h"

namespace heaptap {

void StatisticsEmitter::Entry(const char* key, const char* title, StatisticsValue value) {
  if (is_json()) return Member(key, value);
  Cell({"", indentation_}, "");
  Put(title);
  Put(": ");
  Put(value);
  Put("\n");
}

void StatisticsEmitter::Entry(const char* key, const char* title, StatisticsValue value, const char* note,
                              StatisticsValue other) {
  if (is_json()) return Member(key, value);
  Cell({"", indentation_}, "");
  Put(title);
  Put(": ");
  Put(value);
  Put(" (");
  Put(note);
  Put(": ");
  Put(other);
  Put(")\n");
}

void StatisticsEmitter::BeginSection(const char* key, const char* heading) {
  BeginObject(key);
  Text(heading).Text("\n");
  indentation_ += 2;
}

void StatisticsEmitter::EndSection() {
  HEAPTAP_ASSERT(indentation_ != 0);
  EndObject();
  indentation_ -= 2;
}

void StatisticsEmitter::BeginObject(const char* key) {
  if (!is_json()) return;
  BeginMember(key);
  Put("{");
  needs_comma_ = false;
}

void StatisticsEmitter::EndObject() {
  if (!is_json()) return;
  Put("}");
  needs_comma_ = true;
}

void StatisticsEmitter::BeginArray(const char* key) {
  if (!is_json()) return;
  BeginMember(key);
  Put("[");
  needs_comma_ = false;
}

void StatisticsEmitter::EndArray() {
  if (!is_json()) return;
  Put("]");
  needs_comma_ = true;
}

void StatisticsEmitter::Member(const char* key, StatisticsValue value) {
  if (!is_json()) return;
  BeginMember(key);
  Put(value);
}

StatisticsEmitter& StatisticsEmitter::Text(const char* text) {
  if (!is_json()) Put(text);
  return *this;
}

StatisticsEmitter& StatisticsEmitter::Text(uint64_t number) {
  if (!is_json()) Put(StatisticsValue(number));
  return *this;
}

void StatisticsEmitter::Cell(const StatisticsColumn& column, const StatisticsValue& value) {
  if (is_json()) return;
  char digits[kMaxDigits];
  const char* text = value.text_;
  size_t length;
  if (value.kind_ == StatisticsValue::kText) {
    length = strlen(text);
  } else {
    text = FormatDecimal(value.number_, digits);
    length = static_cast<size_t>(digits + kMaxDigits - text);
  }
  size_t padding = length < column.width ? column.width - length : 0;
  if (column.left) Put(text, length);
  for (size_t i = 0; i < padding; i++) Put(" ", 1);
  if (!column.left) Put(text, length);
}

void StatisticsEmitter::BeginMember(const char* key) {
  if (needs_comma_) Put(",");
  needs_comma_ = true;
  if (key == nullptr) return;
  PutQuoted(key);
  Put(":");
}

void StatisticsEmitter::Put(const StatisticsValue& value) {
  switch (value.kind_) {
    case StatisticsValue::kNothing:
      return;
    case StatisticsValue::kTruth:
      return Put(value.number_ != 0 ? "true" : "false");
    case StatisticsValue::kText:
      return PutQuoted(value.text_);
    case StatisticsValue::kRatio:
      return PutRatio(static_cast<uint32_t>(value.number_));
    case StatisticsValue::kNumber:
      char digits[kMaxDigits];
      const char* first = FormatDecimal(value.number_, digits);
      if (value.negative_) Put("-", 1);
      return Put(first, static_cast<size_t>(digits + kMaxDigits - first));
  }
}

// A binary fraction of n digits has at most n decimal digits.
void StatisticsEmitter::PutRatio(uint32_t ratio) {
  constexpr uint32_t kFractionBits = 16;
  constexpr uint32_t kFractionMask = (uint32_t{1} << kFractionBits) - 1;
  if (ratio == UINT32_MAX) return Put("\"-1\"");
  Put("\"");
  Put(StatisticsValue(ratio >> kFractionBits));
  Put(".");
  uint32_t rest = ratio & kFractionMask;
  do {
    rest *= 10;
    Put(StatisticsValue(rest >> kFractionBits));
    rest &= kFractionMask;
  } while (rest != 0);
  Put("\"");
}

void StatisticsEmitter::PutQuoted(const char* text) {
  constexpr char kHexadecimal[] = "0123456789abcdef";
  Put("\"", 1);
  for (; *text != '\0'; text++) {
    unsigned char character = static_cast<unsigned char>(*text);
    if (is_json() && (character == '"' || character == '\\')) {
      Put("\\", 1);
    } else if (is_json() && character < ' ') {
      const char escape[] = {'\\', 'u', '0', '0', kHexadecimal[character >> 4], kHexadecimal[character & 15]};
      Put(escape, sizeof(escape));
      continue;
    }
    Put(text, 1);
  }
  Put("\"", 1);
}

void StatisticsEmitter::Put(const char* text, size_t length) {
  while (length != 0) {
    size_t room = sizeof(buffer_) - 1 - length_;
    size_t part = length < room ? length : room;
    memcpy(buffer_ + length_, text, part);
    length_ += part;
    text += part;
    length -= part;
    if (length_ == sizeof(buffer_) - 1) Flush();
  }
}

void StatisticsEmitter::Put(const char* text) { Put(text, strlen(text)); }

void StatisticsEmitter::Flush() {
  if (length_ == 0) return;
  buffer_[length_] = '\0';
  length_ = 0;
  write_(opaque_, buffer_);
}

}  // namespace heaptap
