// SPDX-License-Identifier: Apache-2.0
//
// Preconditions that headers state (REQUIRES). Debug builds (HEAPTAP_DEBUG: the unit tests and fuzzers with sanitizers)
// check them: a condition that does not hold is printed with its place in the source, and the process aborts. Other
// builds do not evaluate them. Thread-safe.
#ifndef HEAPTAP_USERSPACE_BASE_REQUIRE_H_
#define HEAPTAP_USERSPACE_BASE_REQUIRE_H_

namespace heaptap::base {

// Whether this is a debug build.
bool ChecksPreconditions();

[[noreturn]] void AbortForPrecondition(const char* condition, const char* file, int line);

}  // namespace heaptap::base

#ifdef HEAPTAP_DEBUG
#define HEAPTAP_REQUIRE(...) \
  ((__VA_ARGS__) ? static_cast<void>(0) : ::heaptap::base::AbortForPrecondition(#__VA_ARGS__, __FILE__, __LINE__))
#else
// Not evaluated, but compiled.
#define HEAPTAP_REQUIRE(...) static_cast<void>(sizeof((__VA_ARGS__) ? 1 : 0))
#endif

#endif  // HEAPTAP_USERSPACE_BASE_REQUIRE_H_
