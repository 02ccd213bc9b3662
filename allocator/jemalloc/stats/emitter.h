// SPDX-License-Identifier: Apache-2.0
//
// One report in two forms: JSON without white space, or text in lines and tables. Each call says for which of them it
// is; in the other it does nothing. The caller nests JSON properly.
//
// Allocates nothing. Hands over the report in pieces, NUL-terminated, while it grows; `write` may do what it likes, the
// allocator included. For one thread.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_STATS_EMITTER_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_STATS_EMITTER_H_

#include <stddef.h>
#include <stdint.h>

#include "allocator/jemalloc/value.h"

namespace heaptap {

using WriteFunction = void (*)(void* opaque, const char* text);

struct StatisticsColumn {
  const char* title;
  unsigned width;
  bool left = false;  // justified; right otherwise
};

class StatisticsEmitter {
 public:
  enum class Form { kText, kJson };

  StatisticsEmitter(Form form, WriteFunction write, void* opaque) : form_(form), write_(write), opaque_(opaque) {}
  // Hands over what is left.
  ~StatisticsEmitter() { Flush(); }
  StatisticsEmitter(const StatisticsEmitter&) = delete;
  StatisticsEmitter& operator=(const StatisticsEmitter&) = delete;

  bool is_json() const { return form_ == Form::kJson; }

  // Both forms: a member of the JSON object at hand; a line "title: value". With a note, which is text only,
  // "title: value (note: other)".
  void Entry(const char* key, const char* title, StatisticsValue value);
  void Entry(const char* key, const char* title, StatisticsValue value, const char* note, StatisticsValue other);
  // Both forms: a JSON object; a line with the heading, and the entries up to the end indented.
  void BeginSection(const char* key, const char* heading);
  void EndSection();

  // JSON only. `key` nullptr: an element of an array, or the outermost value.
  void BeginObject(const char* key = nullptr);
  void EndObject();
  void BeginArray(const char* key);
  void EndArray();
  void Member(const char* key, StatisticsValue value);

  // Text only.
  StatisticsEmitter& Text(const char* text);
  StatisticsEmitter& Text(uint64_t number);
  // Cells of a row, which Text("\n") ends. `taken`: the width of the first that the line has used already.
  template <size_t count>
  void Headings(const StatisticsColumn (&columns)[count], unsigned taken = 0) {
    for (const StatisticsColumn& column : columns) {
      Cell({column.title, column.width - taken, column.left}, column.title);
      taken = 0;
    }
  }
  template <size_t count>
  void Cells(const StatisticsColumn (&columns)[count], const StatisticsValue (&values)[count]) {
    for (size_t i = 0; i < count; i++) Cell(columns[i], values[i]);
  }

 private:
  void Cell(const StatisticsColumn& column, const StatisticsValue& value);
  void BeginMember(const char* key);
  // The value as it is; texts in quotation marks, and for JSON escaped.
  void Put(const StatisticsValue& value);
  void PutQuoted(const char* text);
  void PutRatio(uint32_t ratio);
  void Put(const char* text, size_t length);
  void Put(const char* text);
  void Flush();

  Form form_;
  WriteFunction write_;
  void* opaque_;
  unsigned indentation_ = 0;
  bool needs_comma_ = false;
  size_t length_ = 0;
  char buffer_[1024];
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_STATS_EMITTER_H_
