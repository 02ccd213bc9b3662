// SPDX-License-Identifier: Apache-2.0
//
// Blocks of sampled slabs that a thread keeps for its next counted samples, so that most of them take no lock. A kept
// block is free for the program, and used for its slab.
//
// Not thread-safe: an object belongs to one thread. A signal handler of the thread that interrupts a function finds
// nothing, and no room. Zero-initialised state is valid: nothing is kept.
#ifndef HEAPTAP_ALLOCATOR_SAMPLING_KEPT_BLOCKS_H_
#define HEAPTAP_ALLOCATOR_SAMPLING_KEPT_BLOCKS_H_

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/check.h"
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"

namespace heaptap {

class KeptBlocks {
 public:
  struct Entry {
    Slab* slab;
    Block* block;
  };

  // The most blocks of a class, and their most bytes.
  static constexpr uint32_t kMost = 8;
  static constexpr size_t kMostBytes = 16384;
  // After so many blocks the pool is asked, so that its figures stay close.
  static constexpr uint32_t kMostTaken = 64;

  static constexpr uint32_t MostOf(unsigned size_class) {
    const size_t fit = kMostBytes / kClassSize[size_class];
    return fit < kMost ? static_cast<uint32_t>(fit) : kMost;
  }

  // False: there is none, or the pool is to be asked.
  [[gnu::always_inline]] inline bool Take(unsigned size_class, Entry* entry) {
    if (HEAPTAP_UNLIKELY(is_busy_)) return false;
    const Busy busy(*this);
    Shelf& shelf = shelves_[size_class];
    if (HEAPTAP_UNLIKELY(shelf.count == 0 || shelf.taken >= kMostTaken)) return false;
    *entry = shelf.entries[--shelf.count];
    shelf.taken++;
    return true;
  }
  // False: there is no room.
  [[gnu::always_inline]] inline bool Keep(unsigned size_class, const Entry& entry) {
    if (HEAPTAP_UNLIKELY(is_busy_)) return false;
    const Busy busy(*this);
    Shelf& shelf = shelves_[size_class];
    if (HEAPTAP_UNLIKELY(shelf.count >= MostOf(size_class))) return false;
    shelf.entries[shelf.count++] = entry;
    return true;
  }

  // How many blocks of the class Take has given since the last call.
  uint32_t ForgetTaken(unsigned size_class) {
    const uint32_t taken = shelves_[size_class].taken;
    shelves_[size_class].taken = 0;
    return taken;
  }
  // Takes up to `most` blocks of the class, which go back to their slabs. Returns their number.
  uint32_t TakeBack(unsigned size_class, uint32_t most, Entry* entries) {
    if (is_busy_) return 0;
    const Busy busy(*this);
    Shelf& shelf = shelves_[size_class];
    const uint32_t number = shelf.count < most ? shelf.count : most;
    for (uint32_t i = 0; i < number; i++) entries[i] = shelf.entries[--shelf.count];
    return number;
  }
  // Forgets all blocks.
  void Drop() {
    for (Shelf& shelf : shelves_) shelf.count = 0;
  }

 private:
  struct Shelf {
    uint32_t count;
    uint32_t taken;
    Entry entries[kMost];
  };

  class Busy {
   public:
    [[gnu::always_inline]] explicit Busy(KeptBlocks& blocks) : blocks_(blocks) {
      blocks_.is_busy_ = true;
      std::atomic_signal_fence(std::memory_order_seq_cst);
    }
    [[gnu::always_inline]] ~Busy() {
      std::atomic_signal_fence(std::memory_order_seq_cst);
      blocks_.is_busy_ = false;
    }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;

   private:
    KeptBlocks& blocks_;
  };

  Shelf shelves_[kSmallClasses];
  volatile bool is_busy_;
};

}  // namespace heaptap

#endif  // HEAPTAP_ALLOCATOR_SAMPLING_KEPT_BLOCKS_H_
