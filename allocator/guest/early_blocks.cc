// SPDX-License-Identifier: Apache-2.0
#include "allocator/guest/early_blocks.h"

#include <string.h>

#include "allocator/core/arena.h"
#include "allocator/core/control.h"
#include "allocator/core/observer.h"
#include "allocator/core/size_class.h"
#include "allocator/core/slab.h"

namespace heaptap {

void* TakeEarlyBlock(size_t size) {
  const size_t usable = RoundUpToClass(size);
  if (usable == 0 || usable > kSmallMaximum) return nullptr;
  void* pointer = observer::TakeBlock(main_arena, ClassOf(usable), usable, kNoSample);
  if (pointer == nullptr) return nullptr;
  // TakeBlock has counted the block as a sample, which it is not. FreeSample reverses this correction.
  AddToFigure(&heaptap_statistics::sampled_objects, -1);
  memset(pointer, 0, usable);
  return pointer;
}

void* ResizeEarlyBlock(void* pointer, size_t size) {
  void* moved = TakeEarlyBlock(size);
  if (moved == nullptr || pointer == nullptr) return moved;
  Slab* slab = SlabOf(pointer, ChunkKind(pointer));
  memcpy(moved, pointer, slab->size < size ? slab->size : size);
  if (!observer::EndSample(slab, static_cast<Block*>(pointer))) return moved;
  AddToFigure(&heaptap_statistics::sampled_objects, 1);
  observer::ReturnBlock(slab, static_cast<Block*>(pointer));
  return moved;
}

}  // namespace heaptap
