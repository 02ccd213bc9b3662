// SPDX-License-Identifier: Apache-2.0
//
// Headers that most files of the collector include, compiled once and read before each file (Makefile, PRECOMPILED). A
// file still includes what it uses: clang-tidy and the fuzzers compile without this header.
//
// A header belongs here if at least a dozen files include it. Each one makes the compiled header larger, and every file
// pays for its size: nlohmann/json.hpp here would cost a second in each file that does not use it.
#ifndef HEAPTAP_USERSPACE_PRECOMPILED_H_
#define HEAPTAP_USERSPACE_PRECOMPILED_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

#endif  // HEAPTAP_USERSPACE_PRECOMPILED_H_
