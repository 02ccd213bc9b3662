// SPDX-License-Identifier: Apache-2.0
//
// Prints the nodes of mallctl's tree that reports show (Node::key): all of them as JSON, those with a title as text.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_

#include <stddef.h>

#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/stats/emitter.h"

namespace heaptap {

// Two parts of a name, joined. For one thread.
class JoinedName {
 public:
  JoinedName(const char* begin, const char* end);
  const char* text() const { return text_; }

 private:
  void Append(const char* part);

  char text_[64];  // longer than all names in reports
  size_t length_ = 0;
};

// For one thread. `snapshot`: the source of the values; nullptr: the last snapshot. Members for which `is_wanted` is
// false are omitted; `is_outermost`: the member is in the list that was passed to Print.
class MemberPrinter {
 public:
  using Filter = bool (*)(const char* key, bool is_outermost, const void* context);

  explicit MemberPrinter(StatisticsEmitter* emitter, const Snapshot* snapshot = nullptr, Filter is_wanted = nullptr,
                         const void* context = nullptr)
      : emitter_(emitter), snapshot_(snapshot), is_wanted_(is_wanted), context_(context) {}

  // Prints all members of a list at `depth` in the tree; the numbers before it in the MIB are 0. `prefix`: precedes the
  // key in the title of a line of text; nullptr: only members with their own title get a line.
  void Print(const NodeList& list, size_t depth, const char* prefix = nullptr) { PrintList(list, depth, prefix, true); }
  // Like Print, for a list whose names follow an index.
  void PrintAt(size_t index, const NodeList& list, size_t depth) {
    mib_[depth - 1] = index;
    Print(list, depth);
  }

 private:
  void PrintList(const NodeList& list, size_t depth, const char* prefix, bool is_outermost);
  void PrintLeaf(const Node& node, const char* prefix);
  void PrintChildren(const Node& node, size_t depth);

  StatisticsEmitter* emitter_;
  const Snapshot* snapshot_;
  Filter is_wanted_;
  const void* context_;
  size_t mib_[kMaximumDepth] = {};
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_STATS_MEMBERS_H_
