// SPDX-License-Identifier: Apache-2.0
//
// When a new maximum of memory makes a dump. Each test has a new process, whose maximum is small, and a clock that
// stands still, so that no round of maintenance comes by chance.
#include "allocator/profiling/triggers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "allocator/core/allocate.h"
#include "allocator/core/control.h"
#include "allocator/core/heap.h"
#include "allocator/core/observer.h"
#include "allocator/profiling/profiling.h"
#include "allocator/sampling/probes.h"
#include "recorder.h"
#include "settable_clock.h"
#include "support.h"
#include "tests/unit/support/folder.h"

namespace heaptap {
namespace {

using testing::kMiB;

int dumps;  // at maxima

// Runs the body while a collector answers requests. The body says what is wrong.
template <typename Body>
void ExpectWithCollector(Body body) {
  testing::ExpectInNewProcess([body]() -> std::string {
    const testing::SettableClock clock;
    const TemporaryFolder folder;
    if (chdir(folder.path().c_str()) != 0) return "chdir";
    testing::SetDumpHandler([](heaptap_dump_request* request) {
      dumps += request->kind == HEAPTAP_DUMP_HIGH_WATER;
      __atomic_store_n(&request->answered, request->sequence, __ATOMIC_RELEASE);
    });
    heaptap_semaphore_dump = 1;
    SetHighWaterDumped(true);
    return body();
  });
}

void Grow() { memset(Allocate(kMiB), 1, kMiB); }

// What another thread of the process does that has no heap, and so makes no dump itself.
void GrowWithoutAHeap() {
  Heap* const heap = current_heap;
  current_heap = &empty_heap;
  AddToFigure(&heaptap_statistics::active, 1000 * kMiB);
  observer::ActiveGrew();
  current_heap = heap;
}

TEST(HighWater, IsDumpedByTheSlowPathThatReachesIt) {
  ExpectWithCollector([]() -> std::string {
    for (int i = 1; i <= 20; i++) {
      Grow();
      if (dumps != i) return std::to_string(dumps) + " dumps at maximum " + std::to_string(i);
    }
    return "";
  });
}

TEST(HighWater, ADumpThatWasNotMadeIsMadeLaterAndOnce) {
  ExpectWithCollector([]() -> std::string {
    Grow();
    testing::TakeSlowPaths();
    if (dumps != 1) return std::to_string(dumps) + " dumps of the first maximum";
    GrowWithoutAHeap();
    if (dumps != 1) return "a thread without a heap has made a dump";
    testing::TakeSlowPaths();
    if (dumps != 2) return std::to_string(dumps) + " dumps after slow paths of another thread";
    testing::TakeSlowPaths();
    return dumps == 2 ? "" : "a second dump of the same maximum";
  });
}

TEST(HighWater, ADumpThatIsNoLongerWantedIsNotMade) {
  ExpectWithCollector([]() -> std::string {
    Grow();
    GrowWithoutAHeap();
    SetHighWaterDumped(false);
    SetHighWaterDumped(true);
    testing::TakeSlowPaths();
    return dumps == 1 ? "" : std::to_string(dumps) + " dumps";
  });
}

}  // namespace
}  // namespace heaptap
