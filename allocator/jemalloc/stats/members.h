// SPDX-License-Identifier: Apache-2.0
//
// Prints what mallctl's tree shows in reports (Node::key): JSON with all members, text with those that have a title.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_

#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/stats/emitter.h"

namespace heaptap {

// The beginning of a name and its end; for one thread.
class JoinedName {
 public:
  JoinedName(const char* begin, const char* end);
  const char* text() const { return text_; }

 private:
  void Append(const char* part);

  char text_[64];  // more than the names in reports have
  size_t length_ = 0;
};

// For one thread. Reads from `snapshot` instead of the last one, unless it is nullptr. Leaves out the members for which
// `is_wanted` is false; `is_outermost`: the member stands in the list that Print was given.
class MemberPrinter {
 public:
  using Filter = bool (*)(const char* key, bool is_outermost, const void* context);

  explicit MemberPrinter(StatisticsEmitter* emitter, const Snapshot* snapshot = nullptr, Filter is_wanted = nullptr,
                         const void* context = nullptr)
      : emitter_(emitter), snapshot_(snapshot), is_wanted_(is_wanted), context_(context) {}

  // All members of a list, which stands at `depth` in the tree; numbers before that in a MIB are 0. `prefix`: what
  // stands before a key in the title of a line of text; nullptr: only members with a title of their own have a line.
  void Print(const NodeList& list, size_t depth, const char* prefix = nullptr) { PrintList(list, depth, prefix, true); }

 private:
  void PrintList(const NodeList& list, size_t depth, const char* prefix, bool is_outermost);
  void PrintLeaf(const Node& node, const char* prefix);
  void PrintChildren(const Node& node, size_t depth);

  // No path through the tree is longer.
  static constexpr size_t kMaximumDepth = 7;

  StatisticsEmitter* emitter_;
  const Snapshot* snapshot_;
  Filter is_wanted_;
  const void* context_;
  size_t mib_[kMaximumDepth] = {};
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_
