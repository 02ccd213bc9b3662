// SPDX-License-Identifier: Apache-2.0
//
// What several tests of the allocator need: looks at memory, tests in a process of their own, the law's bound.
#ifndef HEAPTAP_TESTS_ALLOCATOR_SUPPORT_H_
#define HEAPTAP_TESTS_ALLOCATOR_SUPPORT_H_

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>

namespace heaptap::testing {

inline constexpr size_t kMiB = size_t{1} << 20;

inline bool IsFilled(const void* pointer, size_t from, size_t to, unsigned char value) {
  const unsigned char* bytes = static_cast<const unsigned char*>(pointer);
  for (size_t i = from; i < to; i++) {
    if (bytes[i] != value) return false;
  }
  return true;
}

inline bool IsAligned(const void* pointer, size_t alignment) {
  return reinterpret_cast<uintptr_t>(pointer) % alignment == 0;
}

// The probability that an allocation is a sample at 2^lg bytes on average.
inline double SampleProbability(size_t size, uint32_t lg) {
  return -std::expm1(-static_cast<double>(size) / std::ldexp(1, static_cast<int>(lg)));
}

// Whether so many samples are within five standard deviations of what `trials` with probability `p` give on average.
// The seeds are fixed, by the tests or by the rule that runs them.
inline bool IsBinomial(uint64_t samples, uint64_t trials, double p) {
  constexpr double kDeviations = 5;
  const double mean = static_cast<double>(trials) * p;
  return std::fabs(static_cast<double>(samples) - mean) <= kDeviations * std::sqrt(mean * (1 - p)) + 1;
}

// A test that spoils the process runs in a child, a copy of this one; the body returns whether all is well.
template <typename Body>
void ExpectInChild(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

// The same in a new process that has allocated nothing yet; the body says what is wrong.
template <typename Body>
void ExpectInNewProcess(Body body) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        std::string wrong = body();
        fprintf(stderr, "%s\n", wrong.c_str());
        _exit(wrong.empty() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_SUPPORT_H_
