// SPDX-License-Identifier: Apache-2.0
//
// Ages of blocks, in ranges that grow tenfold at first: what a request holds, what a session holds, what stays.
#ifndef HEAPTAP_USERSPACE_PROFILE_AGES_H_
#define HEAPTAP_USERSPACE_PROFILE_AGES_H_

#include <algorithm>
#include <array>
#include <cstdint>

namespace heaptap::profile {

// Where the ranges begin, in seconds. The last one has no end.
inline constexpr std::array<uint32_t, 9> kAges = {0, 1, 10, 60, 600, 3600, 21600, 86400, 604800};

// The age of a block in a format without ages.
inline constexpr uint32_t kUnknownAge = UINT32_MAX;

// The beginning of the range of this age.
inline uint32_t AgeOf(uint64_t seconds) { return *(std::ranges::upper_bound(kAges, seconds) - 1); }

}  // namespace heaptap::profile

#endif  // HEAPTAP_USERSPACE_PROFILE_AGES_H_
