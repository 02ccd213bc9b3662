// SPDX-License-Identifier: Apache-2.0
//
// Parses the values of options. The table of options is in option_table.cc.
#include "allocator/process/options.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

namespace heaptap {
namespace {

constexpr Configuration kDefault{};

bool IsBlank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

unsigned DigitValue(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return 16;
}

// Parses like strtoumax with base 0: leading blanks and a sign are allowed, and a negative number wraps around. A
// number that does not fit into 64 bits is invalid.
bool ParseNumber(Text value, uint64_t* result) {
  const char* position = value.begin;
  const char* end = position + value.length;
  while (position != end && IsBlank(*position)) position++;
  bool negative = position != end && *position == '-';
  if (position != end && (*position == '-' || *position == '+')) position++;
  unsigned base = 10;
  if (end - position > 2 && position[0] == '0' && (position[1] == 'x' || position[1] == 'X')) {
    base = 16;
    position += 2;
  } else if (end - position > 1 && position[0] == '0') {
    base = 8;
    position += 1;
  }
  if (position == end) return false;
  uint64_t number = 0;
  for (; position != end; position++) {
    unsigned digit = DigitValue(*position);
    if (digit >= base || __builtin_mul_overflow(number, base, &number) ||
        __builtin_add_overflow(number, digit, &number)) {
      return false;
    }
  }
  *result = negative ? -number : number;
  return true;
}

OptionResult ParseUnsigned(const Range& range, Text value, uint64_t* result) {
  uint64_t number;
  if (!ParseNumber(value, &number)) return OptionResult::kInvalid;
  uint64_t minimum = range.minimum < 0 ? 0 : static_cast<uint64_t>(range.minimum);
  bool inside = number >= minimum && number <= range.maximum;
  if (!inside && !range.clips) return OptionResult::kOutOfRange;
  *result = number < minimum ? minimum : number > range.maximum ? range.maximum : number;
  return OptionResult::kSet;
}

OptionResult ParseSigned(const Range& range, Text value, int64_t* result) {
  uint64_t bits;
  if (!ParseNumber(value, &bits)) return OptionResult::kInvalid;
  int64_t number = static_cast<int64_t>(bits);
  if (number < range.minimum || (number > 0 && bits > range.maximum)) return OptionResult::kOutOfRange;
  *result = number;
  return OptionResult::kSet;
}

bool ParseRatio(Text value, uint32_t* result) {
  constexpr unsigned kFractionBits = 16;
  if (value == "-1") {
    *result = UINT32_MAX;
    return true;
  }
  uint64_t scaled = 0;
  uint64_t scale = 1;
  bool point = false;
  for (size_t i = 0; i < value.length; i++) {
    unsigned digit = DigitValue(value.begin[i]);
    if (value.begin[i] == '.' && !point) {
      point = true;
    } else if (digit < 10) {
      if (scale > 10000000) continue;  // a digit beyond the precision of the result
      scaled = scaled * 10 + digit;
      if (point) scale *= 10;
      if (scaled >> 40 != 0) return false;
    } else {
      return false;
    }
  }
  scaled = (scaled << kFractionBits) / scale;
  if (value.length == 0 || scaled > UINT32_MAX) return false;
  *result = static_cast<uint32_t>(scaled);
  return true;
}

bool ParseChoice(const Choices& choices, Text value, uint8_t* result) {
  for (size_t i = 0; i < choices.count; i++) {
    const char* word = choices.words[i];
    if (value == word ||
        (choices.abbreviated && value.length < strlen(word) && memcmp(word, value.begin, value.length) == 0)) {
      *result = static_cast<uint8_t>(i);
      return true;
    }
  }
  return false;
}

void AddLetters(Text value, char* letters) {
  size_t count = strlen(letters);
  for (size_t i = 0; i < value.length; i++) {
    char letter = value.begin[i];
    if (strchr(kStatisticsLetters, letter) == nullptr || strchr(letters, letter) != nullptr) continue;
    letters[count++] = letter;
    letters[count] = '\0';
  }
}

template <typename Value>
OptionResult Store(OptionResult result, Value value, char* field) {
  if (result == OptionResult::kSet) memcpy(field, &value, sizeof(value));
  return result;
}

OptionResult ValidIf(bool valid) { return valid ? OptionResult::kSet : OptionResult::kInvalid; }

}  // namespace

OptionResult SetOption(const Option& option, Text value, Configuration* configuration) {
  char* field = reinterpret_cast<char*>(configuration) + option.offset;
  if (option.defaults && value == "default") {
    memcpy(field, reinterpret_cast<const char*>(&kDefault) + option.offset, option.size);
    return OptionResult::kSet;
  }
  uint64_t number = 0;
  switch (option.type) {
    case OptionType::kBool: {
      bool truth = value == "true";
      return Store(ValidIf(truth || value == "false"), truth, field);
    }
    case OptionType::kUnsigned: {
      OptionResult result = ParseUnsigned(option.range, value, &number);
      return Store(result, static_cast<unsigned>(number), field);
    }
    case OptionType::kSize: {
      OptionResult result = ParseUnsigned(option.range, value, &number);
      return Store(result, number, field);
    }
    case OptionType::kLogarithm: {
      OptionResult result = ParseUnsigned(option.range, value, &number);
      return Store(result, uint64_t{1} << number, field);
    }
    case OptionType::kSigned: {
      int64_t difference = 0;
      OptionResult result = ParseSigned(option.range, value, &difference);
      return Store(result, difference, field);
    }
    case OptionType::kRatio: {
      uint32_t ratio = 0;
      bool valid = ParseRatio(value, &ratio);
      return Store(ValidIf(valid), ratio, field);
    }
    case OptionType::kChoice: {
      uint8_t choice = 0;
      bool valid = ParseChoice(option.choices, value, &choice);
      return Store(ValidIf(valid), choice, field);
    }
    case OptionType::kText: {
      size_t length = value.length < option.size ? value.length : option.size - size_t{1};
      memcpy(field, value.begin, length);
      field[length] = '\0';
      return OptionResult::kSet;
    }
    case OptionType::kLetters:
      AddLetters(value, field);
      return OptionResult::kSet;
    case OptionType::kIgnored:
      return OptionResult::kSet;
  }
  return OptionResult::kInvalid;
}

const Option* FindOption(Text name, const Option* options, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (name == options[i].name) return &options[i];
  }
  return nullptr;
}

}  // namespace heaptap
