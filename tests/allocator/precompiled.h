// SPDX-License-Identifier: Apache-2.0
//
// Headers that most unit tests of the allocator include, compiled once for each variant.
#ifndef HEAPTAP_TESTS_ALLOCATOR_PRECOMPILED_H_
#define HEAPTAP_TESTS_ALLOCATOR_PRECOMPILED_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#endif  // HEAPTAP_TESTS_ALLOCATOR_PRECOMPILED_H_
