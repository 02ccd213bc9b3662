// SPDX-License-Identifier: Apache-2.0
//
// Headers that most unit tests of the collector include, compiled once; see userspace/precompiled.h.
#ifndef HEAPTAP_TESTS_UNIT_SUPPORT_PRECOMPILED_H_
#define HEAPTAP_TESTS_UNIT_SUPPORT_PRECOMPILED_H_

#include <algorithm>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // HEAPTAP_TESTS_UNIT_SUPPORT_PRECOMPILED_H_
