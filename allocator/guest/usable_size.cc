// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/usable_size.h"

#include <stddef.h>
#include <stdint.h>

#include <atomic>

#include "allocator/core/size_class.h"
#include "allocator/guest/host.h"
#include "heaptap/heaptap.h"

namespace heaptap {
namespace {

// All hosts have classes that are multiples of this, so sizes that round up to the same multiple have the same class.
constexpr size_t kStep = 8;
// Every block has this alignment, so a request for it is an ordinary one.
constexpr size_t kOrdinaryAlignment = 8;

// The usable size by size / kStep, rounded up; 0: the host has not been asked yet. The usable sizes of small blocks fit
// in 16 bits, except the largest, which stay unknown.
constinit std::atomic<uint16_t> known[kSmallMaximum / kStep + 1];

// glibc maps blocks from this size on, in whole pages with a header of 16 bytes. Freeing such a block raises this
// threshold: glibc would then keep large blocks of the program that it has returned to the system so far. So glibc is
// not asked.
constexpr size_t kGlibcMaps = 128 * 1024;
constexpr size_t kGlibcHeader = 16;

size_t Ask(size_t size, size_t alignment) {
  if (host_facts.is_glibc && size >= kGlibcMaps) {
    return RoundUp(size + kGlibcHeader, kPageSize) - kGlibcHeader;
  }
  const bool is_ordinary = alignment <= kOrdinaryAlignment;
  if (host_facts.nallocx != nullptr) {
    return host_facts.nallocx(size != 0 ? size : 1, is_ordinary ? 0 : MALLOCX_ALIGN(alignment));
  }
  void* block = is_ordinary ? host.malloc(size) : host.memalign(alignment, size);
  if (block == nullptr) return 0;
  const size_t usable = host.malloc_usable_size(block);
  host.free(block);
  return usable;
}

size_t AtLeast(size_t usable, size_t size) {
  if (usable >= size && usable != 0) return usable;
  return usable == 0 && size != 0 ? 0 : kStep;
}

}  // namespace

size_t HostUsableSize(size_t size, size_t alignment) {
  if (host_facts.has_exact_size) return size != 0 ? size : 1;
  const size_t index = (size + kStep - 1) / kStep;
  if (!host_facts.has_usable_size) return index != 0 ? index * kStep : kStep;
  const bool is_small = size <= kSmallMaximum && alignment <= kOrdinaryAlignment;
  if (!is_small) return AtLeast(Ask(size, alignment), size);
  size_t usable = known[index].load(std::memory_order_relaxed);
  if (usable != 0) return usable;
  usable = AtLeast(Ask(index * kStep, alignment), size);
  if (usable <= UINT16_MAX) known[index].store(static_cast<uint16_t>(usable), std::memory_order_relaxed);
  return usable;
}

}  // namespace heaptap
