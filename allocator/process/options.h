// SPDX-License-Identifier: Apache-2.0
//
// The table of all options: how each is written and where it is kept. The parser, confirm_conf, opt.* of mallctl
// and malloc_stats_print are made of it. An option's default is its field's (configuration.h).
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

// How values are written, and what is behind the field.
enum class OptionType : uint8_t {
  kBool,       // true or false: bool
  kUnsigned,   // a number: unsigned
  kSize,       // a number: size_t, uint64_t
  kSigned,     // a number: ssize_t, int64_t
  kLogarithm,  // a number: size_t, its power of two
  kRatio,      // a decimal fraction, or -1: uint32_t, in 1/65536
  kChoice,     // one of a list of words: uint8_t or an enum of it, the word's place in the list
  kText,       // anything: char[], cut to fit
  kLetters,    // any of kStatisticsLetters: char[]; repetitions and other characters are ignored
  kIgnored,    // anything; there is no field
};

struct Choices {
  const char* const* words = nullptr;
  size_t count = 0;
  bool abbreviated = false;  // the beginning of a word is enough, even an empty one; jemalloc reads some so
};

struct Range {
  int64_t minimum = INT64_MIN;  // of what is unsigned, 0 if it is negative
  uint64_t maximum = UINT64_MAX;
  bool clips = false;  // values outside become the nearest inside; else they are errors
};

struct Option {
  const char* name;
  OptionType type;
  uint16_t offset;  // of the field in Configuration
  uint16_t size;    // of the field
  bool readable;    // has an opt.* name
  bool printed;     // in malloc_stats_print, if it is readable
  bool effective;   // does something here
  bool defaults;    // the word "default" stands for the default
  // mallctl's name of the value that holds now, if the option is only its beginning; else nullptr.
  const char* current;
  Range range;
  Choices choices;
};

// All that MALLOC_CONF may contain.
extern const Option kOptions[];
extern const size_t kOptionCount;
// All that HEAPTAP_CONF may contain.
extern const Option kCollectorOptions[];
extern const size_t kCollectorOptionCount;

enum class OptionResult { kSet, kInvalid, kOutOfRange };

// Reads the value into the option's field, which is left alone if the result is not kSet.
OptionResult SetOption(const Option& option, Text value, Configuration* configuration);

// Looks the name up; nullptr if there is no such option.
const Option* FindOption(Text name, const Option* options, size_t count);

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_PROCESS_OPTIONS_H_
