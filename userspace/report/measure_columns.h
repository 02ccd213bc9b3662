// SPDX-License-Identifier: Apache-2.0
//
// The columns of one measure, for the page. Not thread-safe.
#ifndef HEAPTAP_USERSPACE_REPORT_MEASURE_COLUMNS_H_
#define HEAPTAP_USERSPACE_REPORT_MEASURE_COLUMNS_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "userspace/report/json_column.h"
#include "userspace/report/measure.h"

namespace heaptap::report {

class MeasureColumns {
 public:
  explicit MeasureColumns(const std::string& name)
      : bytes_(name + "_bytes"),
        objects_(name + "_objects"),
        samples_(name + "_samples"),
        variance_(name + "_variance") {}
  void Add(const Measure& measure) {
    bytes_.AddEstimate(measure.bytes);
    objects_.AddEstimate(measure.objects);
    samples_.Add(static_cast<int64_t>(measure.samples));
    variance_.AddEstimate(measure.variance);
  }
  // The columns as members of an object.
  std::string Text() const {
    return absl::StrCat(bytes_.Text(), ",", objects_.Text(), ",", samples_.Text(), ",", variance_.Text());
  }

 private:
  JsonColumn bytes_, objects_, samples_, variance_;
};

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_MEASURE_COLUMNS_H_
