// SPDX-License-Identifier: Apache-2.0
//
// The tree of mallctl's names. Each area is a constant list of nodes. A node is a leaf with a handler, or has a list of
// children. The index of a node in its list is its number in a MIB.
//
// Constant; any thread. Handlers are called with no lock held, after StartProcess.
#ifndef HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_TREE_H_
#define HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_TREE_H_

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>

#include <type_traits>

#include "allocator/jemalloc/snapshot.h"
#include "allocator/jemalloc/value.h"

namespace heaptap {

// The arguments of mallctl. Each method returns 0 or the errno value that mallctl returns.
struct Request {
  const size_t* mib;  // complete: one number for each level
  void* old_value;
  size_t* old_length;
  const void* new_value;
  size_t new_length;
  // For reports, which read without a caller: the destination of the value, and the snapshot to read from.
  StatisticsValue* report = nullptr;
  const Snapshot* snapshot = nullptr;

  bool wants_old() const { return old_value != nullptr && old_length != nullptr; }
  bool has_new() const { return new_value != nullptr; }

  int RefuseOld() const { return old_value != nullptr || old_length != nullptr ? EPERM : 0; }
  int RefuseNew() const { return new_value != nullptr || new_length != 0 ? EPERM : 0; }
  int RefuseBoth() const { return RefuseOld() != 0 ? EPERM : RefuseNew(); }

  // Copies the old value to the caller if it is wanted.
  template <typename Value>
  int Read(const Value& value) const {
    if constexpr (std::is_integral_v<Value> || std::is_same_v<Value, const char*>) {
      if (report != nullptr) *report = value;
    }
    if (!wants_old()) return 0;
    bool fits = *old_length == sizeof(value);
    if (*old_length > sizeof(value)) *old_length = sizeof(value);
    memcpy(old_value, &value, *old_length);
    return fits ? 0 : EINVAL;
  }

  // Like Read, for values that cannot be set.
  template <typename Value>
  int ReadOnly(const Value& value) const {
    int error = RefuseNew();
    return error != 0 ? error : Read(value);
  }

  // For handlers that create something and must return it: the caller must have room.
  int RequireRoom(size_t size) const {
    if (wants_old() && *old_length == size) return 0;
    if (old_length != nullptr) *old_length = 0;
    return EINVAL;
  }

  // Copies the new value to *value if there is one.
  template <typename Value>
  int Write(Value* value) const {
    if (!has_new()) return 0;
    if (new_length != sizeof(*value)) return EINVAL;
    memcpy(value, new_value, sizeof(*value));
    return 0;
  }

  // Like Write, but the caller must give a new value.
  template <typename Value>
  int Require(Value* value) const {
    return has_new() ? Write(value) : EINVAL;
  }
};

// The length of the longest path through the tree of names.
inline constexpr size_t kMaximumDepth = 7;

using Handler = int (*)(const Request& request);

struct NodeList;

struct Node {
  const char* name;
  Handler handler;  // of a leaf
  const NodeList* children;
  // Reports print nodes with a key as members of a JSON object, and nodes with a title also as a line of text.
  const char* key = nullptr;
  const char* title = nullptr;
};

struct NodeList {
  const Node* nodes;
  size_t count;
  // If set, an index precedes the names of the nodes. Returns whether the index is valid.
  bool (*accepts)(size_t index);
  // If set, more leaves with one handler follow the nodes. Returns the name of the i-th; nullptr: there is none.
  const char* (*member)(size_t i);
  Handler member_handler;
};

template <size_t kCount>
constexpr NodeList ListOf(const Node (&nodes)[kCount]) {
  return {nodes, kCount, nullptr, nullptr, nullptr};
}

template <size_t kCount>
constexpr NodeList IndexedListOf(const Node (&nodes)[kCount], bool (*accepts)(size_t index)) {
  return {nodes, kCount, accepts, nullptr, nullptr};
}

constexpr Node Leaf(const char* name, Handler handler) { return {name, handler, nullptr}; }
constexpr Node Inner(const char* name, const NodeList& children) { return {name, nullptr, &children}; }
// Like Leaf and Inner, for nodes that reports print. REQUIRES: the handler only reads.
constexpr Node ShownAs(const char* key, Node node, const char* title = nullptr) {
  node.key = key;
  node.title = title;
  return node;
}
constexpr Node Shown(const char* name, Handler handler, const char* title = nullptr) {
  return ShownAs(name, Leaf(name, handler), title);
}
constexpr Node Shown(const char* name, const NodeList& children) { return ShownAs(name, Inner(name, children)); }

// A handler of a constant.
template <auto kValue>
int Constant(const Request& request) {
  return request.ReadOnly(kValue);
}

// A handler of a read-only value that a function returns.
template <auto kFunction>
int Result(const Request& request) {
  return request.ReadOnly(kFunction());
}

// Whether a bin, or an extent class, with this index exists (snapshot.h).
inline bool IsBin(size_t index) { return index < kSmallClasses; }
inline bool IsExtentClass(size_t index) { return index < kExtentClasses; }

// The index of an arena, as jemalloc understands it: the number of arenas is an old synonym of kAllArenas.
size_t ArenaIndexOf(size_t index);

// The areas.
extern const NodeList kThreadNames;
extern const NodeList kCacheNames;  // tcache
extern const NodeList kConfigNames;
extern const NodeList kOptionNames;
extern const NodeList kArenaNames;   // arena
extern const NodeList kArenasNames;  // arenas
extern const NodeList kProfNames;
extern const NodeList kStatisticsNames;
extern const NodeList kArenaStatisticsNames;  // stats.arenas.<i>
extern const NodeList kApproximateStatisticsNames;
extern const NodeList kExperimentalNames;

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_JEMALLOC_MALLCTL_TREE_H_
