// SPDX-License-Identifier: Apache-2.0
//
// mallctl for unit tests: values in and out.
#ifndef HEAPTAP_TESTS_ALLOCATOR_MALLCTL_VALUES_H_
#define HEAPTAP_TESTS_ALLOCATOR_MALLCTL_VALUES_H_

#include <gtest/gtest.h>

#include <string>

#include "allocator/jemalloc/mallctl/mallctl.h"
#include "allocator/process/process.h"

namespace heaptap::testing {

inline bool Prof() { return ProcessConfiguration().prof; }

template <typename Value>
Value Get(const std::string& name) {
  Value value{};
  size_t length = sizeof(value);
  EXPECT_EQ(Mallctl(name.c_str(), &value, &length, nullptr, 0), 0) << name;
  EXPECT_EQ(length, sizeof(value)) << name;
  return value;
}

template <typename Value>
int Set(const std::string& name, Value value) {
  return Mallctl(name.c_str(), nullptr, nullptr, &value, sizeof(value));
}

// For what is done and has no value.
inline int Do(const std::string& name) { return Mallctl(name.c_str(), nullptr, nullptr, nullptr, 0); }

}  // namespace heaptap::testing

#endif  // HEAPTAP_TESTS_ALLOCATOR_MALLCTL_VALUES_H_
