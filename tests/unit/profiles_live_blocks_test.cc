// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/support/simulated_books.h"
#include "userspace/bpf/books.h"
#include "userspace/elf/mappings.h"
#include "userspace/profiles/live_blocks.h"
#include "userspace/profiles/profile_builder.h"

namespace heaptap::recording {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

constexpr uint64_t kProcess = 7;
constexpr uint64_t kSecond = 1'000'000'000;

heaptap_live Object(uint64_t size, uint64_t weight, uint64_t stack, uint64_t time, uint32_t tid) {
  return {.serial = 1, .size = size, .weight = weight, .stack_id = stack, .time = time, .tid = tid, .record = 0};
}

TEST(LiveBlocks, ThoseThatAreAlikeAreOneGroup) {
  bpf::SimulatedKernel kernel;
  const uint64_t now = bpf::SimulatedKernel::Now();
  kernel.objects[kProcess] = {Object(64, 640, 1, now - 20 * kSecond, 5), Object(64, 640, 1, now - 30 * kSecond, 5),
                              Object(64, 640, 1, now, 5), Object(128, 128, 1, now - 20 * kSecond, 5),
                              Object(64, 64, 1, now - 20 * kSecond, 6)};
  kernel.objects[kProcess + 1] = {Object(64, 640, 1, now, 5)};
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  const auto blocks = ReadLiveBlocks(books->entries(), kProcess);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  EXPECT_THAT(blocks->groups, SizeIs(4));
  const LiveBlocks::Group& first = blocks->groups[0];
  EXPECT_EQ(first.share.age, 10);
  EXPECT_EQ(first.share.live, (profile::Estimate{2, 128, 20, 1280, 2 * 640 * (640 - 64)}));
}

// Stacks that differ only inside the allocator are one call path, and their blocks are too.
TEST(LiveBlocks, InAProfile) {
  bpf::SimulatedKernel kernel;
  for (const uint64_t id : {1, 2}) {
    heaptap_stack& stack = kernel.stacks[id];
    stack.count = 2;
    stack.frames[0] = 0x1000 + id;
    stack.frames[1] = 0x5000;
    stack.end = HEAPTAP_STACK_WHOLE;
  }
  kernel.objects[kProcess] = {Object(64, 64, 1, 0, 5), Object(64, 64, 2, 0, 5)};
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  const auto blocks = ReadLiveBlocks(books->entries(), kProcess);
  ASSERT_TRUE(blocks.ok()) << blocks.status();
  heaptap_tally tally = {};
  tally.allocated = {.objects = 1, .bytes = 64, .weight = 64, .weighted_objects = 1 << HEAPTAP_OBJECT_FRACTION_BITS};
  const profile::Profile profile =
      BuildProfile(books->entries(),
                   {.pid = 1, .process_id = kProcess, .lg_sample = 0, .allocator = {0x1000, 0x2000}, .space = nullptr},
                   {{1, 5, tally}, {2, 5, tally}}, 0, &*blocks);
  ASSERT_THAT(profile.contexts, SizeIs(1));
  ASSERT_TRUE(profile.HasBlocks());
  EXPECT_THAT(profile.contexts[0].blocks,
              UnorderedElementsAre(AllOf(Field(&profile::BlockShare::size, 64), Field(&profile::BlockShare::tid, 5),
                                         Field(&profile::BlockShare::live, profile::Estimate{2, 128, 2, 128}))));
}

TEST(BuildProfile, SaysThatThereAreTooManyMappings) {
  bpf::SimulatedKernel kernel;
  AddressSpace space;
  for (uint64_t i = 0; i <= elf::kMaxMappings; i++)
    space.mappings.Add({.start = 16 * i, .end = 16 * i + 16, .inode = 1});
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  const ProfileSubject subject = {
      .pid = 1, .process_id = kProcess, .lg_sample = 0, .allocator = {0x1000, 0x2000}, .space = &space};
  EXPECT_THAT(BuildProfile(books->entries(), subject, {}, 0, nullptr).warnings,
              ElementsAre("heaptap: 2 mappings too many: code there has no names"));
}

// Of a stack at an address where another file's code is by now.
TEST(BuildProfile, AFrameIsOfTheCodeOfItsTime) {
  bpf::SimulatedKernel kernel;
  const auto add_stack = [&](uint64_t id, uint64_t time, uint32_t count) {
    heaptap_stack& stack = kernel.stacks[id];
    stack.count = count;
    stack.end = HEAPTAP_STACK_WHOLE;
    stack.time = time;
    stack.frames[0] = 0x1000;  // in the allocator
    for (uint32_t i = 1; i < count; i++) stack.frames[i] = 0x5010;
    if (count == HEAPTAP_MAX_FRAMES) stack.frames[HEAPTAP_INNER_FRAMES] = HEAPTAP_FRAMES_LEFT_OUT;
  };
  add_stack(1, 100, 2);
  add_stack(2, 300, 2);
  add_stack(3, 300, HEAPTAP_MAX_FRAMES);
  AddressSpace space;
  for (const uint64_t inode : {1, 2}) {
    space.mappings.Add({.start = 0x5000, .end = 0x6000, .inode = inode, .path = absl::StrCat("/", inode)},
                       {.since = inode * 100, .time = inode * 100});
  }
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  const ProfileSubject subject = {
      .pid = 1, .process_id = kProcess, .lg_sample = 0, .allocator = {0x1000, 0x2000}, .space = &space};
  const auto paths = [&](uint64_t id) {
    const profile::Profile profile = BuildProfile(books->entries(), subject, {{id, 5, {}}}, 0, nullptr);
    std::set<std::string> all;
    for (const uint64_t frame : profile.contexts.at(0).frames) {
      const auto mapping = std::ranges::find_if(
          profile.mappings, [&](const elf::Mapping& one) { return one.start <= frame && frame < one.end; });
      all.insert(mapping == profile.mappings.end() ? "none" : mapping->path);
    }
    return all;
  };
  EXPECT_THAT(paths(1), ElementsAre("/1"));
  EXPECT_THAT(paths(2), ElementsAre("/2"));
  EXPECT_THAT(paths(3), ElementsAre("none")) << "of a deep stack it is not known";
}

// A recording that became exact has samples that stand for more than themselves.
TEST(BuildProfile, EstimatesAreSaidWhereEveryAllocationIsASample) {
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  heaptap_tally exact = {};
  exact.allocated = {.objects = 1, .bytes = 64, .weight = 64, .weighted_objects = 1 << HEAPTAP_OBJECT_FRACTION_BITS};
  heaptap_tally estimate = exact;
  estimate.allocated.weight = 640;
  const auto warnings = [&](uint32_t lg_sample, const std::vector<bpf::TallyEntry>& tallies) {
    const ProfileSubject subject = {.pid = 1, .process_id = kProcess, .lg_sample = lg_sample, .space = nullptr};
    std::vector<std::string> all = BuildProfile(books->entries(), subject, tallies, 0, nullptr).warnings;
    std::erase_if(all, [](const std::string& one) { return !absl::StrContains(one, "estimated: "); });
    return all;
  };
  EXPECT_THAT(warnings(0, {{1, 5, exact}, {2, 5, exact}}), IsEmpty());
  EXPECT_THAT(warnings(0, {{1, 5, exact}, {2, 5, estimate}}),
              ElementsAre("heaptap: 576 of the allocated bytes are estimated: not every allocation was a sample at "
                          "first"));
  EXPECT_THAT(warnings(9, {{1, 5, exact}, {2, 5, estimate}}), IsEmpty());
}

// The interval was changed, to a longer one or to a shorter one; a program's own heap has any weights.
TEST(BuildProfile, SeveralIntervalsAreTold) {
  bpf::SimulatedKernel kernel;
  const std::unique_ptr<bpf::Books> books = bpf::MakeSimulatedBooks(kernel, false);
  heaptap_tally tally = {};
  tally.allocated = {.objects = 100, .bytes = 100 * 64, .weight = 100 << 14};
  const auto is_told = [&](uint32_t lg_sample, uint32_t tid) {
    const ProfileSubject subject = {.pid = 1, .process_id = kProcess, .lg_sample = lg_sample, .space = nullptr};
    return BuildProfile(books->entries(), subject, {{1, tid, tally}}, 0, nullptr).several_periods;
  };
  EXPECT_FALSE(is_told(14, 5));
  EXPECT_TRUE(is_told(19, 5));
  EXPECT_TRUE(is_told(9, 5));
  EXPECT_FALSE(is_told(19, HEAPTAP_HEAP_TID | 5));
}

}  // namespace
}  // namespace heaptap::recording
