// SPDX-License-Identifier: Apache-2.0
//
// The sampling law over a host: of many allocations of one size, as many are samples as the law of the usable size
// says, in every function that allocates and in every thread. With SAMPLE=0 all are.
//
// The seed is fixed (HEAPTAP_CONF=prof_seed), and the bounds are seven standard deviations wide.
#include <malloc.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <functional>
#include <new>
#include <thread>
#include <vector>

#include "check.h"
#include "sampling.h"

namespace {

double mean_bytes;
volatile size_t one = 1;

double ProbabilityOf(size_t usable) { return mean_bytes == 1 ? 1 : 1 - exp(-static_cast<double>(usable) / mean_bytes); }

struct Way {
  const char* name;
  std::function<void*(size_t)> allocate;
  std::function<void(void*, size_t)> release;
};

void Free(void* pointer, size_t) { free(pointer); }

const Way kWays[] = {
    {"malloc", [](size_t size) { return malloc(size); }, Free},
    {"calloc", [](size_t size) { return calloc(one, size); }, Free},
    {"realloc", [](size_t size) { return realloc(nullptr, size); }, Free},
    {"new", [](size_t size) { return operator new(size); }, [](void* p, size_t) { operator delete(p); }},
    {"new[]", [](size_t size) { return operator new[](size); },
     [](void* p, size_t size) { operator delete[](p, size); }},
    {"new nothrow", [](size_t size) { return operator new(size, std::nothrow); },
     [](void* p, size_t) { operator delete(p, std::nothrow); }},
};

// Of a host whose aligned blocks always have the same usable size. That of others depends on what was free.
const Way kAlignedWays[] = {
    {"new aligned", [](size_t size) { return operator new(size, std::align_val_t(64)); },
     [](void* p, size_t) { operator delete(p, std::align_val_t(64)); }},
    {"memalign", [](size_t size) { return memalign(256, size); }, Free},
};

// Allocates `count` blocks, a few at a time. Returns the number of samples.
uint64_t CountSamples(const Way& way, size_t size, int count) {
  constexpr int kAtOnce = 50;
  uint64_t samples = 0;
  void* blocks[kAtOnce];
  for (int done = 0; done < count; done += kAtOnce) {
    const uint64_t before = LiveSamples();
    for (void*& block : blocks) block = way.allocate(size);
    samples += LiveSamples() - before;
    for (void* block : blocks) way.release(block, size);
  }
  return samples;
}

// Until the thread has noticed that sampling is on.
void WarmUp() {
  for (int i = 0; i < 100000; i++) free(malloc(1));
}

// The usable size of such a sample. Blocks of the host may be larger: glibc leaves what is too small for another block.
size_t SampleSize(const Way& way, size_t size) {
  Control()->collector_lg_sample = 0;
  WarmUp();
  void* block = way.allocate(size);
  const size_t usable = malloc_usable_size(block);
  way.release(block, size);
  SwitchSamplingOn();
  WarmUp();
  return usable;
}

void CheckLaw(const Way& way, size_t size, int count) {
  const double p = ProbabilityOf(SampleSize(way, size));
  const double found = static_cast<double>(CountSamples(way, size, count));
  const double deviation = sqrt(count * p * (1 - p));
  const bool is_lawful = fabs(found - count * p) <= 7 * deviation;
  if (!is_lawful) fprintf(stderr, "%s of %zu: %g samples, not %g +- %g\n", way.name, size, found, count * p, deviation);
  CHECK(is_lawful);
}

// A realloc is a new allocation, wherever the old block is.
void CheckReallocs() {
  constexpr int kCount = 100000;
  constexpr size_t kMost = 3000;
  Control()->collector_lg_sample = 0;
  WarmUp();
  std::vector<size_t> usable(kMost + 1);
  for (size_t size = 1; size <= kMost; size++) {
    void* sample = malloc(size);
    usable[size] = malloc_usable_size(sample);
    free(sample);
  }
  SwitchSamplingOn();
  WarmUp();
  uint64_t before = LiveSamples();
  void* block = malloc(1);
  int64_t is_sample = static_cast<int64_t>(LiveSamples() - before);
  int64_t samples = 0;
  double expected = 0;
  double variance = 0;
  for (int i = 0; i < kCount; i++) {
    before = LiveSamples();
    const size_t size = 1 + static_cast<size_t>(i) * 7 % kMost;
    block = realloc(block, size);
    is_sample += static_cast<int64_t>(LiveSamples() - before);
    CHECK(is_sample == 0 || is_sample == 1);
    samples += is_sample;
    const double p = ProbabilityOf(usable[size]);
    expected += p;
    variance += p * (1 - p);
  }
  const bool is_lawful = fabs(static_cast<double>(samples) - expected) <= 7 * sqrt(variance);
  if (!is_lawful) fprintf(stderr, "realloc: %ld samples, not %g\n", static_cast<long>(samples), expected);
  CHECK(is_lawful);
  free(block);
}

}  // namespace

int main(int argc, char** argv) {
  const bool is_aligned_wanted = argc == 2 && strcmp(argv[1], "aligned") == 0;
  const char* lg = getenv("SAMPLE");
  if (Control() == nullptr || lg == nullptr) {
    fprintf(stderr, "law: needs libheaptap-guest.so and SAMPLE\n");
    return 2;
  }
  mean_bytes = exp2(atoi(lg));
  SwitchSamplingOn();
  WarmUp();
  std::vector<size_t> sizes = {0, 1, 24, 100, 1000, 5000, 32768, 40000, 300000};
  for (const Way& way : kWays) {
    for (const size_t size : sizes) CheckLaw(way, size, size < 2000 ? 100000 : 2000);
  }
  for (const Way& way : kAlignedWays) {
    // Not of size 0, which jemalloc forgets to align.
    for (size_t i = 1; is_aligned_wanted && i < sizes.size(); i++)
      CheckLaw(way, sizes[i], sizes[i] < 2000 ? 100000 : 2000);
  }
  CheckReallocs();
  // Each thread has a countdown and a random stream of its own.
  for (int i = 0; i < 4; i++) std::thread([&] { CheckLaw(kWays[0], 200, 50000); }).join();
  SwitchSamplingOff();
  return failures != 0;
}
