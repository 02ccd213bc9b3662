// SPDX-License-Identifier: Apache-2.0
#include "allocator/core/allocate.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/control.h"
#include "allocator/core/large.h"
#include "allocator/core/options.h"
#include "allocator/core/units.h"
#include "allocator/platform/random.h"
#include "allocator/platform/system.h"
#include "allocator/process/process.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

using testing::Books;
using testing::ClearBooks;
using testing::ExpectInChild;
using testing::ExpectInNewProcess;
using testing::ReadBooks;
using testing::SamplingOn;

constexpr size_t kSizes[] = {0,     1,     8,      9,       64,       100,      1024,    1025,
                             32768, 32769, 100000, 1 << 20, 16 << 20, 17 << 20, 40 << 20};

bool IsZero(const void* pointer, size_t size) {
  const char* bytes = static_cast<const char*>(pointer);
  return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

TEST(Allocate, UsableSizeIsTheClass) {
  for (uint32_t lg : {63u, 0u}) {
    SamplingOn on(lg);
    for (size_t size : kSizes) {
      void* pointer = Allocate(size);
      ASSERT_NE(pointer, nullptr);
      EXPECT_EQ(UsableSize(pointer), RoundUpToClass(size));
      memset(pointer, 0x5a, UsableSize(pointer));
      EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % (size > 8 ? 16 : 8), 0u);
      EXPECT_EQ(UsableSize(pointer), RoundUpToClass(size));
      Free(pointer);
    }
  }
}

TEST(Allocate, AlignedBlocks) {
  for (uint32_t lg : {63u, 0u}) {
    SamplingOn on(lg);
    for (size_t alignment = 8; alignment <= size_t{128} << 20; alignment *= 2) {
      for (size_t size : {0, 1, 100, 4096, 20000, 70000}) {
        void* pointer = AllocateAligned(alignment, size);
        ASSERT_NE(pointer, nullptr) << alignment << " " << size;
        EXPECT_EQ(reinterpret_cast<uintptr_t>(pointer) % alignment, 0u);
        EXPECT_EQ(UsableSize(pointer), RoundUpToAlignedClass(size != 0 ? size : 1, alignment));
        memset(pointer, 0x5a, UsableSize(pointer));
        Free(pointer);
      }
    }
  }
  EXPECT_EQ(ReadBooks().live, 0u);
}

TEST(Allocate, ZeroedBlocksAreZeroAfterReuseAndPurge) {
  for (uint32_t lg : {63u, 0u, 14u}) {
    SamplingOn on(lg);
    Random random;
    random.Seed(lg, 1);
    std::vector<void*> live(200);
    for (int i = 0; i < 20000; i++) {
      void*& slot = live[random.Next() % live.size()];
      Free(slot);
      size_t size = random.Next() % (i % 100 == 0 ? 300000 : 5000);
      slot = AllocateZeroed(1, size);
      ASSERT_TRUE(IsZero(slot, size)) << size;
      memset(slot, 0xff, UsableSize(slot));
      if (i % 5000 == 0) Trim();
    }
    for (void* pointer : live) Free(pointer);
  }
  void* huge = AllocateZeroed(3, 10 << 20);
  EXPECT_TRUE(IsZero(huge, size_t{30} << 20));
  Free(huge);
}

TEST(AllocateDeathTest, FreshMemoryIsTheProgramsToTouch) {
  ExpectInNewProcess([]() -> std::string {
    for (unsigned c = 0; c < kSmallClasses; c++) {
      void* first = AllocateZeroed(1, kClassSize[c]);
      const Slab* slab = SlabOf(first, ChunkKind(first));
      for (uint32_t i = 1; i < slab->capacity; i++) Allocate(kClassSize[c]);
      const size_t resident = ResidentBytes(SlabMemory(slab), size_t{1} << ShiftOf(c));
      if (resident != 0) return std::to_string(resident) + " bytes of class " + std::to_string(c);
    }
    return "";
  });
}

TEST(Allocate, OverflowAndTooLargeAreEnomem) {
  errno = 0;
  EXPECT_EQ(AllocateZeroed(SIZE_MAX / 2, 3), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  for (size_t size : {size_t{PTRDIFF_MAX}, size_t{PTRDIFF_MAX} + 1, SIZE_MAX, SIZE_MAX - 4096, size_t{1} << 60}) {
    errno = 0;
    EXPECT_EQ(Allocate(size), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    errno = 0;
    EXPECT_EQ(AllocateAligned(4096, size), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    void* pointer = Allocate(100);
    errno = 0;
    EXPECT_EQ(Reallocate(pointer, size), nullptr);
    EXPECT_EQ(errno, ENOMEM);
    EXPECT_EQ(UsableSize(pointer), 112u) << "the block is still there";
    Free(pointer);
  }
  EXPECT_EQ(AllocateAligned(size_t{1} << 63, 1), nullptr);
}

TEST(Allocate, ErrnoIsKept) {
  for (uint32_t lg : {63u, 0u}) {
    SamplingOn on(lg);
    for (size_t size : kSizes) {
      errno = 77;
      void* pointer = Reallocate(Allocate(size), 2 * size + 1);
      Free(AllocateZeroed(1, size));
      Free(pointer);
      ASSERT_EQ(errno, 77);
    }
  }
  errno = 77;
  Trim();
  Free(nullptr);
  EXPECT_EQ(errno, 77);
}

TEST(Allocate, ForeignPointersAreIgnoredAndCounted) {
  static char foreign[64];
  uint64_t before = heaptap_control.statistics.foreign_frees;
  Free(foreign);
  EXPECT_EQ(heaptap_control.statistics.foreign_frees, before + 1);
  EXPECT_EQ(UsableSize(foreign), 0u);
  errno = 0;
  EXPECT_EQ(Reallocate(foreign, 10), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  Free(nullptr);
  EXPECT_EQ(heaptap_control.statistics.foreign_frees, before + 1);
}

// What the allocator says about the free of a pointer, once.
std::string Complaint(void* pointer) {
  static std::string said;
  said.clear();
  malloc_message = [](void*, const char* text) { said += text; };
  Free(pointer);
  malloc_message = nullptr;
  return said;
}

bool Says(const std::string& complaint, const char* what) { return complaint.find(what) != std::string::npos; }

constexpr char kAnother[] = "the pointer comes from another allocator";
constexpr char kTwice[] = "the block is already free";
constexpr char kInside[] = "no block begins there";

using InvalidFreeDeathTest = ::testing::TestWithParam<size_t>;

TEST_P(InvalidFreeDeathTest, OfALargeBlockSaysWhatIsWrong) {
  ExpectInNewProcess([]() -> std::string {
    char* block = static_cast<char*>(Allocate(GetParam()));
    if (!Says(Complaint(block + 8), kInside)) return "in its beginning";
    block = static_cast<char*>(Allocate(GetParam()));
    if (Complaint(block + GetParam() / 2) != "") return "said twice";
    if (Complaint(block) != "") return "a block";
    return Says(Complaint(block), kTwice) ? "" : "freed twice";
  });
}

TEST_P(InvalidFreeDeathTest, FarInsideALargeBlock) {
  ExpectInNewProcess([]() -> std::string {
    char* block = static_cast<char*>(Allocate(GetParam()));
    return Says(Complaint(block + GetParam() - 8), kInside) ? "" : "near its end";
  });
}

INSTANTIATE_TEST_SUITE_P(Sizes, InvalidFreeDeathTest, ::testing::Values(40000, 1 << 20, 20 << 20, 100 << 20));

TEST(InvalidFreeDeathTest, OfAForeignPointer) {
  for (uintptr_t address : {uintptr_t{0x10000}, uintptr_t{1} << 47, uintptr_t{1} << 62, ~uintptr_t{15}}) {
    ExpectInNewProcess([address]() -> std::string {
      void* pointer = reinterpret_cast<void*>(address);
      if (UsableSize(pointer) != 0 || Reallocate(pointer, 10) != nullptr) return "it has a size";
      return Says(Complaint(pointer), kAnother) ? "" : "not foreign";
    });
  }
}

TEST(InvalidFreeDeathTest, OfAChunksHeaderAndOfAnothersBlock) {
  ExpectInNewProcess([]() -> std::string {
    char* block = static_cast<char*>(Allocate(64));
    char* chunk = reinterpret_cast<char*>(ChunkOf(SlabOf(block, ChunkKind(block))));
    if (!Says(Complaint(chunk), kInside)) return "a chunk";
    std::string said;
    block = static_cast<char*>(Allocate(4096));
    std::thread([&] { said = Complaint(block + 16); }).join();
    return said == "" ? "" : "said twice";
  });
  ExpectInNewProcess([]() -> std::string {
    char* block = static_cast<char*>(Allocate(4096));
    std::string said;
    std::thread([&] { said = Complaint(block + 16); }).join();
    return Says(said, kInside) ? "" : "inside another's block";
  });
}

// A small block that is freed twice is not handed out twice, if the two frees come one after the other or have only one
// between them.
TEST(InvalidFreeDeathTest, OfASmallBlockTwice) {
  for (bool one_between : {false, true}) {
    ExpectInNewProcess([one_between]() -> std::string {
      constexpr size_t kSize = 512;
      std::vector<void*> blocks(64);
      for (void*& block : blocks) block = Allocate(kSize);
      Free(blocks[0]);
      if (one_between) Free(blocks[1]);
      const uint64_t before = heaptap_control.statistics.foreign_frees;
      Free(blocks[0]);
      std::set<void*> live(blocks.begin() + 2, blocks.end());
      for (int i = 0; i < 1000; i++) {
        if (!live.insert(Allocate(kSize)).second) return "handed out twice";
      }
      return heaptap_control.statistics.foreign_frees == before + 1 ? "" : "not noticed";
    });
  }
}

TEST(InvalidFreeDeathTest, OfASmallBlockTwiceByAnotherThread) {
  ExpectInNewProcess([]() -> std::string {
    constexpr size_t kSize = 512;
    std::vector<void*> blocks(64);
    for (void*& block : blocks) block = Allocate(kSize);
    const uint64_t before = heaptap_control.statistics.foreign_frees;
    std::thread([&] {
      for (size_t i : {0, 1, 2, 3, 3}) Free(blocks[i]);
    }).join();
    std::set<void*> live(blocks.begin() + 4, blocks.end());
    for (int i = 0; i < 1000; i++) {
      if (!live.insert(Allocate(kSize)).second) return "handed out twice";
    }
    Trim();
    return heaptap_control.statistics.foreign_frees == before + 1 ? "" : "not noticed";
  });
}

TEST(InvalidFreeDeathTest, AbortsIfThatIsWanted) {
  auto abort = [] {
    const_cast<Configuration&>(ProcessConfiguration()).abort_invalid_free = true;
    SetCoreOptions(CoreOptionsOf(ProcessConfiguration()));
  };
  static std::vector<void*> blocks(64);
  for (size_t size : {64, 4096, 100000}) {
    EXPECT_DEATH(
        {
          abort();
          for (void*& block : blocks) block = Allocate(size);
          for (void* block : blocks) Free(block);
          Free(blocks[20]);
        },
        "^<heaptap>: invalid free of 0x[0-9a-f]{16}: the block is already free; aborting\n$");
    EXPECT_DEATH(
        {
          abort();
          Free(static_cast<char*>(Allocate(size)) + 8);
        },
        "^<heaptap>: invalid free of 0x[0-9a-f]{16}: no block begins there; aborting\n$");
  }
}

// The list of the free blocks has a longer cycle, which is not searched for otherwise.
TEST(InvalidFreeDeathTest, FindsEachSecondFreeByAnotherThreadIfThatIsWanted) {
  EXPECT_DEATH(
      {
        const_cast<Configuration&>(ProcessConfiguration()).abort_invalid_free = true;
        SetCoreOptions(CoreOptionsOf(ProcessConfiguration()));
        std::vector<void*> blocks(64);
        for (void*& block : blocks) block = Allocate(512);
        std::thread([&] {
          for (size_t i : {0, 1, 2, 3, 1}) Free(blocks[i]);
        }).join();
        Trim();
      },
      "^<heaptap>: invalid free of 0x[0-9a-f]{16}: the block is already free; aborting\n$");
}

TEST(Allocate, BlocksDoNotOverlap) {
  Random random;
  random.Seed(9, 9);
  std::vector<std::pair<char*, size_t>> live;
  for (int i = 0; i < 50000; i++) {
    if (live.size() < 2000 || random.Next() % 2 == 0) {
      size_t size = random.Next() % (i % 50 == 0 ? 200000 : 2000);
      char* pointer = static_cast<char*>(Allocate(size));
      memset(pointer, static_cast<int>(live.size() & 0xff), size);
      live.push_back({pointer, size});
      if (size != 0) pointer[0] = static_cast<char>(size);
    } else {
      auto [pointer, size] = live.back();
      live.pop_back();
      for (size_t j = 1; j < size; j++) ASSERT_EQ(pointer[j], static_cast<char>(live.size() & 0xff));
      if (size != 0) {
        ASSERT_EQ(pointer[0], static_cast<char>(size));
      }
      Free(pointer);
    }
  }
  for (auto [pointer, size] : live) Free(pointer);
}

TEST(Reallocate, KeepsContentsThroughAllKinds) {
  for (uint32_t lg : {63u, 0u, 16u}) {
    SamplingOn on(lg);
    Random random;
    random.Seed(lg, 2);
    size_t size = 1;
    unsigned char* pointer = static_cast<unsigned char*>(Allocate(size));
    pointer[0] = 0;
    for (int i = 0; i < 300; i++) {
      size_t new_size = 1 + random.Next() % (size_t{1} << (random.Next() % 27));
      pointer = static_cast<unsigned char*>(Reallocate(pointer, new_size));
      ASSERT_NE(pointer, nullptr);
      ASSERT_EQ(UsableSize(pointer), RoundUpToClass(new_size));
      size_t kept = std::min(size, new_size);
      for (size_t j = 0; j < kept; j += 1 + kept / 512) ASSERT_EQ(pointer[j], static_cast<unsigned char>(j * 7)) << j;
      for (size_t j = 0; j < new_size; j++) pointer[j] = static_cast<unsigned char>(j * 7);
      size = new_size;
    }
    Free(pointer);
    EXPECT_EQ(ReadBooks().live, 0u);
    EXPECT_EQ(ReadBooks().errors, 0u);
  }
}

TEST(Reallocate, OfNullAndToZero) {
  void* pointer = Reallocate(nullptr, 0);
  EXPECT_NE(pointer, nullptr);
  EXPECT_EQ(Reallocate(pointer, 0), nullptr);
}

TEST(Reallocate, IsAnAllocationAndAFreeForTheBooks) {
  for (size_t size : {100, 20000, 100000, 20 << 20}) {
    SamplingOn on(0);
    ClearBooks();
    while (ReadBooks().allocs == 0) Free(Allocate(size));  // past the blocks that were ready
    void* pointer = Allocate(size);
    ClearBooks();
    uint64_t live = ReadBooks().live;
    for (int i = 1; i <= 10; i++) {
      pointer = Reallocate(pointer, size);
      Books books = ReadBooks();
      EXPECT_EQ(books.allocs, static_cast<uint64_t>(i));
      EXPECT_EQ(books.frees, static_cast<uint64_t>(i));
      EXPECT_EQ(books.live, live);
    }
    Free(pointer);
    EXPECT_EQ(ReadBooks().errors, 0u);
  }
}

TEST(Statistics, ComeBackToWhereTheyWere) {
  Trim();
  auto read = [](Figure figure) { return ReadFigure(figure); };
  uint64_t large = read(&heaptap_statistics::large);
  uint64_t active = read(&heaptap_statistics::active);
  uint64_t sampled = read(&heaptap_statistics::sampled_objects);
  SamplingOn on(14);
  std::vector<void*> live;
  for (int i = 0; i < 3000; i++) live.push_back(Allocate(static_cast<size_t>(i) * 37));
  live.push_back(Allocate(30 << 20));
  EXPECT_GT(read(&heaptap_statistics::large), large);
  EXPECT_GT(read(&heaptap_statistics::active), active + (100 << 20));
  EXPECT_GT(read(&heaptap_statistics::sampled_objects), sampled);
  for (void* pointer : live) Free(pointer);
  Trim();
  EXPECT_EQ(read(&heaptap_statistics::large), large);
  EXPECT_EQ(read(&heaptap_statistics::sampled_objects), sampled);
  EXPECT_LE(read(&heaptap_statistics::active), active + (32 << 20));
  EXPECT_EQ(read(&heaptap_statistics::dirty), 0u);
}

TEST(OutOfMemory, IsAnErrorNotADeath) {
  ExpectInChild([] {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = size_t{300} << 20;
    setrlimit(RLIMIT_AS, &limit);
    std::vector<std::pair<void*, size_t>> live;
    live.reserve(100000);
    for (size_t size : {size_t{64} << 20, size_t{1} << 20, size_t{32768}, size_t{1000}}) {
      while (true) {
        errno = 0;
        void* pointer = Allocate(size);
        if (pointer == nullptr) break;
        memset(pointer, 1, size);
        if (live.size() == live.capacity()) break;
        live.push_back({pointer, size});
      }
    }
    size_t total = 0;
    for (auto [pointer, size] : live) total += size;
    if (total < size_t{200} << 20) return false;
    for (auto [pointer, size] : live) Free(pointer);
    void* again = Allocate(8 << 20);
    return again != nullptr;
  });
}

TEST(Fork, ChildHasItsOwnBooks) {
  SamplingOn on(10);
  uint64_t starts = ReadBooks().starts;
  void* pointer = Allocate(100);
  ExpectInChild([&] {
    if (ReadBooks().starts != starts + 1) return false;
    if (heaptap_control.pid != static_cast<uint32_t>(getpid())) return false;
    Free(pointer);
    for (int i = 0; i < 10000; i++) Free(Allocate(static_cast<size_t>(i)));
    return ReadBooks().errors == 0;
  });
  Free(pointer);
  EXPECT_EQ(heaptap_control.pid, static_cast<uint32_t>(getpid()));
}

}  // namespace
}  // namespace heaptap
