// SPDX-License-Identifier: Apache-2.0
//
// Sums of call paths by function, line or library: the memory that a row allocates itself, and the memory that it
// allocates with its callees. Functions here are thread-safe and take linear time, except for sorting.
#ifndef HEAPTAP_USERSPACE_REPORT_ROWS_H_
#define HEAPTAP_USERSPACE_REPORT_ROWS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "userspace/report/named_profile.h"

namespace heaptap::report {

// Below roots that are threads, sizes or ages (Roots), frames have the names of functions.
enum class By { kFunction, kLine, kLibrary, kThread, kSize, kAge };
inline bool IsOfRoots(By by) { return by == By::kThread || by == By::kSize || by == By::kAge; }
enum class Value { kLive, kAllocated, kFreed };
enum class Unit { kBytes, kObjects };

// The choices of a view.
struct Show {
  By by = By::kFunction;
  Value value = Value::kLive;
  Unit unit = Unit::kBytes;
  bool full_names = false;
};

inline const Measure& Of(const Measures& measures, Value value) {
  switch (value) {
    case Value::kAllocated:
      return measures.allocated;
    case Value::kFreed:
      return measures.freed;
    case Value::kLive:
      break;
  }
  return measures.live;
}
// "live", "allocated" or "freed".
const char* WordFor(Value value);
inline double Of(const Measure& measure, Unit unit) { return unit == Unit::kBytes ? measure.bytes : measure.objects; }

// The name of a frame in a view: its function, "function file:line", or the name of its library.
std::string NameOf(const NamedProfile& profile, const NamedFrame& frame, const Show& show);

// The name of paths without frames.
std::string NameOfUnknown();

// Numbers the names of frames. Frames with the same name have the same number.
class RowNumbers {
 public:
  // Keeps references to its arguments.
  RowNumbers(const NamedProfile& profile, const Show& show) : profile_(profile), show_(show) {}
  RowNumbers(const NamedProfile& profile, Show&& show) = delete;

  size_t At(FrameId id);
  size_t AtName(const std::string& name);
  const std::string& Name(size_t number) const { return names_[number]; }
  size_t size() const { return names_.size(); }

 private:
  const NamedProfile& profile_;
  const Show& show_;
  absl::flat_hash_map<FrameId, size_t> by_frame_;
  absl::flat_hash_map<std::string, size_t> by_name_;
  std::vector<std::string> names_;
};

struct Row {
  std::string name = {};
  Measure self = {};   // of paths that end here
  Measure total = {};  // of paths that go through here, each once
  size_t paths = 0;    // that go through here
};

// The paths with their outermost frame only. REQUIRES: paths of a profile with roots.
std::vector<Path> RootsOf(absl::Span<const Path> paths);

// One row for each name, the largest `self` first; with `by_total`, the largest `total`.
std::vector<Row> Rows(const NamedProfile& profile, absl::Span<const Path> paths, const Show& show, bool by_total);

// The paths, with those that have the same names merged into one; the largest first.
std::vector<Path> MergePaths(const NamedProfile& profile, std::vector<Path> paths, const Show& show);

}  // namespace heaptap::report

#endif  // HEAPTAP_USERSPACE_REPORT_ROWS_H_
