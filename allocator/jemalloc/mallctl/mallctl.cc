// SPDX-License-Identifier: Apache-2.0
#include "allocator/jemalloc/mallctl/mallctl.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <atomic>

#include "allocator/jemalloc/mallctl/tree.h"
#include "allocator/jemalloc/snapshot.h"
#include "allocator/process/background_thread.h"
#include "allocator/process/process.h"

namespace heaptap {
namespace {

// In jemalloc's format, which programs parse. It is the version of the names and their meaning.
constexpr char kVersion[] = "5.3.1-0-g0000000000000000000000000000000000000000 heaptap";

int Version(const Request& request) { return request.ReadOnly(static_cast<const char*>(kVersion)); }

int Epoch(const Request& request) {
  uint64_t ignored;
  int error = request.Write(&ignored);
  if (error != 0) return error;
  if (request.has_new() || SnapshotEpoch() == 0) TakeSnapshot();
  return request.Read(SnapshotEpoch());
}

int BackgroundThread(const Request& request) {
  const bool had_thread = HasBackgroundThread();
  bool wants_thread = had_thread;
  int error = request.Write(&wants_thread);
  if (error == 0) error = request.Read(had_thread);
  if (error != 0 || !request.has_new()) return error;
  if (!wants_thread) StopBackgroundThread();
  return !wants_thread || StartBackgroundThread() ? 0 : EAGAIN;
}

int MaximumBackgroundThreads(const Request& request) {
  static constinit std::atomic<size_t> maximum;  // 0: not set
  size_t limit = ProcessConfiguration().max_background_threads;
  size_t old_maximum = maximum.load(std::memory_order_relaxed);
  if (old_maximum == 0) old_maximum = limit;
  size_t new_maximum = old_maximum;
  int error = request.Write(&new_maximum);
  if (error == 0) error = request.Read(old_maximum);
  if (error != 0) return error;
  if (new_maximum == 0 || new_maximum > limit) return EINVAL;
  maximum.store(new_maximum, std::memory_order_relaxed);
  return 0;
}

constexpr Node kRootNodes[] = {
    Leaf("version", Version),
    Leaf("epoch", Epoch),
    Leaf("background_thread", BackgroundThread),
    Leaf("max_background_threads", MaximumBackgroundThreads),
    Inner("thread", kThreadNames),
    Inner("config", kConfigNames),
    Inner("opt", kOptionNames),
    Inner("tcache", kCacheNames),
    Inner("arena", kArenaNames),
    Inner("arenas", kArenasNames),
    Inner("prof", kProfNames),
    Inner("stats", kStatisticsNames),
    Inner("approximate_stats", kApproximateStatisticsNames),
    Inner("experimental", kExperimentalNames),
};
constexpr NodeList kRoot = ListOf(kRootNodes);

// A position in the tree. It begins at the root and descends with each part of a name or number of a MIB.
class TreeCursor {
 public:
  // Descends to the node with this number. False: there is none.
  bool Enter(size_t number);
  // Finds the number of the node with this name. False: there is none.
  bool Find(const char* name, size_t length, size_t* number) const;

  bool at_leaf() const { return handler_ != nullptr; }
  Handler handler() const { return handler_; }

 private:
  bool expects_index() const { return list_->accepts != nullptr && !has_index_; }

  const NodeList* list_ = &kRoot;  // nullptr at a leaf
  bool has_index_ = false;         // the index that list_ expects was given
  Handler handler_ = nullptr;
};

bool TreeCursor::Enter(size_t number) {
  if (list_ == nullptr) return false;
  if (expects_index()) {
    has_index_ = list_->accepts(number);
    return has_index_;
  }
  has_index_ = false;
  if (number < list_->count) {
    const Node& node = list_->nodes[number];
    handler_ = node.handler;
    list_ = node.children;
    return true;
  }
  if (list_->member == nullptr || list_->member(number - list_->count) == nullptr) return false;
  handler_ = list_->member_handler;
  list_ = nullptr;
  return true;
}

bool IsName(const char* name, const char* text, size_t length) {
  return strncmp(name, text, length) == 0 && name[length] == '\0';
}

bool ReadIndex(const char* text, size_t length, size_t* index) {
  *index = 0;
  for (size_t i = 0; i < length; i++) {
    if (text[i] < '0' || text[i] > '9') return false;
    size_t digit = static_cast<size_t>(text[i] - '0');
    if (__builtin_mul_overflow(*index, 10, index) || __builtin_add_overflow(*index, digit, index)) return false;
  }
  return length != 0;
}

bool TreeCursor::Find(const char* name, size_t length, size_t* number) const {
  if (expects_index()) return ReadIndex(name, length, number);
  for (size_t i = 0; i < list_->count; i++) {
    if (!IsName(list_->nodes[i].name, name, length)) continue;
    *number = i;
    return true;
  }
  if (list_->member == nullptr) return false;
  for (size_t i = 0; const char* member = list_->member(i); i++) {
    if (!IsName(member, name, length)) continue;
    *number = list_->count + i;
    return true;
  }
  return false;
}

// Follows the name to its end, or as far as the MIB has room. Sets *mib_length.
int FollowName(const char* name, TreeCursor* cursor, size_t* mib, size_t* mib_length) {
  if (*name == '\0' || *name == '.') return ENOENT;
  for (size_t depth = 0; depth < *mib_length; depth++) {
    const char* end = name;
    while (*end != '\0' && *end != '.') end++;
    if (!cursor->Find(name, static_cast<size_t>(end - name), &mib[depth]) || !cursor->Enter(mib[depth])) return ENOENT;
    if (cursor->at_leaf() && *end != '\0') return ENOENT;
    if (*end == '\0') {
      *mib_length = depth + 1;
      return 0;
    }
    name = end + 1;
  }
  return 0;
}

}  // namespace

int Mallctl(const char* name, void* old_value, size_t* old_length, const void* new_value, size_t new_length) {
  StartProcess();
  size_t mib[kMaximumDepth];
  size_t depth = kMaximumDepth;
  TreeCursor cursor;
  int error = FollowName(name, &cursor, mib, &depth);
  if (error != 0) return error;
  if (!cursor.at_leaf()) return ENOENT;
  return cursor.handler()(
      {.mib = mib, .old_value = old_value, .old_length = old_length, .new_value = new_value, .new_length = new_length});
}

StatisticsValue ReadValue(const char* name) {
  StatisticsValue value;
  size_t mib[kMaximumDepth];
  size_t depth = kMaximumDepth;
  TreeCursor cursor;
  if (FollowName(name, &cursor, mib, &depth) != 0 || !cursor.at_leaf()) return value;
  Request request = {};
  request.mib = mib;
  request.report = &value;
  return cursor.handler()(request) == 0 ? value : StatisticsValue();
}

int MallctlNameToMib(const char* name, size_t* mib, size_t* mib_length) {
  StartProcess();
  TreeCursor cursor;
  return FollowName(name, &cursor, mib, mib_length);
}

int MallctlByMib(const size_t* mib, size_t mib_length, void* old_value, size_t* old_length, const void* new_value,
                 size_t new_length) {
  StartProcess();
  TreeCursor cursor;
  for (size_t i = 0; i < mib_length; i++) {
    if (!cursor.Enter(mib[i])) return ENOENT;
  }
  if (!cursor.at_leaf()) return ENOENT;
  return cursor.handler()(
      {.mib = mib, .old_value = old_value, .old_length = old_length, .new_value = new_value, .new_length = new_length});
}

}  // namespace heaptap
