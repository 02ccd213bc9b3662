// SPDX-License-Identifier: Apache-2.0
#include "allocator/sample/threads.h"

#include <pthread.h>
#include <stdint.h>

#include <atomic>

#include "allocator/platform/charge.h"
#include "allocator/platform/mathematics.h"
#include "allocator/platform/random.h"
#include "allocator/sample/control.h"
#include "heaptap/sample.h"

__thread uint64_t heaptap_sample_left;

namespace heaptap::sample {
namespace {

struct Thread {
  uint64_t more;      // the rest of the countdown, behind heaptap_sample_left
  uint64_t fork;      // the number of the thread's latest fork, which the child takes from here
  uint32_t interval;  // 1 + the lg that the countdown is drawn for; 0: off, or nothing is drawn
  bool has_random;
  Random random;
};
constinit thread_local Thread self{};

// The number of random streams so far.
constinit std::atomic<uint64_t> streams;
// The number of forks so far, and the change of the seed that results from them.
constinit std::atomic<uint64_t> forks;
constinit uint64_t seed_of_child;

void Begin(uint64_t countdown) {
  const uint64_t left = countdown < kStride ? countdown : kStride;
  heaptap_sample_left = left;
  self.more = countdown - left;
}

uint64_t DrawCountdown(uint32_t lg) {
  if (lg == 0) return 0;
  return CountdownTo(-Logarithm(DrawUnit()) * static_cast<double>(uint64_t{1} << lg));
}

}  // namespace

double DrawUnit() {
  if (!self.has_random) {
    self.random.Seed(Seed() ^ seed_of_child, streams.fetch_add(1, std::memory_order_relaxed));
    self.has_random = true;
  }
  return self.random.NextUnit();
}

uint32_t EndCountdown(uint64_t charge) {
  const uint64_t missing = uint64_t{0} - heaptap_sample_left;
  // Until the library has started, each allocation asks again.
  const uint64_t pause = HasStarted() ? kStride : 0;
  const uint32_t lg = CurrentLgInterval();
  if (self.interval != lg + 1) {
    self.interval = lg + 1;
    // The allocation is the first of the new interval.
    const uint64_t countdown = lg != kOff ? DrawCountdown(lg) : 0;
    if (lg != kOff && charge <= countdown) {
      Begin(countdown - charge);
      return kOff;
    }
  } else if (lg != kOff && missing <= self.more) {
    Begin(self.more - missing);
    return kOff;
  }
  Begin(lg != kOff ? DrawCountdown(lg) : pause);
  return lg;
}

namespace {

void BeforeFork() { self.fork = forks.fetch_add(1, std::memory_order_relaxed) + 1; }

// The child of a fork must not repeat the samples of its parent or its siblings.
void RestartThread() {
  seed_of_child = Random::SeedOfChild(seed_of_child, self.fork);
  heaptap_sample_left = 0;
  self.interval = 0;
  self.has_random = false;
}

[[gnu::constructor]] void Start() { pthread_atfork(BeforeFork, nullptr, RestartThread); }

}  // namespace

}  // namespace heaptap::sample
