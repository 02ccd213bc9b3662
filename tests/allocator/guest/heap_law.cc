// SPDX-License-Identifier: Apache-2.0
//
// The law of <heaptap/sample.h>, and what it remembers, without a collector: of many blocks of one size, as many are
// samples as the law says, in each thread and after a fork.
//
// The seed is fixed (HEAPTAP_CONF=prof_seed), and the bounds are seven standard deviations wide.
#include <math.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>
#include <vector>

#include "check.h"
#include "heaptap/contract.h"
#include "heaptap/sample.h"

// The library's own, since no other allocator is loaded.
extern "C" __attribute__((visibility("hidden"))) struct heaptap_control heaptap_control;

namespace {

constexpr uint64_t kStride = 1 << 16;

void Listen(uint32_t lg) {
  heaptap_control.collector_lg_sample = lg;
  *reinterpret_cast<volatile uint16_t*>(heaptap_control.alloc_semaphore) = lg != UINT32_MAX;
  // Until the thread has noticed.
  for (uint64_t i = 0; i < 2 * kStride; i++) heaptap_heap_mark_alloc(nullptr, &lg, 1);
}

const void* BlockAt(uintptr_t address) { return reinterpret_cast<const void*>(address); }

uint64_t CountSamples(size_t size, uint64_t blocks) {
  uint64_t samples = 0;
  for (uint64_t i = 0; i < blocks; i++) samples += heaptap_heap_mark_alloc("law", &samples, size);
  return samples;
}

bool IsLawful(size_t size, double mean) {
  const uint64_t blocks = 3000000;
  const double p = 1 - exp(-static_cast<double>(size) / mean);
  const double samples = static_cast<double>(CountSamples(size, blocks));
  const double expected = static_cast<double>(blocks) * p;
  const bool is_lawful = fabs(samples - expected) <= 7 * sqrt(expected * (1 - p)) + 1;
  if (!is_lawful) fprintf(stderr, "%zu bytes at %.0f: %.0f samples, not %.0f\n", size, mean, samples, expected);
  return is_lawful;
}

uint64_t Remembered() {
  uint64_t sum = 0;
  for (const uint32_t count : heaptap_sample_counts) sum += count;
  return sum;
}

void CheckLaw() {
  for (const uint32_t lg : {10u, 16u, 19u}) {
    Listen(lg);
    for (const size_t size : {1, 48, 1000, 30000, 2000000}) CHECK(IsLawful(size, ldexp(1, static_cast<int>(lg))));
    bool is_lawful = false;
    std::thread([&] { is_lawful = IsLawful(100, ldexp(1, static_cast<int>(lg))); }).join();
    CHECK(is_lawful);
  }
  Listen(0);
  CHECK(CountSamples(1, 1000) == 1000);
  CHECK(CountSamples(0, 1000) == 0);
  Listen(UINT32_MAX);
  CHECK(CountSamples(100000, 1000) == 0);
}

// Each sample is forgotten by its free, and by no other.
void CheckRemembered() {
  Listen(0);
  const uint64_t blocks = 300000;  // beyond the first levels
  for (uint64_t i = 1; i <= blocks; i++) CHECK(heaptap_heap_sample_alloc("a", BlockAt(i * 16), 16));
  for (uint64_t i = 1; i <= blocks; i += 2) CHECK(heaptap_heap_sample_alloc("b", BlockAt(i * 16), 16));
  CHECK(Remembered() == blocks + blocks / 2);
  for (uint64_t i = 1; i <= blocks; i++) heaptap_heap_sample_free("c", BlockAt(i * 16));
  heaptap_sample_free(BlockAt(16));
  heaptap_sample_free(nullptr);
  CHECK(Remembered() == blocks + blocks / 2);
  for (uint64_t i = 1; i <= blocks; i++) heaptap_heap_sample_free("a", BlockAt(i * 16));
  CHECK(Remembered() == blocks / 2);
  heaptap_heap_sample_free_range("b", BlockAt(16), 16 * 100);
  CHECK(Remembered() == blocks / 2 - 50);
  heaptap_heap_sample_free_range("a", nullptr, SIZE_MAX);
  CHECK(Remembered() == blocks / 2 - 50);
  heaptap_heap_sample_free_range("b", nullptr, SIZE_MAX);
  CHECK(Remembered() == 0);
  CHECK(!heaptap_sample_alloc(nullptr, 100));
}

void CheckThreads() {
  std::vector<std::thread> threads;
  for (uint64_t number = 1; number <= 8; number++) {
    threads.emplace_back([number] {
      for (int round = 0; round < 100; round++) {
        for (uint64_t i = 1; i <= 1000; i++) heaptap_sample_alloc(BlockAt((number << 32) + i * 16), 8);
        for (uint64_t i = 1; i <= 1000; i++) heaptap_sample_free(BlockAt((number << 32) + i * 16));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(Remembered() == 0);
}

// The child draws anew.
void CheckFork() {
  Listen(12);
  int fds[2];
  CHECK(pipe(fds) == 0);
  const pid_t child = fork();
  std::vector<uint8_t> own(20000);
  for (uint8_t& is_sample : own) is_sample = heaptap_heap_mark_alloc(nullptr, fds, 64);
  if (child == 0) _exit(write(fds[1], own.data(), own.size()) != static_cast<ssize_t>(own.size()));
  std::vector<uint8_t> of_child(own.size());
  CHECK(read(fds[0], of_child.data(), of_child.size()) == static_cast<ssize_t>(own.size()));
  int status;
  CHECK(waitpid(child, &status, 0) == child && status == 0);
  CHECK(own != of_child);
}

}  // namespace

int main() {
  CHECK(heaptap_control.magic == HEAPTAP_CONTROL_MAGIC && heaptap_control.size == sizeof(heaptap_control));
  CheckLaw();
  CheckRemembered();
  CheckThreads();
  CheckFork();
  return failures != 0;
}
