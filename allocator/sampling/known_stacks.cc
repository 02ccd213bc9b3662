// SPDX-License-Identifier: Apache-2.0
#include "allocator/sampling/known_stacks.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/platform/assert.h"

namespace heaptap {
namespace {

// A table has this many elements at first. A power of two.
constexpr uint32_t kLeastTable = 256;

// Tables are at most three quarters full.
constexpr bool IsFull(uint64_t used, uint64_t size) { return used * 4 > size * 3; }

uint64_t HashOf(uint64_t suffix, const StackWord& word) {
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
  const uint64_t mixed = (suffix ^ word.at * kMultiplier) * kMultiplier ^ word.value;
  return (mixed ^ mixed >> 29) * kMultiplier;
}

// The hash of an element of the table. Not 0, which is an element without words.
uint32_t Short(uint64_t hash) { return static_cast<uint32_t>(hash >> 32) | 1; }

}  // namespace

// While one exists, a function of the object that runs in a signal handler finds nothing. Nested: it runs in such a
// handler itself, and changes nothing.
class KnownStacks::Work {
 public:
  explicit Work(KnownStacks& stacks) : stacks_(stacks), is_nested_(stacks.works_ || stacks.is_searched_) {
    if (is_nested_) return;
    stacks.works_ = true;
    stacks.visible_children_ = nullptr;
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  ~Work() {
    if (is_nested_) return;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    stacks_.visible_children_ = stacks_.children_.data();
    stacks_.works_ = false;
  }
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  bool is_nested() const { return is_nested_; }

 private:
  KnownStacks& stacks_;
  const bool is_nested_;
};

bool KnownStacks::Clear() {
  const Work work(*this);
  if (work.is_nested()) return false;
  children_.Clear();
  runs_.Clear();
  words_.Clear();
  suffixes_.Clear();
  children_used_ = suffixes_used_ = last_id_ = 0;
  return true;
}

bool KnownStacks::Add(uint64_t frame, const StackWord* words, uint32_t count, uint32_t number) {
  HEAPTAP_ASSERT(number != 0);
  const Work work(*this);
  if (work.is_nested()) return false;
  while (count != 0 && words->at < frame) {
    words++;
    count--;
  }
  return count != 0 && count <= kMaxWords && MakeRoom(count) && AddInWork(frame, words, count, number);
}

// Follows the known stacks as long as they have the same words. Where they part, an edge is cut in two.
bool KnownStacks::AddInWork(uint64_t frame, const StackWord* words, uint32_t count, uint32_t number) {
  uint64_t parent = RootOf(frame);
  uint64_t value = FirstWord(frame);
  for (;;) {
    Child* const edge = FindMutable(parent, value);
    if (edge == nullptr) return PutLeaf(parent, value, words, count, number);
    uint32_t same = 0;
    Place place = edge->place;
    while (same < edge->count && same < count) {
      const StackWord known = WordAt(place);
      if (known.at != words[same].at || known.value != words[same].value) break;
      same++;
      place = Advance(place, 1);
    }
    // From here on words[same] tells them apart. If both have the same words so far, the rules say where the next word
    // is, or that there is none.
    const bool ends_here = same == edge->count;
    if (same == count || (ends_here && edge->branch == 0)) return false;
    const uint64_t at = ends_here ? edge->branch : WordAt(place).at;
    if (words[same].at != at) return false;
    if (!ends_here) {
      // The outer part keeps the id, because its children have it as their parent.
      Child outer = *edge;
      Child inner = *edge;
      inner.id = ++last_id_;
      inner.count = same;
      inner.branch = at;
      inner.number = 0;
      outer.parent = inner.id;
      outer.value = WordAt(place).value;
      outer.place = Advance(place, 1);
      outer.count = edge->count - same - 1;
      *edge = inner;
      PutChild(outer);
      return PutLeaf(inner.id, words[same].value, words + same + 1, count - same - 1, number);
    }
    parent = edge->id;
    value = words[same].value;
    words += same + 1;
    count -= same + 1;
  }
}

bool KnownStacks::PutLeaf(uint64_t parent, uint64_t value, const StackWord* words, uint32_t count, uint32_t number) {
  const Place place = count == 0 ? Place{} : Keep(words, count);
  if (place.run == kNoRun) return false;
  PutChild({parent, value, 0, place, count, ++last_id_, number});
  return true;
}

// --- memory ---

template <typename Element>
bool KnownStacks::Reserve(GrowingArray<Element>& array, uint32_t more) {
  const size_t needed = (size_t{array.size()} + more) * sizeof(Element);
  if (needed <= array.bytes()) return true;
  // It grows to twice its size at least.
  if (bytes() + array.bytes() + needed > kMaxBytes) return false;
  return array.Reserve(more);
}

template <typename Element, typename Put>
bool KnownStacks::GrowTable(GrowingArray<Element>& table, uint32_t used, uint32_t more, Put put) {
  if (!IsFull(uint64_t{used} + more, table.size())) return true;
  uint32_t size = table.size() == 0 ? kLeastTable : table.size();
  while (IsFull(uint64_t{used} + more, size)) size *= 2;
  GrowingArray<Element> old{};
  old.Swap(table);
  if (bytes() + old.bytes() + size * sizeof(Element) > kMaxBytes || !table.Reserve(size)) {
    old.Swap(table);
    return false;
  }
  table.Append(size);
  for (uint32_t i = 0; i < old.size(); i++) put(old[i]);
  old.Clear();
  return true;
}

// A new stack makes two edges at most, and one run.
bool KnownStacks::MakeRoom(uint32_t words) {
  const auto put_child = [&](const Child& child) {
    if (child.parent != 0) PutChild(child);
  };
  const auto put_suffix = [&](const Suffix& suffix) {
    if (suffix.hash != 0) PutSuffix(suffix);
  };
  const uint32_t children_before = children_used_;
  const uint32_t suffixes_before = suffixes_used_;
  const bool has_room = Reserve(runs_, 1) && Reserve(words_, words) &&
                        GrowTable(children_, children_used_, 2, put_child) &&
                        GrowTable(suffixes_, suffixes_used_, words, put_suffix);
  children_used_ = children_before;
  suffixes_used_ = suffixes_before;
  return has_room;
}

KnownStacks::Child* KnownStacks::FindMutable(uint64_t parent, uint64_t value) {
  const uint64_t mask = children_.size() - 1;
  for (uint64_t i = Hash(parent, value);; i++) {
    Child& child = children_[i & mask];
    if (child.parent == parent && child.value == value) return &child;
    if (child.parent == 0) return nullptr;
  }
}

void KnownStacks::PutChild(const Child& child) {
  const uint64_t mask = children_.size() - 1;
  uint64_t i = Hash(child.parent, child.value);
  while (children_[i & mask].parent != 0) i++;
  children_[i & mask] = child;
  children_used_++;
}

void KnownStacks::PutSuffix(const Suffix& suffix) {
  const uint64_t mask = suffixes_.size() - 1;
  uint64_t i = suffix.hash >> 1;
  while (suffixes_[i & mask].hash != 0) i++;
  suffixes_[i & mask] = suffix;
  suffixes_used_++;
}

// --- words ---

KnownStacks::Place KnownStacks::Advance(Place place, uint32_t count) const {
  while (place.run != kNoRun && count >= runs_[place.run].count - place.index) {
    const Run& run = runs_[place.run];
    count -= run.count - place.index;
    place = {run.next, run.next_index};
  }
  place.index += count;
  return place;
}

StackWord KnownStacks::WordAt(Place place) const {
  const Run& run = runs_[place.run];
  const uint64_t word = words_[run.first + place.index];
  return {run.base + (word >> kDistanceShift) * 8, word & kValue};
}

// Runs lie in words_ in the order of their numbers.
KnownStacks::Place KnownStacks::PlaceOfWord(uint32_t word) const {
  uint32_t low = 0;
  for (uint32_t high = runs_.size(); high - low > 1;) {
    const uint32_t middle = low + (high - low) / 2;
    (runs_[middle].first <= word ? low : high) = middle;
  }
  return {low, word - runs_[low].first};
}

KnownStacks::Place KnownStacks::FindSuffix(uint32_t hash, const StackWord* words, uint32_t count) const {
  const uint64_t mask = suffixes_.size() - 1;
  for (uint64_t i = hash >> 1; suffixes_[i & mask].hash != 0; i++) {
    if (suffixes_[i & mask].hash != hash) continue;
    const Place place = PlaceOfWord(suffixes_[i & mask].word);
    Place next = place;
    uint32_t same = 0;
    while (same < count && next.run != kNoRun) {
      const StackWord known = WordAt(next);
      if (known.at != words[same].at || known.value != words[same].value) break;
      same++;
      next = Advance(next, 1);
    }
    if (same == count && next.run == kNoRun) return place;
  }
  return {kNoRun, 0};
}

KnownStacks::Place KnownStacks::Keep(const StackWord* words, uint32_t count) {
  HEAPTAP_ASSERT(count != 0 && count <= kMaxWords);
  uint64_t suffix = 0;
  for (uint32_t i = count; i-- > 0;) hashes_[i] = suffix = HashOf(suffix, words[i]);
  Place shared = {kNoRun, 0};
  uint32_t own = 0;
  for (; own < count && shared.run == kNoRun; own++) shared = FindSuffix(Short(hashes_[own]), words + own, count - own);
  if (shared.run != kNoRun) own--;
  if (own == 0) return shared;

  uint64_t base = words[0].at;
  for (uint32_t i = 1; i < own; i++) base = words[i].at < base ? words[i].at : base;
  for (uint32_t i = 0; i < own; i++) {
    if ((words[i].at - base) / 8 >> (64 - kDistanceShift) != 0 || words[i].value > kValue) return {kNoRun, 0};
  }
  const uint32_t first = words_.size();
  const uint32_t number = runs_.size();
  words_.Append(own);
  runs_.Append(1);
  runs_[number] = {base, first, own, shared.run, shared.index};
  for (uint32_t i = 0; i < own; i++) {
    words_[first + i] = (words[i].at - base) / 8 << kDistanceShift | words[i].value;
    PutSuffix({Short(hashes_[i]), first + i});
  }
  return {number, 0};
}

}  // namespace heaptap
