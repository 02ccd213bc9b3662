// SPDX-License-Identifier: Apache-2.0
//
// For tests that need permission to use eBPF and perf events.
#ifndef HEAPTAP_TESTS_UNIT_NEED_BPF_H_
#define HEAPTAP_TESTS_UNIT_NEED_BPF_H_

#include <stdlib.h>

#include <string_view>

#include "gtest/gtest.h"

namespace heaptap {

inline bool MaySkipBpf() {
  const char* value = getenv("HEAPTAP_SKIP_BPF");
  return value != nullptr && std::string_view(value) == "1";
}

}  // namespace heaptap

// Ends the test unless `status` is OK: it fails with the reason; with HEAPTAP_SKIP_BPF=1 it is skipped with the reason.
#define NEED_BPF(status)                                                                     \
  do {                                                                                       \
    if (const auto& need = (status); !need.ok()) {                                           \
      if (::heaptap::MaySkipBpf()) GTEST_SKIP() << "HEAPTAP_SKIP_BPF=1: " << need.message(); \
      FAIL() << need << "\n(HEAPTAP_SKIP_BPF=1 skips the tests that need eBPF)";             \
    }                                                                                        \
  } while (false)

#endif  // HEAPTAP_TESTS_UNIT_NEED_BPF_H_
