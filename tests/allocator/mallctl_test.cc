// SPDX-License-Identifier: Apache-2.0
//
// Names, types and error codes of mallctl. The rule that runs the tests runs these twice, with MALLOC_CONF=prof:true
// and without. prof.dump is in dump_test.cc, arenas and statistics are in mallctl_arenas_test.cc.
#include "allocator/jemalloc/mallctl/mallctl.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "allocator/core/size_class.h"
#include "allocator/process/options.h"
#include "allocator/process/process.h"
#include "mallctl_values.h"

namespace heaptap {
namespace {

using testing::Do;
using testing::Get;
using testing::Prof;
using testing::Set;

// --- the tree --------------------------------------------------------------------------------------------------------

TEST(MallctlTree, WhatIsNoName) {
  for (const char* name : {"",
                           ".",
                           "nothing",
                           "prof",
                           "opt",
                           "arenas.bin",
                           "arenas.bin.0",
                           "prof.active.",
                           "prof.active.x",
                           ".prof",
                           "prof..active",
                           "version.",
                           "Version",
                           "versio",
                           "versions",
                           "arena.x.purge",
                           "arena..purge",
                           "arena.-1.purge",
                           "arena.4095.purge",
                           "arena.18446744073709551616.purge",
                           "stats.arenas.4098.mapped",
                           "arenas.bin.41.size",
                           "opt.malloc_conf",
                           "opt.utrace",
                           "opt.prof_log",
                           "opt.prof_unbias",
                           "opt.lg_tcache_max",
                           "opt.slab_sizes"}) {
    char value[8];
    size_t length = sizeof(value);
    EXPECT_EQ(Mallctl(name, value, &length, nullptr, 0), ENOENT) << name;
    EXPECT_EQ(length, sizeof(value)) << name;
  }
}

TEST(MallctlTree, NamesToNumbersAndBack) {
  size_t mib[8];
  size_t length = 8;
  ASSERT_EQ(MallctlNameToMib("arenas.bin.0.size", mib, &length), 0);
  ASSERT_EQ(length, 4u);
  for (size_t i = 0; i < kSmallClasses; i++) {
    mib[2] = i;
    size_t size = 0;
    size_t size_length = sizeof(size);
    ASSERT_EQ(MallctlByMib(mib, length, &size, &size_length, nullptr, 0), 0);
    EXPECT_EQ(size, kClassSize[i]);
  }
  mib[2] = kSmallClasses;
  EXPECT_EQ(MallctlByMib(mib, length, nullptr, nullptr, nullptr, 0), ENOENT);
  mib[2] = 0;
  EXPECT_EQ(MallctlByMib(mib, 3, nullptr, nullptr, nullptr, 0), ENOENT) << "the beginning of a path";
  EXPECT_EQ(MallctlByMib(mib, 0, nullptr, nullptr, nullptr, 0), ENOENT);
  mib[4] = 0;
  EXPECT_EQ(MallctlByMib(mib, 5, nullptr, nullptr, nullptr, 0), ENOENT) << "more than a path";
  mib[0] = 1000;
  EXPECT_EQ(MallctlByMib(mib, 4, nullptr, nullptr, nullptr, 0), ENOENT);
}

TEST(MallctlTree, PartsOfNames) {
  auto translate = [](const char* name, size_t room) {
    std::vector<size_t> mib(room + 1, 77);
    size_t length = room;
    int error = MallctlNameToMib(name, mib.data(), &length);
    EXPECT_EQ(mib[room], 77u) << name << ": written beyond the room";
    return error != 0 ? -error : static_cast<int>(length);
  };
  EXPECT_EQ(translate("arenas", 5), 1);
  EXPECT_EQ(translate("arenas.bin", 5), 2);
  EXPECT_EQ(translate("arenas.bin.0", 5), 3);
  EXPECT_EQ(translate("arenas.bin.0.size", 3), 3) << "as far as there is room";
  EXPECT_EQ(translate("version", 0), 0);
  EXPECT_EQ(translate("arenas.nothing", 5), -ENOENT);
  EXPECT_EQ(translate("arenas.bin.", 5), -ENOENT);
  EXPECT_EQ(translate("arenas.bin.1000", 5), -ENOENT);
  EXPECT_EQ(translate("version.x", 1), -ENOENT);
  EXPECT_EQ(translate("", 5), -ENOENT);
  EXPECT_EQ(translate("stats.arenas.0.hpa_shard.nonfull_slabs.63.ndirty_huge", 7), 7);
}

struct Named {
  const char* name;
  size_t size;
};

TEST(MallctlTree, ReadOnlyValues) {
  for (Named named : {Named{"version", 8},
                      {"config.prof", 1},
                      {"config.malloc_conf", 8},
                      {"config.prof_frameptr", 1},
                      {"opt.abort_conf", 1},
                      {"opt.narenas", 4},
                      {"opt.lg_prof_sample", 8},
                      {"opt.lg_prof_interval", 8},
                      {"opt.prof_prefix", 8},
                      {"opt.prof_bt_max", 4},
                      {"opt.junk", 8},
                      {"opt.stats_interval", 8},
                      {"opt.hpa_dirty_mult", 4},
                      {"prof.lg_sample", 8},
                      {"prof.interval", 8},
                      {"arena.0.initialized", 1},
                      {"arenas.narenas", 4},
                      {"arenas.bin.0.size", 8},
                      {"arenas.bin.0.nregs", 4},
                      {"arenas.bin.0.slab_size", 8},
                      {"arenas.bin.0.nshards", 4},
                      {"arenas.nlextents", 4},
                      {"arenas.lextent.0.size", 8},
                      {"thread.allocated", 8},
                      {"thread.allocatedp", 8},
                      {"thread.deallocated", 8},
                      {"thread.deallocatedp", 8},
                      {"thread.peak.read", 8},
                      {"stats.allocated", 8},
                      {"stats.active", 8},
                      {"stats.metadata", 8},
                      {"stats.resident", 8},
                      {"stats.mapped", 8},
                      {"stats.retained", 8},
                      {"stats.zero_reallocs", 8},
                      {"stats.background_thread.num_threads", 8},
                      {"stats.mutexes.ctl.num_ops", 8},
                      {"stats.mutexes.prof_stats.max_num_thds", 4},
                      {"stats.arenas.0.nthreads", 4},
                      {"stats.arenas.0.dss", 8},
                      {"stats.arenas.4096.small.nmalloc", 8},
                      {"stats.arenas.0.bins.40.curregs", 8},
                      {"stats.arenas.0.bins.0.mutex.max_num_thds", 4},
                      {"stats.arenas.0.lextents.0.nmalloc", 8},
                      {"stats.arenas.0.extents.0.ndirty", 8},
                      {"stats.arenas.0.mutexes.large.num_wait", 8},
                      {"approximate_stats.active", 8}}) {
    char value[32];
    for (size_t given : {size_t{0}, size_t{1}, size_t{2}, size_t{4}, size_t{8}, size_t{16}}) {
      memset(value, 'x', sizeof(value));
      size_t length = given;
      EXPECT_EQ(Mallctl(named.name, value, &length, nullptr, 0), given == named.size ? 0 : EINVAL) << named.name;
      EXPECT_EQ(length, std::min(given, named.size)) << named.name;
      EXPECT_EQ(value[length], 'x') << named.name;
    }
    size_t length = named.size;
    EXPECT_EQ(Mallctl(named.name, nullptr, nullptr, nullptr, 0), 0) << named.name;
    EXPECT_EQ(Mallctl(named.name, value, nullptr, nullptr, 0), 0) << named.name;
    EXPECT_EQ(Mallctl(named.name, nullptr, &length, nullptr, 0), 0) << named.name;
    EXPECT_EQ(Mallctl(named.name, nullptr, nullptr, value, 0), EPERM) << named.name;
    EXPECT_EQ(Mallctl(named.name, nullptr, nullptr, nullptr, named.size), EPERM) << named.name;
  }
}

TEST(MallctlTree, WhatIsOnlyDone) {
  for (const char* name : {"arena.0.purge", "arena.0.decay", "arena.4096.purge", "arena.1.decay", "thread.idle",
                           "thread.tcache.flush", "thread.peak.reset"}) {
    char value[8];
    size_t length = sizeof(value);
    EXPECT_EQ(Do(name), 0) << name;
    EXPECT_EQ(Mallctl(name, value, nullptr, nullptr, 0), EPERM) << name;
    EXPECT_EQ(Mallctl(name, nullptr, &length, nullptr, 0), EPERM) << name;
    EXPECT_EQ(Mallctl(name, nullptr, nullptr, value, 8), EPERM) << name;
    EXPECT_EQ(Mallctl(name, nullptr, nullptr, nullptr, 1), EPERM) << name;
  }
}

// --- the root --------------------------------------------------------------------------------------------------------

TEST(MallctlRoot, VersionIsOneOfJemalloc) {
  std::string version = Get<const char*>("version");
  unsigned major, minor, fix, commits;
  char hash[64];
  ASSERT_EQ(sscanf(version.c_str(), "%u.%u.%u-%u-g%40s", &major, &minor, &fix, &commits, hash), 5);
  EXPECT_EQ(major, 5u);
  EXPECT_EQ(strlen(hash), 40u);
  EXPECT_NE(version.find("heaptap"), std::string::npos);
}

TEST(MallctlRoot, EpochTakesASnapshotWhenItIsWritten) {
  uint64_t epoch = Get<uint64_t>("epoch");
  EXPECT_GE(epoch, 1u);
  EXPECT_EQ(Get<uint64_t>("epoch"), epoch);
  EXPECT_EQ(Set("epoch", uint64_t{1}), 0);
  EXPECT_EQ(Get<uint64_t>("epoch"), epoch + 1);
  uint64_t written = 1;
  uint64_t read = 0;
  size_t length = sizeof(read);
  EXPECT_EQ(Mallctl("epoch", &read, &length, &written, sizeof(written)), 0);
  EXPECT_EQ(read, epoch + 2) << "the new one";
  EXPECT_EQ(Set("epoch", uint32_t{1}), EINVAL);
  EXPECT_EQ(Get<uint64_t>("epoch"), epoch + 2);
}

TEST(MallctlRoot, BackgroundThreadStartsAndStops) {
  EXPECT_FALSE(Get<bool>("background_thread"));
  EXPECT_EQ(Set("background_thread", true), 0);
  EXPECT_TRUE(Get<bool>("background_thread"));
  EXPECT_EQ(Set("background_thread", true), 0);
  EXPECT_EQ(Set("background_thread", false), 0);
  EXPECT_FALSE(Get<bool>("background_thread"));
  EXPECT_EQ(Set("background_thread", uint16_t{1}), EINVAL);
  EXPECT_EQ(Get<size_t>("max_background_threads"), 4u);
  EXPECT_EQ(Set("max_background_threads", size_t{2}), 0);
  EXPECT_EQ(Get<size_t>("max_background_threads"), 2u);
  EXPECT_EQ(Set("max_background_threads", size_t{0}), EINVAL);
  EXPECT_EQ(Set("max_background_threads", size_t{5}), EINVAL);
  EXPECT_EQ(Set("max_background_threads", size_t{4}), 0);
}

// --- options ---------------------------------------------------------------------------------------------------------

// Which name shows which field; that texts are read into the right field is tested in options_test.cc.
TEST(MallctlOptions, NamesShowTheConfiguration) {
  for (size_t i = 0; i < kOptionCount; i++) {
    const Option& option = kOptions[i];
    std::string name = std::string("opt.") + option.name;
    const char* field = reinterpret_cast<const char*>(&ProcessConfiguration()) + option.offset;
    char value[8] = {};
    size_t length = option.size;
    if (!option.readable) {
      EXPECT_EQ(Mallctl(name.c_str(), value, &length, nullptr, 0), ENOENT) << name;
    } else if (option.type == OptionType::kText || option.type == OptionType::kLetters) {
      EXPECT_EQ(Get<const char*>(name), field) << name;
    } else if (option.type == OptionType::kChoice) {
      EXPECT_STREQ(Get<const char*>(name), option.choices.words[static_cast<uint8_t>(*field)]) << name;
    } else {
      EXPECT_EQ(Mallctl(name.c_str(), value, &length, nullptr, 0), 0) << name;
      EXPECT_EQ(memcmp(value, field, option.size), 0) << name;
    }
  }
}

TEST(MallctlOptions, Sources) {
  const char* variable = getenv("MALLOC_CONF");
  if (variable == nullptr) {
    EXPECT_EQ(Do("opt.malloc_conf.env_var"), ENOENT);
  } else {
    EXPECT_STREQ(Get<const char*>("opt.malloc_conf.env_var"), variable);
  }
  EXPECT_EQ(Do("opt.malloc_conf.global_var"), ENOENT);
  EXPECT_EQ(Do("opt.malloc_conf.global_var_2_conf_harder"), ENOENT);
  EXPECT_STREQ(Get<const char*>("config.malloc_conf"), "");
}

// --- prof ------------------------------------------------------------------------------------------------------------

class MallctlProf : public ::testing::Test {
 protected:
  void TearDown() override {
    if (!Prof()) return;
    for (const char* name : {"prof.active", "prof.thread_active_init", "thread.prof.active"}) Set(name, true);
    Set("prof.gdump", false);
  }
};

TEST_F(MallctlProf, Active) {
  EXPECT_EQ(Get<bool>("prof.active"), Prof());
  EXPECT_EQ(Set("prof.active", uint16_t{0}), EINVAL);
  EXPECT_EQ(Set("prof.active", false), 0);
  EXPECT_FALSE(Get<bool>("prof.active"));
  EXPECT_EQ(Set("prof.active", true), Prof() ? 0 : ENOENT);
  EXPECT_EQ(Get<bool>("prof.active"), Prof());
}

TEST_F(MallctlProf, Switches) {
  for (const char* name : {"prof.thread_active_init", "prof.gdump", "thread.prof.active"}) {
    bool before = Get<bool>(name);
    if (!Prof()) {
      EXPECT_FALSE(before) << name;
      EXPECT_EQ(Set(name, false), ENOENT) << name;
      EXPECT_EQ(Set(name, uint16_t{0}), ENOENT) << name;
      continue;
    }
    EXPECT_EQ(Set(name, uint16_t{0}), EINVAL) << name;
    bool changed = !before;
    bool old_value = changed;
    size_t length = 1;
    EXPECT_EQ(Mallctl(name, &old_value, &length, &changed, 1), 0) << name;
    EXPECT_EQ(old_value, before) << name;
    EXPECT_EQ(Get<bool>(name), changed) << name;
  }
}

TEST_F(MallctlProf, WhatNeedsProf) {
  size_t length = 8;
  const char* text = "x";
  for (const char* name : {"prof.dump", "prof.prefix", "prof.reset", "prof.log_start"}) {
    EXPECT_EQ(Mallctl(name, nullptr, &length, nullptr, 0), Prof() ? EPERM : ENOENT) << name;
    EXPECT_EQ(Mallctl(name, nullptr, nullptr, &text, 4), Prof() ? EINVAL : ENOENT) << name;
  }
  EXPECT_EQ(Do("prof.prefix"), Prof() ? EFAULT : ENOENT);
  const char* none = nullptr;
  EXPECT_EQ(Set("prof.prefix", none), Prof() ? EFAULT : ENOENT);
  EXPECT_EQ(Do("prof.log_stop"), Prof() ? EFAULT : ENOENT) << "it does not run";
}

TEST_F(MallctlProf, Reset) {
  EXPECT_EQ(Get<size_t>("prof.lg_sample"), Prof() ? 19u : 0u);
  if (!Prof()) return;
  EXPECT_EQ(Do("prof.reset"), 0);
  EXPECT_EQ(Get<size_t>("prof.lg_sample"), 19u);
  EXPECT_EQ(Set("prof.reset", size_t{3}), 0);
  EXPECT_EQ(Get<size_t>("prof.lg_sample"), 3u);
  EXPECT_EQ(Set("prof.reset", size_t{64}), 0);
  EXPECT_EQ(Get<size_t>("prof.lg_sample"), size_t{HEAPTAP_MAX_LG_SAMPLE});
  EXPECT_EQ(Get<size_t>("opt.lg_prof_sample"), 19u);
  EXPECT_EQ(Set("prof.reset", size_t{19}), 0);
}

TEST_F(MallctlProf, StatisticsNeedTheirOption) {
  ASSERT_FALSE(ProcessConfiguration().prof_stats);
  for (const char* name : {"prof.stats.bins.0.live", "prof.stats.bins.0.accum", "prof.stats.lextents.0.live",
                           "prof.stats.lextents.0.accum"}) {
    EXPECT_EQ(Do(name), ENOENT) << name;
  }
}

TEST_F(MallctlProf, ThreadName) {
  if (!Prof()) {
    EXPECT_EQ(Do("thread.prof.name"), ENOENT);
    return;
  }
  std::thread([] {
    EXPECT_STREQ(Get<const char*>("thread.prof.name"), "");
    const char* name = "a name\tof 20 bytes..";
    EXPECT_EQ(Set("thread.prof.name", name), 0);
    EXPECT_EQ(Get<const char*>("thread.prof.name"), std::string(name, 15));
    const char* bad = nullptr;
    EXPECT_EQ(Set("thread.prof.name", bad), EINVAL);
    bad = "a\nb";
    EXPECT_EQ(Set("thread.prof.name", bad), EINVAL);
    EXPECT_EQ(Set("thread.prof.name", uint32_t{0}), EINVAL);
    const char* old_value;
    size_t length = sizeof(old_value);
    EXPECT_EQ(Mallctl("thread.prof.name", &old_value, &length, &name, sizeof(name)), EPERM);
    EXPECT_EQ(Mallctl("thread.prof.name", &old_value, &length, nullptr, 1), EPERM);
    EXPECT_EQ(Get<const char*>("thread.prof.name"), std::string(name, 15));
  }).join();
}

// --- experimental ----------------------------------------------------------------------------------------------------

TEST(MallctlExperimental, RecentMaximum) {
  constexpr char kName[] = "experimental.prof_recent.alloc_max";
  if (!Prof()) {
    EXPECT_EQ(Do(kName), ENOENT);
    EXPECT_EQ(Do("experimental.prof_recent.alloc_dump"), ENOENT);
    return;
  }
  EXPECT_EQ(Get<ssize_t>(kName), 0);
  EXPECT_EQ(Set(kName, ssize_t{-1}), 0);
  EXPECT_EQ(Get<ssize_t>(kName), -1);
  EXPECT_EQ(Set(kName, ssize_t{-2}), EINVAL);
  EXPECT_EQ(Set(kName, 1), EINVAL);
  EXPECT_EQ(Get<ssize_t>(kName), -1);
  EXPECT_EQ(Set(kName, ssize_t{0}), 0);
  EXPECT_EQ(Do("experimental.prof_recent.alloc_dump"), EINVAL);
  EXPECT_EQ(Set("experimental.prof_recent.alloc_dump", uint64_t{0}), EINVAL);
  size_t length = 16;
  EXPECT_EQ(Mallctl("experimental.prof_recent.alloc_dump", nullptr, &length, nullptr, 0), EPERM);
}

void OnEvent() {}

TEST(MallctlExperimental, Hooks) {
  void (*none)() = nullptr;
  for (std::string hook : {"prof_dump", "prof_sample", "prof_sample_free", "prof_backtrace"}) {
    std::string name = "experimental.hooks." + hook;
    EXPECT_EQ(Do(name), EINVAL) << name << ": neither read nor written";
    EXPECT_EQ(Get<void (*)()>(name), nullptr) << name;
    EXPECT_EQ(Set(name, uint32_t{0}), Prof() ? EINVAL : ENOENT) << name;
    EXPECT_EQ(Set(name, OnEvent), Prof() ? 0 : ENOENT) << name;
    EXPECT_EQ(Get<void (*)()>(name), Prof() ? OnEvent : nullptr) << name;
    if (hook == "prof_backtrace") continue;
    EXPECT_EQ(Set(name, none), Prof() ? 0 : ENOENT) << name;
    EXPECT_EQ(Get<void (*)()>(name), nullptr) << name;
  }
  EXPECT_EQ(Set("experimental.hooks.prof_backtrace", none), Prof() ? EINVAL : ENOENT);
}

// --- thread, tcache --------------------------------------------------------------------------------------------------

TEST(MallctlThread, Arena) {
  EXPECT_EQ(Get<unsigned>("thread.arena"), 0u);
  EXPECT_EQ(Set("thread.arena", 0u), 0);
  EXPECT_EQ(Set("thread.arena", 1u), EFAULT);
  EXPECT_EQ(Set("thread.arena", size_t{0}), EINVAL);
}

TEST(MallctlThread, CacheIsTheThreadsOwn) {
  EXPECT_TRUE(Get<bool>("thread.tcache.enabled"));
  EXPECT_EQ(Set("thread.tcache.enabled", false), 0);
  EXPECT_FALSE(Get<bool>("thread.tcache.enabled"));
  EXPECT_EQ(Do("thread.tcache.flush"), EFAULT);
  std::thread([] { EXPECT_TRUE(Get<bool>("thread.tcache.enabled")); }).join();
  EXPECT_EQ(Set("thread.tcache.enabled", uint32_t{1}), EINVAL);
  EXPECT_EQ(Set("thread.tcache.enabled", true), 0);
  EXPECT_EQ(Do("thread.tcache.flush"), 0);
}

TEST(MallctlThread, CachesOfPrograms) {
  unsigned first = Get<unsigned>("tcache.create");
  unsigned second = Get<unsigned>("tcache.create");
  EXPECT_NE(first, second);
  EXPECT_EQ(Set("tcache.flush", first), 0);
  EXPECT_EQ(Set("tcache.destroy", first), 0);
  EXPECT_EQ(Get<unsigned>("tcache.create"), first) << "its number is free again";
  EXPECT_EQ(Set("tcache.destroy", first), 0);
  EXPECT_EQ(Set("tcache.destroy", second), 0);
  EXPECT_EQ(Do("tcache.flush"), EINVAL);
  EXPECT_EQ(Do("tcache.destroy"), EINVAL);
  EXPECT_EQ(Do("tcache.create"), EINVAL);
  size_t length = 8;
  size_t wide;
  EXPECT_EQ(Mallctl("tcache.create", &wide, &length, nullptr, 0), EINVAL);
  EXPECT_EQ(length, 0u);
  EXPECT_EQ(Mallctl("tcache.flush", &wide, &length, &first, sizeof(first)), EPERM);
}

TEST(MallctlThread, CachesRunOut) {
  std::vector<unsigned> numbers;
  unsigned number;
  size_t length = sizeof(number);
  while (Mallctl("tcache.create", &number, &length, nullptr, 0) == 0) numbers.push_back(number);
  EXPECT_EQ(numbers.size(), 4094u);
  EXPECT_EQ(Mallctl("tcache.create", &number, &length, nullptr, 0), EFAULT);
  for (unsigned taken : numbers) EXPECT_EQ(Set("tcache.destroy", taken), 0);
}

}  // namespace
}  // namespace heaptap
