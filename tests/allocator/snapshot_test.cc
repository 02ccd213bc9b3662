// SPDX-License-Identifier: Apache-2.0
//
// The rest of the test program uses libc's malloc, so what the allocator has is what the tests ask it for. Other tests
// may have left something: most tests look at differences.
#include "allocator/jemalloc/snapshot.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <memory>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/decay.h"
#include "allocator/core/huge_cache.h"
#include "allocator/core/units.h"
#include "allocator/platform/random.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "recorder.h"

namespace heaptap {
namespace {

std::unique_ptr<Snapshot> Take() {
  auto snapshot = std::make_unique<Snapshot>();
  TakeSnapshot();
  LastSnapshot(snapshot.get());
  return snapshot;
}

// What redis 8 tells as allocator_frag_bytes.
size_t FreeInSlabs(const Snapshot& snapshot) {
  size_t bytes = 0;
  for (unsigned c = 0; c < kSmallClasses; c++) {
    const ClassStatistics& bin = snapshot.bins[c];
    bytes += bin.slabs * kBinSlabSize[c] - bin.live * kClassSize[c];
  }
  return bytes;
}

const size_t kOneSlabOfEachBin = std::reduce(kBinSlabSize.begin(), kBinSlabSize.end(), size_t{0});

// What holds between figures that are counted apart from each other.
void ExpectConsistent(const Snapshot& snapshot) {
  for (unsigned c = 0; c < kSmallClasses; c++) {
    const ClassStatistics& bin = snapshot.bins[c];
    EXPECT_LE(bin.requests, bin.allocations) << kClassSize[c];
    EXPECT_LE(bin.slabs_nonfull, bin.slabs) << kClassSize[c];
    EXPECT_LE(bin.slabs, bin.slabs_made) << kClassSize[c];
    EXPECT_GE(bin.slabs * (kBinSlabSize[c] / kClassSize[c]), bin.live) << kClassSize[c];
  }
  // A bin's last slab may be more than its pages.
  EXPECT_LE(FreeInSlabs(snapshot), snapshot.active - snapshot.allocated + kOneSlabOfEachBin);
  EXPECT_LE(snapshot.allocated, snapshot.active);
  EXPECT_LE(snapshot.active, snapshot.mapped);
  EXPECT_EQ(snapshot.active % kPageSize, 0);
}

// What a test itself has asked for and given back, by class: small ones first, then those of extents.
class Ledger {
 public:
  void* Make(size_t size) {
    made_[ClassNumber(RoundUpToClass(size))]++;
    return Allocate(size);
  }
  // A block of anybody's.
  void Discard(void* pointer) {
    if (pointer == nullptr) return;
    discarded_[ClassNumber(UsableSize(pointer))]++;
    Free(pointer);
  }
  void Add(const Ledger& other) {
    for (size_t c = 0; c < kClasses; c++) {
      made_[c] += other.made_[c];
      discarded_[c] += other.discarded_[c];
    }
  }

  // That the allocator has counted the same between two snapshots, while no block was ready at either.
  void ExpectSame(const Snapshot& before, const Snapshot& after) const {
    uint64_t small = 0;
    uint64_t large = 0;
    size_t size = 0;
    for (size_t c = 0; c < kClasses; c++) {
      const bool is_small = c < kSmallClasses;
      const ClassStatistics& first = is_small ? before.bins[c] : before.extents[c - kSmallClasses];
      const ClassStatistics& second = is_small ? after.bins[c] : after.extents[c - kSmallClasses];
      size = RoundUpToClass(size + 1);
      EXPECT_EQ(second.requests - first.requests, made_[c]) << size;
      EXPECT_EQ(second.live - first.live, made_[c] - discarded_[c]) << size;
      EXPECT_GE(second.allocations - first.allocations, made_[c]) << size;
      EXPECT_EQ((second.allocations - second.frees) - (first.allocations - first.frees), made_[c] - discarded_[c])
          << size;
      (is_small ? small : large) += (made_[c] - discarded_[c]) * size;
    }
    EXPECT_GT(RoundUpToClass(size + 1), kMaximumRequest) << "these are all classes";
    EXPECT_EQ(after.allocated_small - before.allocated_small, small);
    EXPECT_EQ(after.allocated_large - before.allocated_large, large);
    EXPECT_EQ(after.allocated - before.allocated, small + large);
  }

 private:
  static constexpr size_t kClasses = kSmallClasses + kExtentClasses;

  std::array<uint64_t, kClasses> made_{};
  std::array<uint64_t, kClasses> discarded_{};
};

TEST(SnapshotEpoch, CountsSnapshots) {
  Free(Allocate(100000));  // a thread that sees another rate puts its ready blocks back, once
  Snapshot* unused = Take().release();
  uint64_t epoch = SnapshotEpoch();
  TakeSnapshot();
  EXPECT_EQ(SnapshotEpoch(), epoch + 1);
  void* pointer = Allocate(100000);
  LastSnapshot(unused);
  size_t allocated = unused->allocated;
  TakeSnapshot();
  LastSnapshot(unused);
  EXPECT_EQ(unused->allocated, allocated + UsableSize(pointer));
  EXPECT_GT(unused->uptime, 0);
  Free(pointer);
  delete unused;
}

TEST(Snapshot, ChildOfAForkTakesItsOwn) {
  auto before = Take();
  const uint64_t epoch = SnapshotEpoch();
  pid_t child = fork();
  if (child == 0) {
    void* pointer = Allocate(1 << 20);
    Snapshot now;
    LastSnapshot(&now);
    bool right = now.allocated >= before->allocated + (1 << 20) && SnapshotEpoch() == epoch + 1;
    Free(pointer);
    _exit(right ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(Snapshot, SmallBlocksByClass) {
  std::thread([] {
    Trim();  // no block is ready
    auto before = Take();
    Ledger ledger;
    std::vector<void*> blocks;
    constexpr unsigned kCount = 1000;
    for (unsigned c = 0; c < kSmallClasses; c++) {
      for (unsigned i = 0; i < kCount; i++) blocks.push_back(ledger.Make(kClassSize[c]));
    }
    auto during = Take();
    ExpectConsistent(*during);
    for (unsigned c = 0; c < kSmallClasses; c++) {
      const ClassStatistics& bin = during->bins[c];
      EXPECT_EQ(bin.requests - before->bins[c].requests, kCount);
      // Ready blocks count as live, and are of one batch.
      size_t live = bin.live - before->bins[c].live;
      EXPECT_GE(live, kCount);
      EXPECT_LE(live, kCount + kSlabCapacity[c]);
      EXPECT_GT(bin.fills, before->bins[c].fills);
    }
    Trim();
    ledger.ExpectSame(*before, *Take());
    for (void* pointer : blocks) ledger.Discard(pointer);
    Trim();
    auto after = Take();
    ExpectConsistent(*after);
    ledger.ExpectSame(*before, *after);
    EXPECT_GT(after->purged_bytes, before->purged_bytes);
    EXPECT_GT(after->purges, before->purges);
  }).join();
}

// Otherwise a small process is told to have several times its memory in fragments. In a thread of its own, whose heap
// has no slabs of earlier tests.
TEST(Snapshot, UntouchedAndReturnedMemoryIsNotFree) {
  std::thread([] {
    std::vector<void*> blocks;
    for (unsigned c = 0; c < kSmallClasses; c++) blocks.push_back(Allocate(kClassSize[c]));
    Trim();
    ExpectConsistent(*Take());
    // Of many blocks, one in sixteen pages stays.
    constexpr size_t kSize = 512;
    constexpr size_t kLonely = 16 * kPageSize / kSize;
    constexpr unsigned kBin = ClassNumber(kSize);
    constexpr size_t kCount = 200 * kLonely;
    std::vector<void*> many;
    for (size_t i = 0; i < kCount; i++) many.push_back(Allocate(kSize));
    for (size_t i = 0; i < kCount; i++) {
      if (i % kLonely != 0) Free(many[i]);
    }
    auto before = Take();
    ExpectConsistent(*before);
    HeapScope()->ReturnAllFreePages();
    auto after = Take();
    ExpectConsistent(*after);
    // A shown slab of this bin is a page: they follow what is in memory, however much the system took back.
    static_assert(kBinSlabSize[kBin] == kPageSize);
    EXPECT_EQ(before->bins[kBin].slabs, before->bins[kBin].active / kPageSize);
    EXPECT_EQ(after->bins[kBin].slabs, after->bins[kBin].active / kPageSize);
    for (size_t i = 0; i < kCount; i += kLonely) Free(many[i]);
    for (void* pointer : blocks) Free(pointer);
  }).join();
}

// What others have freed is not live, whether or not the owner has seen it.
TEST(Snapshot, RemoteFreesAreNotLive) {
  std::thread([] {
    constexpr size_t kSize = 96;
    const unsigned size_class = ClassOf(kSize);
    Trim();
    size_t before = Take()->bins[size_class].live;
    std::vector<void*> blocks(100000);
    for (void*& pointer : blocks) pointer = Allocate(kSize);
    size_t during = Take()->bins[size_class].live;
    EXPECT_GE(during, before + blocks.size());
    std::thread([&] {
      for (void* pointer : blocks) Free(pointer);
    }).join();
    EXPECT_EQ(Take()->bins[size_class].live, during - blocks.size());
    Trim();
    EXPECT_EQ(Take()->bins[size_class].live, before);
  }).join();
}

TEST(Snapshot, SamplesAreLikeOthers) {
  std::thread([] {
    constexpr size_t kSize = 5000;
    const unsigned size_class = ClassOf(kSize);
    Trim();
    auto before = Take();
    std::vector<void*> blocks(300);
    {
      testing::SamplingOn on(0);
      for (void*& pointer : blocks) pointer = Allocate(kSize);
    }
    auto during = Take();
    ExpectConsistent(*during);
    EXPECT_EQ(during->bins[size_class].live, before->bins[size_class].live + blocks.size());
    EXPECT_EQ(during->bins[size_class].requests, before->bins[size_class].requests + blocks.size());
    for (void* pointer : blocks) Free(pointer);
    EXPECT_EQ(Take()->bins[size_class].live, before->bins[size_class].live);
  }).join();
}

TEST(Snapshot, LargeBlocksByClass) {
  Trim();
  auto before = Take();
  Ledger ledger;
  std::vector<void*> blocks;
  size_t sizes[] = {kSmallMaximum + 1, 100000, 5 << 20, 40 << 20};
  for (size_t size : sizes) blocks.push_back(ledger.Make(size));
  ledger.ExpectSame(*before, *Take());
  void* aligned = AllocateAligned(1 << 20, 100);  // a small class, in no slab
  auto during = Take();
  ExpectConsistent(*during);
  for (void* pointer : blocks) {
    unsigned extent = ClassNumber(UsableSize(pointer)) - kSmallClasses;
    EXPECT_EQ(during->extents[extent].live, before->extents[extent].live + 1);
  }
  unsigned bin = ClassNumber(UsableSize(aligned));
  EXPECT_EQ(during->bins[bin].live, before->bins[bin].live + 1);
  EXPECT_EQ(during->allocated_small, before->allocated_small + UsableSize(aligned));
  // One stays in place, one moves, and the numbers of blocks are the same.
  blocks[3] = Reallocate(blocks[3], 80 << 20);
  EXPECT_EQ(Take()->extents[ClassNumber(80 << 20) - kSmallClasses].live,
            before->extents[ClassNumber(80 << 20) - kSmallClasses].live + 1);
  for (void* pointer : blocks) Free(pointer);
  Free(aligned);
  auto after = Take();
  EXPECT_EQ(after->allocated_large, before->allocated_large);
  EXPECT_EQ(after->bins[bin].live, before->bins[bin].live);
}

TEST(Snapshot, DirtyMemory) {
  Trim();
  SetDirtyDecay(-1);
  constexpr size_t kRun = size_t{1} << 20;
  constexpr size_t kHuge = size_t{20} << 20;
  void* run = Allocate(kRun);
  void* huge = Allocate(kHuge);
  memset(run, 1, kRun);
  memset(huge, 1, kHuge);
  const uint64_t before = Take()->dirty;
  Free(run);
  EXPECT_EQ(Take()->dirty, before + kRun);
  Free(huge);
  EXPECT_EQ(Take()->dirty, before + kRun + kHuge);
  SetDirtyDecay(ProcessConfiguration().dirty_decay_ms);
  Trim();
}

// Snapshots while others work: what they see never goes back, and is not more than there can be. In the end it is what
// the threads have counted.
TEST(Snapshot, WhileOthersWork) {
  constexpr size_t kThreads = 3;
  constexpr size_t kShared = 64;
  Trim();
  auto before = Take();
  std::atomic<bool> stop = false;
  std::vector<std::thread> threads;
  std::vector<Ledger> ledgers(kThreads);
  std::atomic<void*> shared[kShared] = {};
  for (size_t i = 0; i < kThreads; i++) {
    threads.emplace_back([&, i] {
      Random random;
      random.Seed(i, 1);
      while (!stop.load(std::memory_order_relaxed)) {
        uint64_t kind = random.Next() % 100;
        size_t size = 1 + random.Next() % (kind < 90 ? 1000 : kind < 99 ? 100000 : 20 << 20);
        ledgers[i].Discard(shared[random.Next() % kShared].exchange(ledgers[i].Make(size)));
      }
    });
  }
  auto last = Take();
  for (int i = 0; i < 300; i++) {
    auto snapshot = Take();
    for (unsigned c = 0; c < kSmallClasses; c++) {
      const ClassStatistics& bin = snapshot->bins[c];
      ASSERT_GE(bin.allocations, last->bins[c].allocations);
      ASSERT_GE(bin.slabs_made, last->bins[c].slabs_made);
      // Each thread has at most two slabs' worth of ready and live blocks that it has not given away.
      ASSERT_LE(bin.live, before->bins[c].live + kShared + 2 * kThreads * kSlabCapacity[c]) << kClassSize[c];
    }
    for (unsigned i = 0; i < kExtentClasses; i++) {
      ASSERT_GE(snapshot->extents[i].allocations, last->extents[i].allocations);
      ASSERT_LE(snapshot->extents[i].live, before->extents[i].live + kShared + kThreads);
    }
    last = std::move(snapshot);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  Ledger all;
  for (const Ledger& ledger : ledgers) all.Add(ledger);
  all.ExpectSame(*before, *Take());
  for (std::atomic<void*>& slot : shared) all.Discard(slot);
  Trim();
  all.ExpectSame(*before, *Take());
}

// The allocator's mappings, by /proc/self/smaps: while there is one thread only, nobody else in this program maps
// without a reserve. (glibc's malloc does so for other threads.)
size_t AllocatorRss() {
  std::ifstream smaps("/proc/self/smaps");
  std::string line;
  size_t total = 0;
  size_t rss = 0;
  while (std::getline(smaps, line)) {
    std::istringstream words(line);
    std::string key;
    words >> key;
    if (key == "Rss:") words >> rss;
    if (key == "VmFlags:" && line.find(" nr ") != std::string::npos) total += rss * 1024;
  }
  return total;
}

class ResidentDeathTest : public ::testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }  // a process of its own, anew
};

// `exact`: all that is mapped has been touched.
void ExpectRight(const char* when, bool exact) {
  SCOPED_TRACE(when);
  auto snapshot = Take();
  ExpectConsistent(*snapshot);
  double rss = static_cast<double>(AllocatorRss());
  // The library's table is not among those mappings.
  double table = static_cast<double>(UsedTable().bytes + 2 * kPageSize);
  EXPECT_NEAR(static_cast<double>(snapshot->resident), rss, 0.01 * rss + table);
  if (exact) {
    EXPECT_NEAR(static_cast<double>(snapshot->mapped), rss, 0.05 * rss + table);
  } else {
    EXPECT_GE(static_cast<double>(snapshot->mapped) * 1.05 + table, rss);
  }
  EXPECT_EQ(snapshot->mapped + snapshot->retained,
            ReadFigure(&heaptap_statistics::mapped) + ResidentBytes(UsedTable().begin, UsedTable().bytes));
}

void CompareWithSmaps() {
  ExpectRight("at first", true);
  Random random;
  random.Seed(11, 1);
  std::vector<char*> blocks;
  for (int i = 0; i < 200000; i++) {
    size_t size = 1 + random.Next() % (i % 100 == 0 ? 100000 : 600);
    blocks.push_back(static_cast<char*>(Allocate(size)));
    memset(blocks.back(), 1, UsableSize(blocks.back()));
  }
  ExpectRight("grown", true);
  char* huge = static_cast<char*>(Allocate(50 << 20));
  ExpectRight("a huge block that is not touched", false);
  memset(huge, 1, 50 << 20);
  ExpectRight("a huge block", true);
  char* run = static_cast<char*>(Allocate(10 << 20));
  ExpectRight("a run that is not touched", false);
  memset(run, 1, 10 << 20);
  Free(huge);
  ExpectRight("the huge block is free", true);
  for (size_t i = 0; i < blocks.size(); i++) {
    if (i % 8 != 0) Free(blocks[i]);
  }
  Free(run);
  ExpectRight("mostly free, not given back", true);
  Trim();
  ExpectRight("given back", true);
  for (size_t i = 0; i < blocks.size(); i += 8) Free(blocks[i]);
  Trim();
  ExpectRight("all free", true);
  // Units that are used again, in part.
  for (int i = 0; i < 20000; i++) blocks[static_cast<size_t>(i)] = static_cast<char*>(Allocate(3000));
  for (int i = 0; i < 20000; i++) memset(blocks[static_cast<size_t>(i)], 1, 3000);
  for (int i = 0; i < 20000; i++) Free(blocks[static_cast<size_t>(i)]);
  void* again = Allocate(2048);
  ExpectRight("an old unit with a new slab", true);
  Free(again);
}

TEST_F(ResidentDeathTest, AgreesWithSmaps) {
  EXPECT_EXIT(
      {
        CompareWithSmaps();
        exit(HasFailure() ? 1 : 0);
      },
      ::testing::ExitedWithCode(0), "");
}

// The figure that the collector reads, and the sum over all chunks, heaps and huge blocks.
TEST(Snapshot, Metadata) {
  const uint64_t before = ReadFigure(&heaptap_statistics::metadata);
  void* huge = Allocate(30 << 20);
  std::vector<void*> blocks;
  for (int i = 0; i < 3000; i++) blocks.push_back(Allocate(3000));
  const std::unique_ptr<Snapshot> snapshot = Take();
  const uint64_t figure = ReadFigure(&heaptap_statistics::metadata);
  EXPECT_GE(figure, before + kPageSize);
  EXPECT_LE(figure, snapshot->metadata);
  // The snapshot has whole pages of the table.
  EXPECT_GE(figure + UsedTable().bytes + 2 * kPageSize, snapshot->metadata);
  Free(huge);
  EXPECT_EQ(ReadFigure(&heaptap_statistics::metadata), figure) << "it is kept";
  PurgeHuge(0);
  EXPECT_EQ(ReadFigure(&heaptap_statistics::metadata), figure - kPageSize);
  for (void* block : blocks) Free(block);
}

}  // namespace
}  // namespace heaptap
