// SPDX-License-Identifier: Apache-2.0
//
// The equations of chunks, their rings, chunk_table and the figures of units, each broken by hand.
#include <gtest/gtest.h>

#include "allocator/core/check.h"
#include "allocator/core/chunks.h"
#include "allocator/core/control.h"
#include "allocator/core/units.h"
#include "check_scene.h"

namespace heaptap {
namespace {

using testing::Mutation;
using testing::Scene;
using testing::Word;

class CheckChunksDeathTest : public ::testing::TestWithParam<Mutation> {};

TEST_P(CheckChunksDeathTest, CatchesIt) { ExpectCaught(GetParam()); }

// A chunk of the scene in a ring with others.
Chunk* ChunkInRing(const Scene&) {
  Chunk* chunk = FirstChunk(kShortShift);
  while (chunk->longest == 0 || chunk->next_of_room == chunk) chunk = chunk->next.load();
  return chunk;
}

size_t FirstFree(const Chunk* chunk) { return NextFree(chunk, 1); }

void FlipBit(Chunk* chunk, size_t unit) { chunk->free_bits[unit / 64] ^= uint64_t{1} << unit % 64; }

Slab* FreeUnitOf(Chunk* chunk, bool dirty) {
  Slab* slabs = reinterpret_cast<Slab*>(chunk);
  for (size_t unit = NextFree(chunk, 1); unit < chunk->reach; unit = NextFree(chunk, unit + 1)) {
    if (slabs[unit].dirty == dirty) return &slabs[unit];
  }
  abort();
}

// What Chunks keeps to itself.
struct Inside {
  const Chunk* first;
  const Chunk* last;
  const Chunk* lists[32];
  uint64_t used_lists;
};
static_assert(sizeof(Inside) == sizeof(Chunks));

void CheckInside(const Inside& inside) { reinterpret_cast<const Chunks*>(&inside)->Check(); }

const Mutation kChunkMutations[] = {
    {"Shift", "shift == chunk_table", [](Scene& scene) { scene.chunk->shift = kLongShift; }},
    {"Units", "units <= kChunkSize >> shift", [](Scene& scene) { scene.chunk->units = 513; }},
    {"Reach", "reach <= units", [](Scene& scene) { scene.chunk->reach = scene.chunk->units + 1; }},
    {"ReachTooFar", "from reach on all units are free", [](Scene& scene) { scene.chunk->reach = 1; }},
    {"HeaderFree", "unit 0 is not free", [](Scene& scene) { FlipBit(scene.chunk, 0); }},
    {"FreeUnitThatIsNone", "a free unit exists: unit < units",
     [](Scene& scene) { scene.chunk->units = scene.chunk->reach = static_cast<uint32_t>(FirstFree(scene.chunk)); }},
    {"Longest", "longest == the most free units in a row", [](Scene& scene) { ChunkInRing(scene)->longest++; }},
    {"FreeBit", "owner of a free unit == kNobody",
     [](Scene& scene) { FlipBit(ChunkOf(scene.run), UnitIndex(scene.run)); }},
    {"Clean", "of a clean free unit: touched == 0",
     [](Scene& scene) {
       Purge(0);
       FreeUnitOf(scene.chunk, false)->touched = 1;
     }},
    {"DirtySince", "of a dirty unit: dirty_since of the chunk <= free_since",
     [](Scene& scene) { scene.chunk->dirty_since.store(kNeverDirty); }},
    {"Touched", "touched <= bytes of a unit",
     [](Scene& scene) { FreeUnitOf(scene.chunk, true)->touched = (1 << kShortShift) + 1; }},
    {"NoUnits", "1 <= units of a slab or run", [](Scene& scene) { scene.run->units = 0; }},
    {"UnitsBeyond", "units of a slab or run end before the chunk does", [](Scene& scene) { scene.run->units = 512; }},
    {"RunOfLongUnits", "a run is in a chunk of short units",
     [](Scene&) {
       void* block = Allocate(4096);
       SlabOf(block, ChunkKind(block))->owner.store(kRunOwner);
       UnitSums sums{};
       CheckUnits(&sums);
     }},
    {"SlabOfTwoUnits", "units of a slab == 1", [](Scene& scene) { scene.run->owner.store(kSampledOwner); }},
    {"UnitInUseIsFree", "a unit of a slab or run is in use",
     [](Scene& scene) { FlipBit(ChunkOf(scene.run), UnitIndex(scene.run) + 1); }},
    {"UnitInUseIsDirty", "a unit in use is not dirty", [](Scene& scene) { scene.full->dirty = true; }},
    {"InsideRun", "owner of a unit inside a run == kNobody",
     [](Scene& scene) { (scene.run + 1)->owner.store(kRunOwner); }},
    {"DirtyFigure", "figure of dirty bytes == dirty units and kept huge blocks",
     [](Scene&) { AddToFigure(&heaptap_statistics::dirty, 65536); }},
    {"ActiveFigure", "used units <= figure of active bytes", [](Scene&) { heaptap_control.statistics.active = 65536; }},
    {"MappedFigure", "chunks <= figure of mapped bytes", [](Scene&) { heaptap_control.statistics.mapped = 65536; }},
    {"TableKind", "chunk_table has kinds of memory and unit shifts only",
     [](Scene&) {
       void* huge = Allocate(20 << 20);
       chunk_table[Word(huge) >> kChunkShift].store(17);
     }},
    {"TableShort", "entries of chunk_table == chunks of short units",
     [](Scene&) {
       void* huge = Allocate(20 << 20);
       chunk_table[Word(huge) >> kChunkShift].store(kShortShift);
     }},
    {"TableLong", "entries of chunk_table == chunks of long units",
     [](Scene&) {
       void* huge = Allocate(20 << 20);
       chunk_table[Word(huge) >> kChunkShift].store(kLongShift);
     }},
    {"ListMisaligned", "a chunk on a list is one: address % kChunkSize == 0",
     [](Scene& scene) { scene.chunk->next.store(reinterpret_cast<Chunk*>(scene.full)); }},
    {"ListOfOthers", "a chunk on a list is one: kFreedHuge < chunk_table",
     [](Scene& scene) { scene.chunk->next.store(reinterpret_cast<Chunk*>(size_t{3} << kChunkShift)); }},
    {"ListCircle", "a chunk is on the list of all once", [](Scene& scene) { scene.chunk->next.store(scene.chunk); }},
    {"ListCut", "last chunk of the list of all == last_", [](Scene&) { FirstChunk(kShortShift)->next.store(nullptr); }},
    {"UsedLists", "used_lists has the bit of a ring == the ring is not empty",
     [](Scene&) {
       CheckInside({nullptr, nullptr, {}, 8});
     }},
    {"Room", "room of a chunk in a ring == room of the ring", [](Scene& scene) { ChunkInRing(scene)->longest = 511; }},
    {"RingOfUnlisted", "chunks in rings == chunks with a free unit",
     [](Scene&) {
       Chunk* first = FirstChunk(kShortShift);
       first->next.store(first->next.load()->next.load());
     }},
    {"RingLinks", "next_of_room->previous_of_room == this",
     [](Scene& scene) { ChunkInRing(scene)->previous_of_room = FirstChunk(kLongShift); }},
    {"RingLost", "chunks in rings == chunks with a free unit",
     [](Scene&) {
       const Chunk* first = FirstChunk(kShortShift);
       const Chunk* last = first;
       while (last->next.load() != nullptr) last = last->next.load();
       CheckInside({first, last, {}, 0});
     }},
};

INSTANTIATE_TEST_SUITE_P(Mutations, CheckChunksDeathTest, ::testing::ValuesIn(kChunkMutations), testing::NameOf);

}  // namespace
}  // namespace heaptap
