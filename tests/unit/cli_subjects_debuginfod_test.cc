// SPDX-License-Identifier: Apache-2.0
//
// Tests a server that says nothing; tests/e2e/tools/test_debuginfod.py has the others.
#include <stdlib.h>

#include <memory>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/listener.h"
#include "tests/unit/support/folder.h"
#include "userspace/cli/subjects/debuginfod.h"

namespace heaptap::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DebuginfodTest, GivesUpLateFilesAndThenAsksNoMore) {
  const Listener listener(10);
  TemporaryFolder cache;
  setenv("DEBUGINFOD_URLS", ("http://127.0.0.1:" + listener.port()).c_str(), 1);
  setenv("DEBUGINFOD_CACHE_PATH", (cache / "cache").c_str(), 1);
  absl::StatusOr<std::unique_ptr<Debuginfod>> debuginfod = Debuginfod::Open({.time = absl::Milliseconds(1)});
  ASSERT_TRUE(debuginfod.ok()) << debuginfod.status();
  // The library remembers for a time that there was no answer.
  for (const char* build_id : {"01234567", "11234567", "21234567", "31234567", "41234567"}) {
    EXPECT_FALSE((*debuginfod)->FindDebugFile(build_id, "/usr/lib/libx.so").valid());
  }
  unsetenv("DEBUGINFOD_URLS");
  unsetenv("DEBUGINFOD_CACHE_PATH");
  unsetenv("DEBUGINFOD_MAXTIME");
  EXPECT_THAT((*debuginfod)->problems(),
              ElementsAre(HasSubstr("debug information of libx.so (build-id 3031323334353637): it took more than"),
                          HasSubstr("more than"), HasSubstr("not asked any more")));
}

TEST(DebuginfodTest, NeedsServers) {
  unsetenv("DEBUGINFOD_URLS");
  EXPECT_TRUE(absl::IsInvalidArgument(Debuginfod::Check()));
  EXPECT_TRUE(absl::IsInvalidArgument(Debuginfod::Open({}).status()));
}

}  // namespace
}  // namespace heaptap::cli
