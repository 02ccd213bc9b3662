// SPDX-License-Identifier: Apache-2.0
//
// The table of all options: their names, types, ranges and fields. The parser, confirm_conf, opt.* of mallctl and
// malloc_stats_print use it. The default of an option is the default of its field (configuration.h).
//
// Constant; any thread, any time.
#ifndef HEAPTAP_ALLOCATOR_PROCESS_OPTIONS_H_
#define HEAPTAP_ALLOCATOR_PROCESS_OPTIONS_H_

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "allocator/process/configuration.h"

namespace heaptap {

// A piece of a string of options.
struct Text {
  const char* begin;
  size_t length;

  bool operator==(const char* other) const { return strlen(other) == length && memcmp(begin, other, length) == 0; }
};

// The syntax of values, and the type of the field.
enum class OptionType : uint8_t {
  kBool,       // true or false: bool
  kUnsigned,   // a number: unsigned
  kSize,       // a number: size_t, uint64_t
  kSigned,     // a number: ssize_t, int64_t
  kLogarithm,  // a number n: size_t, 2^n
  kRatio,      // a decimal fraction, or -1: uint32_t, in 1/65536
  kChoice,     // a word of a list: uint8_t or an enum of that type, the index of the word
  kText,       // any text: char[], cut to fit
  kLetters,    // any of kStatisticsLetters: char[]; repetitions and other characters are ignored
  kIgnored,    // any text; there is no field
};

struct Choices {
  const char* const* words = nullptr;
  size_t count = 0;
  bool abbreviated = false;  // any prefix of a word is accepted, even an empty one, as jemalloc does for some options
};

struct Range {
  int64_t minimum = INT64_MIN;  // for unsigned types, a negative minimum is 0
  uint64_t maximum = UINT64_MAX;
  bool clips = false;  // values outside the range are clipped to it; else they are errors
};

struct Option {
  const char* name;
  OptionType type;
  uint16_t offset;  // of the field in Configuration
  uint16_t size;    // of the field
  bool readable;    // has an opt.* name
  bool printed;     // in malloc_stats_print, if it is readable
  bool effective;   // has an effect in heaptap
  bool defaults;    // accepts the word "default"
  // mallctl's name of the current value, if the option is only the initial one; else nullptr.
  const char* current;
  Range range;
  Choices choices;
};

// The options of MALLOC_CONF.
extern const Option kOptions[];
extern const size_t kOptionCount;
// The options of HEAPTAP_CONF.
extern const Option kCollectorOptions[];
extern const size_t kCollectorOptionCount;

enum class OptionResult { kSet, kInvalid, kOutOfRange };

// Parses the value into the field of the option. The field is unchanged if the result is not kSet.
OptionResult SetOption(const Option& option, Text value, Configuration* configuration);

// The option with this name. nullptr: there is none.
const Option* FindOption(Text name, const Option* options, size_t count);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_OPTIONS_H_
