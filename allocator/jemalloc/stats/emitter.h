// SPDX-License-Identifier: Apache-2.0
//
// Writes a report in one of two forms: JSON without white space, or text in lines and tables. Some methods are for one
// form only, and do nothing in the other. REQUIRES: the calls nest the JSON properly.
//
// Allocates nothing. Passes the report to `write` in NUL-terminated pieces; `write` may do anything, even allocate. For
// one thread.
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
  bool left = false;  // left-justified, else right-justified
};

class StatisticsEmitter {
 public:
  enum class Form { kText, kJson };

  StatisticsEmitter(Form form, WriteFunction write, void* opaque) : form_(form), write_(write), opaque_(opaque) {}
  // Writes the rest of the report.
  ~StatisticsEmitter() { Flush(); }
  StatisticsEmitter(const StatisticsEmitter&) = delete;
  StatisticsEmitter& operator=(const StatisticsEmitter&) = delete;

  bool is_json() const { return form_ == Form::kJson; }

  // Both forms: a member of the current JSON object; a line "title: value". With a note, the line is
  // "title: value (note: other)", and the JSON is the same.
  void Entry(const char* key, const char* title, StatisticsValue value);
  void Entry(const char* key, const char* title, StatisticsValue value, const char* note, StatisticsValue other);
  // Both forms: a JSON object; a line with the heading, and indented entries up to EndSection.
  void BeginSection(const char* key, const char* heading);
  void EndSection();

  // JSON only. `key` nullptr: an element of an array, or the root value.
  void BeginObject(const char* key = nullptr);
  void EndObject();
  void BeginArray(const char* key);
  void EndArray();
  void Member(const char* key, StatisticsValue value);

  // Text only.
  StatisticsEmitter& Text(const char* text);
  StatisticsEmitter& Text(uint64_t number);
  // The cells of a row; Text("\n") ends it. `taken`: the part of the first cell's width that the line has already used.
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
  // Writes the value. Texts are quoted, and escaped in JSON.
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
