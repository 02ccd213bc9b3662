// SPDX-License-Identifier: Apache-2.0
//
// The stacks that a thread knows.
//
// Three things decide how a walk goes: where it begins, the unwind rules of the code, and the words of the stack that
// it reads. After a walk the kernel tells these words. If a later sample of the thread begins in the same frame and
// finds the same values in the same words, and the rules are the same, then a walk would take the same steps, by
// induction over the frames. So the sample has the same stack, and needs no walk.
//
// The stacks of a program differ near their inner ends, and share what is further out. A trie leads from the inner end
// outwards. Its edges are runs of words that all stacks through the edge share; a word that tells stacks apart selects
// the next edge, by one hash table for all edges. So each word is compared once, and in an order in which every word is
// known to be mapped before it is read: the words before it prove the frame that holds it. The memory of the words is
// shared too: a stack ends in words that another stack has brought (`suffixes_`).
//
// Not thread-safe: an object belongs to one thread. A signal handler of the thread may call any function while it
// interrupts another one; it then finds that nothing is known, and adds nothing. Zero-initialised state is valid.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_KNOWN_STACKS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_KNOWN_STACKS_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/check.h"
#include "allocator/sampling/growing_array.h"

namespace heaptap {

// A word of a stack. The address is a multiple of 8.
struct StackWord {
  uint64_t at;
  uint64_t value;
};

class KnownStacks {
 public:
  // The most words of a stack.
  static constexpr uint32_t kMaxWords = 512;
  // The most memory that an object takes: some 100,000 call paths.
  static constexpr size_t kMaxBytes = size_t{32} << 20;

  KnownStacks() = default;
  KnownStacks(const KnownStacks&) = delete;
  KnownStacks& operator=(const KnownStacks&) = delete;

  // The number with which Add was called for the stack of the caller; 0: the stack is not known. `frame`: the address
  // of the frame pointer of the calling function, whose own caller has a frame pointer too.
  [[gnu::always_inline]] inline uint32_t Find(uint64_t frame);

  // Adds the stack that begins at `frame`, with the words that decide the walk, from the inner end outwards; a word
  // below the frame does not belong to it. False: it is not added, for want of memory, because the words are not those
  // of a stack that fits to the known ones, or because the function interrupts another one. REQUIRES: the words have
  // these values; `number` is not 0.
  bool Add(uint64_t frame, const StackWord* words, uint32_t count, uint32_t number);

  // Forgets all stacks, and returns the memory. False: it interrupts another function, and does nothing.
  bool Clear();

  // The memory that it takes.
  size_t bytes() const { return children_.bytes() + runs_.bytes() + words_.bytes() + suffixes_.bytes(); }

 private:
  // A part of a stack: words that lie above one another, perhaps with gaps.
  struct Run {
    uint64_t base;        // no address is below it
    uint32_t first;       // in words_
    uint32_t count;       // not 0
    uint32_t next;        // the run that goes on; kNoRun: the stack ends
    uint32_t next_index;  // the word of `next` where it goes on
  };
  static constexpr uint32_t kNoRun = UINT32_MAX;
  // An element of words_: a value, and above it the distance from the base of its run in words.
  static constexpr unsigned kDistanceShift = 48;
  static constexpr uint64_t kValue = (uint64_t{1} << kDistanceShift) - 1;

  // Where a word stands.
  struct Place {
    uint32_t run;
    uint32_t index;
  };

  // An edge, as an element of a hash table with open addressing.
  struct Child {
    uint64_t parent;  // the id of the edge before, or RootOf(frame); 0: no edge
    uint64_t value;   // of the word that selects the edge
    uint64_t branch;  // the address of the word that selects the edge after it; 0: none, the stack is known here
    Place place;      // of the words of the edge
    uint32_t count;   // the number of the words
    uint32_t id;      // from 1 on
    uint32_t number;  // of the stack; 0 if `branch` is not 0
  };

  // The words from a place to the end of the stack, as an element of a hash table with open addressing.
  struct Suffix {
    uint32_t hash;  // 0: none
    uint32_t word;  // the first of them, in words_
  };

  static uint64_t RootOf(uint64_t frame) { return frame | uint64_t{1} << 63; }

  [[gnu::always_inline, gnu::no_sanitize("address")]] static inline uint64_t Load(uint64_t at) {
    return *reinterpret_cast<const volatile uint64_t*>(at);
  }
  // The word by which the stacks of a frame are told apart first: the return address of the caller's frame, since the
  // caller is this allocator too.
  [[gnu::always_inline]] static inline uint64_t FirstWord(uint64_t frame) { return Load(Load(frame) + 8); }

  [[gnu::always_inline]] static inline uint64_t Hash(uint64_t parent, uint64_t value) {
    constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio
    const uint64_t mixed = (parent * kMultiplier ^ value) * kMultiplier;
    return mixed ^ mixed >> 32;
  }

  [[gnu::always_inline]] inline const Child* FindChild(uint64_t parent, uint64_t value) const;
  [[gnu::always_inline]] inline bool Matches(const Child& edge) const;

  class Work;
  bool AddInWork(uint64_t frame, const StackWord* words, uint32_t count, uint32_t number);
  bool MakeRoom(uint32_t words);
  template <typename Element>
  bool Reserve(GrowingArray<Element>& array, uint32_t more);
  template <typename Element, typename Put>
  bool GrowTable(GrowingArray<Element>& table, uint32_t used, uint32_t more, Put put);
  Child* FindMutable(uint64_t parent, uint64_t value);
  void PutChild(const Child& child);
  void PutSuffix(const Suffix& suffix);
  // The place of these words, which are the last of a stack. `run` kNoRun: they cannot be kept.
  Place Keep(const StackWord* words, uint32_t count);
  Place FindSuffix(uint32_t hash, const StackWord* words, uint32_t count) const;
  Place PlaceOfWord(uint32_t word) const;
  Place Advance(Place place, uint32_t count) const;
  StackWord WordAt(Place place) const;
  // Adds an edge to the end of a stack. `words`: the word that selects it, and those of the edge.
  bool PutLeaf(uint64_t parent, uint64_t value, const StackWord* words, uint32_t count, uint32_t number);

  // The elements of children_; nullptr: there are none, or a function changes them.
  const Child* visible_children_;
  GrowingArray<Child> children_;  // the whole table: its size is a power of two
  GrowingArray<Run> runs_;
  GrowingArray<uint64_t> words_;
  GrowingArray<Suffix> suffixes_;  // the whole table: its size is a power of two
  uint32_t children_used_;
  uint32_t suffixes_used_;
  uint32_t last_id_;
  bool works_;
  volatile bool is_searched_;  // Find runs
  // Of the words of the stack that is added, each with all that follow it: no memory for them is needed on a small
  // stack.
  uint64_t hashes_[kMaxWords];
};

const KnownStacks::Child* KnownStacks::FindChild(uint64_t parent, uint64_t value) const {
  const uint64_t mask = children_.size() - 1;
  for (uint64_t i = Hash(parent, value);; i++) {
    const Child& child = visible_children_[i & mask];
    if (child.parent == parent && child.value == value) return &child;
    if (child.parent == 0) return nullptr;
  }
}

bool KnownStacks::Matches(const Child& edge) const {
  uint32_t left = edge.count;
  if (left == 0) return true;
  const Run* run = &runs_[edge.place.run];
  uint32_t index = edge.place.index;
  for (;;) {
    const uint32_t here = left < run->count - index ? left : run->count - index;
    const uint64_t* const begin = &words_[run->first + index];
    for (const uint64_t* word = begin; word != begin + here; word++) {
      if (Load(run->base + (*word >> kDistanceShift) * 8) != (*word & kValue)) return false;
    }
    left -= here;
    if (left == 0) return true;
    index = run->next_index;
    run = &runs_[run->next];
  }
}

uint32_t KnownStacks::Find(uint64_t frame) {
  // A handler may search while this function does, but must not change what is searched.
  const bool was_searched = is_searched_;
  is_searched_ = true;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  uint32_t found = 0;
  const Child* edge = visible_children_ != nullptr ? FindChild(RootOf(frame), FirstWord(frame)) : nullptr;
  while (edge != nullptr && Matches(*edge)) {
    if (edge->branch == 0) {
      found = edge->number;
      break;
    }
    edge = FindChild(edge->id, Load(edge->branch));
  }
  std::atomic_signal_fence(std::memory_order_seq_cst);
  is_searched_ = was_searched;
  return found;
}

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_KNOWN_STACKS_H_
