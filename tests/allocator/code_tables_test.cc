// SPDX-License-Identifier: Apache-2.0
#include "allocator/profiling/code_tables.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <thread>

#include "allocator/core/control.h"
#include "allocator/profiling/profiling.h"
#include "allocator/sampling/probes.h"
#include "recorder.h"
#include "support.h"

namespace heaptap {
namespace {

// A library of libc6 that the test program has not loaded.
constexpr char kLibrary[] = "libnss_hesiod.so.2";

// Each test in a child: one that is not answered leaves the collector alone for a minute.
class CodeTables : public ::testing::Test {
 protected:
  void SetUp() override {
    rate_before_ = heaptap_control.collector_lg_sample;
    heaptap_control.collector_lg_sample = 0;
    heaptap_control.collector_pid = 1;
    heaptap_control.collector_follows = 1;  // into children
    heaptap_semaphore_dump = 1;
    testing::SetDumpHandler([this](heaptap_dump_request* request) {
      EXPECT_EQ(request->kind, HEAPTAP_ASK_TABLES);
      EXPECT_EQ(request->sequence, 0u);
      EXPECT_EQ(request->argument, heaptap_control.tables_asked);
      asked_++;
      if (answers_) Answer(static_cast<uint32_t>(request->argument));
    });
  }
  void TearDown() override {
    testing::SetDumpHandler(nullptr);
    heaptap_semaphore_dump = 0;
    heaptap_control.collector_pid = 0;
    heaptap_control.collector_follows = 0;
    heaptap_control.collector_lg_sample = rate_before_;
  }

  static void Answer(uint32_t asked) { __atomic_store_n(&heaptap_control.tables_ready, asked, __ATOMIC_RELEASE); }

  uint32_t rate_before_ = 0;
  int asked_ = 0;
  bool answers_ = true;
};

TEST_F(CodeTables, AsksACollectorThatRecordsEachAllocation) {
  AwaitTables();
  EXPECT_EQ(asked_, 1);
  heaptap_control.collector_lg_sample = 1;
  AwaitTables();
  heaptap_control.collector_lg_sample = 0;
  heaptap_control.collector_pid = 0;
  AwaitTables();
  heaptap_control.collector_pid = 1;
  heaptap_semaphore_dump = 0;
  AwaitTables();
  EXPECT_EQ(asked_, 1);
  heaptap_semaphore_dump = 1;
  AwaitTables();
  EXPECT_EQ(asked_, 2);
}

TEST_F(CodeTables, WaitsForTheAnswerToItsQuestion) {
  const uint32_t before = heaptap_control.tables_asked;
  std::thread collector;
  testing::SetDumpHandler([&](heaptap_dump_request*) {
    collector = std::thread([before] {
      Answer(before);  // an older one
      Answer(before + 1);
    });
  });
  AwaitTables();
  EXPECT_EQ(__atomic_load_n(&heaptap_control.tables_ready, __ATOMIC_ACQUIRE), before + 1);
  collector.join();
}

TEST_F(CodeTables, NumbersWrap) {
  heaptap_control.tables_asked = heaptap_control.tables_ready = UINT32_MAX - 1;
  for (int i = 0; i < 4; i++) AwaitTables();
  EXPECT_EQ(asked_, 4);
  EXPECT_EQ(heaptap_control.tables_ready, 2u);
}

TEST_F(CodeTables, LeavesACollectorAloneThatDoesNotAnswer) {
  testing::ExpectInChild([this] {
    answers_ = false;
    AwaitTables();
    AwaitTables();
    return asked_ == 1;
  });
}

TEST_F(CodeTables, EndsWithTheCollector) {
  testing::ExpectInChild([this] {
    answers_ = false;
    std::thread end;
    testing::SetDumpHandler([&](heaptap_dump_request*) {
      end = std::thread([] { __atomic_store_n(&heaptap_control.collector_pid, 0, __ATOMIC_RELAXED); });
    });
    AwaitTables();
    end.join();
    // It was not late: the next one is asked.
    __atomic_store_n(&heaptap_control.collector_pid, 1, __ATOMIC_RELAXED);
    answers_ = true;
    int asked = 0;
    testing::SetDumpHandler([&](heaptap_dump_request* request) {
      asked++;
      Answer(static_cast<uint32_t>(request->argument));
    });
    AwaitTables();
    return asked == 1;
  });
}

TEST_F(CodeTables, AsksWhenTheThreadHasOpenedALibrary) {
  AwaitTablesOfOpened();
  EXPECT_EQ(asked_, 0);
  char frame;
  NoteOpening(&frame);
  AwaitTablesOfOpened();  // the first look at what is loaded
  const int before = asked_;
  AwaitTablesOfOpened();
  EXPECT_EQ(asked_, before);
  void* library = dlopen(kLibrary, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  NoteOpening(&frame);
  AwaitTablesOfOpened();
  EXPECT_EQ(asked_, before + 1);
  AwaitTablesOfOpened();
  EXPECT_EQ(asked_, before + 1);
  EXPECT_EQ(dlclose(library), 0);
}

}  // namespace
}  // namespace heaptap
