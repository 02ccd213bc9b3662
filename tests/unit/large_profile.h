// SPDX-License-Identifier: Apache-2.0
//
// Profiles as large as those of a large program, to measure the writers.
#ifndef HEAPTAP_TESTS_UNIT_LARGE_PROFILE_H_
#define HEAPTAP_TESTS_UNIT_LARGE_PROFILE_H_

#include <array>
#include <cstdint>
#include <random>
#include <string>

#include "tests/unit/support/growth.h"
#include "userspace/profile/profile.h"

namespace heaptap {

// Contexts of 24 frames by 20,000 different addresses in 50 mappings, each with two threads.
inline profile::Profile MakeProfile(uint64_t contexts) {
  std::mt19937_64 random(7);
  profile::Profile profile = {.pid = 1, .period = 524288};
  for (uint64_t i = 0; i < 50; ++i) {
    const uint64_t start = 0x7f0000000000 + (i << 24);
    profile.mappings.push_back({.start = start,
                                .end = start + (1 << 20),
                                .inode = i + 1,
                                .path = "/usr/lib/libnumber" + std::to_string(i) + ".so.1",
                                .build_id = std::string(20, static_cast<char>(i))});
  }
  for (uint64_t i = 0; i < contexts; ++i) {
    // The first two make it differ from all others.
    profile::Context context = {
        .frames = {profile.mappings[0].start + 1 + i / 1000, profile.mappings[1].start + 1 + i % 1000}};
    while (context.frames.size() < 24) {
      context.frames.push_back(profile.mappings[random() % 50].start + 1 + random() % 400 * 64);
    }
    for (uint32_t tid : {100, 200}) {
      const double size = static_cast<double>(random() % 4096 + 1);
      context.threads.push_back({.tid = tid, .live = {1, 1, 900, 900 * size}, .allocated = {5, 5, 4500, 4500 * size}});
    }
    profile.contexts.push_back(std::move(context));
  }
  profile.thread_names = {{100, "main"}, {200, "worker"}};
  return profile;
}

inline constexpr size_t kLargeContexts = 40000;

// The inputs of ExpectLinear (support/growth.h).
inline const std::array<profile::Profile, 2>& LargeProfiles() {
  static const std::array<profile::Profile, 2> profiles = {MakeProfile(kLargeContexts / kGrowth),
                                                           MakeProfile(kLargeContexts)};
  return profiles;
}

}  // namespace heaptap

#endif  // HEAPTAP_TESTS_UNIT_LARGE_PROFILE_H_
