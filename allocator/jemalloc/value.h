// SPDX-License-Identifier: Apache-2.0
//
// A value of mallctl with its type, for reports.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_VALUE_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_VALUE_H_

#include <stdint.h>

namespace heaptap {

// A number, a truth value, a ratio, a text, or nothing. Does not own the text. Not thread safe.
class StatisticsValue {
 public:
  StatisticsValue() = default;
  StatisticsValue(bool truth) : kind_(kTruth), number_(truth) {}
  StatisticsValue(int number) : StatisticsValue(static_cast<int64_t>(number)) {}
  StatisticsValue(unsigned number) : kind_(kNumber), number_(number) {}
  StatisticsValue(uint64_t number) : kind_(kNumber), number_(number) {}
  StatisticsValue(int64_t number)
      : kind_(kNumber),
        negative_(number < 0),
        number_(negative_ ? -static_cast<uint64_t>(number) : static_cast<uint64_t>(number)) {}
  StatisticsValue(const char* text) : kind_(text == nullptr ? kNothing : kText), text_(text) {}

  // `ratio`: in 1/65536; UINT32_MAX stands for -1.
  static StatisticsValue Ratio(uint32_t ratio) {
    StatisticsValue value(ratio);
    value.kind_ = kRatio;
    return value;
  }

  bool exists() const { return kind_ != kNothing; }

 private:
  friend class StatisticsEmitter;
  enum Kind : uint8_t { kNothing, kTruth, kNumber, kRatio, kText };
  Kind kind_ = kNothing;
  bool negative_ = false;
  uint64_t number_ = 0;
  const char* text_ = nullptr;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_VALUE_H_
